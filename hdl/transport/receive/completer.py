"""The sending side's answers: ACKs, NAKs and READ responses finish outstanding WQEs."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect

from hdl.abi.enums import WcStatus
from hdl.common.contract import require
from hdl.common.sums import is_sum, unequal
from hdl.common.tables import TableWrite
from hdl.config import NicConfig
from hdl.ports.activations import FINISH_AND_FLUSH
from hdl.ports.jobs import (
    Activation,
    Oldest,
    ScatterJob,
    ScatterKind,
)
from hdl.ports.numbers import QpNumber, send_queue
from hdl.ports.operations import is_placement, unanswered
from hdl.ports.rows import QpAck
from hdl.ports.shared import dc_initiator

from ..outstanding.types import FORESEEN, Foreseen, Look, Pop
from ..recovery.go_back_n import GO_BACK_N
from ..recovery.policy import Recovery
from ..recovery.qp_timers import TimerSet
from ..recovery.segment import message_offset
from .completer_ahead import Coming, OldestAhead
from .completer_check import entry_facts, response_facts
from .completer_outcome import (
    CompleterState,
    decide,
    drive_effects,
    drive_job,
    is_data,
)
from .completer_row import Due, at_hand, finish, take_away
from .dynamic import name_end
from .types import CompleterWork, Events, Part, Pending

__all__ = ["Completer"]


class Completer(wiring.Component):
    """Takes one response packet, or one ``finish`` poke, with the rows of its QP.

    Walks the QP's outstanding WQEs, oldest first: those that the packet acknowledges finish, in
    order, each with a ``job`` and ``pending`` of its own (the first one of an ACK uses the
    packet's). Nothing waits for the check of a READ response's place: ``pending`` and rows are what
    a good one brings about; ``Commit`` sees to those that are not.
    An entry that is not ``complete`` is never removed: the requester still works on it.
    A READ finishes by its own responses only; a packet that passes over an unfinished one shows
    that responses were lost. Then, and with a NAK 60h or when the QP's timer runs out (a poke
    TIMEOUT), the QP goes back to its oldest unacknowledged packet: ``restart`` tells the requester,
    which finds the place in ``QpAck``. With an RNR NAK it waits first (docs/retry.md).
    READ responses overlap: the WQE of the one that the intake holds (``coming``) is looked up while
    another QP's is at work (``OldestAhead``), and that of the same QP is shown by the pop of a READ
    that ends; behind a response that leaves its READ unfinished the same WQE is used again
    (``follows``). Its entry says where its SGEs are.

    Members: ``foreseen``: of the WQE that ``head_rsp`` shows, while it does; ``busy`` from the
    cycle after ``i`` was taken, with ``qp`` whose row is being changed, until all has been handed
    over: row, ``pop``, ``wake``, ``repoke``; ``beside``: requests of other QPs may be worked on
    meanwhile, as no payload is to be placed before theirs; ``ending`` in the last such cycle, or
    before, when only the ``pop`` is left. ``follows``: the row of ``qp`` is as the next response of
    the same READ needs it. ``hold``: see Receive.
    Spec: IBTA vol 1, 9.7.5.2, 9.7.6 (requester), 9.9.3 (its errors), 10.8.3 (flush).
    Latency: an ACK of one WQE 7 cycles, each further WQE 3, or 4 if it is not ``foreseen`` or a job
    has just been taken; a READ response 10 with its look.
    Throughput: a READ response in 6 cycles while looks come in time; else one packet after the
    other.
    Errors: in ``pending.events``; the first WQE that ends in error sets ``QpAck.error``, and FINISH
    pokes asked for here flush the rest one by one. ``restart`` and ``timer`` must always be taken:
    receive never waits for the send side. A READ that invalidates a key ends when all is
    ``decided``, see ``Commit``. Reset: idle.
    """

    def __init__(self, *, config: NicConfig, recovery: Recovery = GO_BACK_N):
        self._config, self._recovery = config, recovery
        super().__init__(
            {
                "i": In(stream.Signature(CompleterWork)),
                "coming": In(Coming()),
                "job": Out(stream.Signature(ScatterJob)),
                "pending": Out(stream.Signature(Pending)),
                "head_req": Out(stream.Signature(Look)),
                "head_rsp": In(stream.Signature(Oldest)),
                "foreseen": In(Foreseen),
                "pop": Out(stream.Signature(Pop)),
                "wake": Out(stream.Signature(QpNumber)),
                "repoke": Out(stream.Signature(Activation)),
                "restart": Out(stream.Signature(QpNumber)),
                "timer": Out(stream.Signature(TimerSet)),
                "ack_write": Out(TableWrite(QpNumber, QpAck)),
                "qp": Out(QpNumber),
                "busy": Out(1),
                "beside": Out(1),
                "ending": Out(1),
                "follows": Out(1),
                "hold": In(1),
                "decided": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        s = Signal(CompleterState, reset_less=True)
        due = Signal(Due)
        owes = Signal()  # the packet has payload that has no job yet
        m.submodules.ahead = ahead = OldestAhead()
        follows = Signal()
        events, counted = Signal(Events), Signal(Events)  # now; since the last ``pending``
        packet, jobless = Signal(), Signal()
        left = Signal(6)  # ``pending`` and what follows it, if not taken in this cycle
        response_now = response_facts(m, self.i.payload)
        following = Signal()
        shown = Signal(Foreseen)  # of the WQE at hand, or of the next one while that comes
        m.d.comb += [shown[name].eq(s.oldest.entry[name]) for name in FORESEEN]
        with m.If(following):
            m.d.comb += shown.eq(self.foreseen)
        entry_now = entry_facts(m, s.work, s.said, shown, s.ack)
        decision = decide(m, self._config, self._recovery, s, at_hand(s, due))
        loss, verdict = decision.loss, decision.verdict
        text = "a recovery policy answers a loss, and either sends again or gives up"
        require(m, platform, loss.found | ~(verdict.again | verdict.gives_up), text)
        require(m, platform, ~(verdict.again & verdict.gives_up), text)

        with m.FSM(name="completer") as fsm:
            self._take(m, s, due, ahead, follows, response_now, packet)
            # COMPARE: compares the packet with the oldest WQE; ends when the WQE before, of another
            # packet, has been taken away.
            with m.State("COMPARE"):
                m.d.sync += s.facts.eq(entry_now)
                with m.If(~due.pop):
                    m.next = "DECIDE"
            self._act(m, s, due, decision, events)
            self._place(m, s, events, follows)
            self._hand_over(m, s, due, counted, jobless, left)
            self._next(m, s, left, entry_now)
        with m.If(self.hold):
            m.d.sync += follows.eq(0)  # the list may be dropped next

        # What is handed over, each as soon as its taker is ready; a wake for all that has finished.
        # The first two become due on the way into that state, and it does not end before they go.
        m.d.comb += following.eq(fsm.ongoing("NEXT"))
        handing = fsm.ongoing("HAND-OVER") | following
        for n, (give, valid, port) in enumerate(
            (
                (due.pending, due.pending, self.pending),
                (due.wake, handing & due.wake & ~s.more, self.wake),
                (s.poke, handing & (s.poke != 0), self.repoke),
                # With the row or behind it: the requester reads it.
                (due.restart, handing & due.restart, self.restart),
                (due.timer, handing & due.timer, self.timer),
            )
        ):
            m.d.comb += [port.valid.eq(valid), left[n].eq(valid & ~port.ready)]
            with m.If(port.valid & port.ready):
                m.d.sync += give.eq(0)
        # The table says late whether it takes a pop: only the next look waits for that.
        m.d.comb += self.pop.valid.eq(due.pop & ~(s.pop.look & ahead.asked))
        with m.If(self.pop.valid & self.pop.ready):
            m.d.sync += due.pop.eq(0)

        invalidates = Signal()
        if self._config.fast_registration:
            m.d.comb += [
                invalidates.eq(
                    s.finish & s.oldest.entry.invalidate & (s.status == WcStatus.SUCCESS)
                ),
                # What comes behind it, of any QP, must not be checked before its key is invalid.
                left[5].eq(handing & invalidates & (due.pending | ~self.decided)),
            ]

        finishes = fsm.ongoing("JOB") & self.job.valid & self.job.ready & s.finish
        m.d.comb += [
            self.busy.eq(due.work | due.pop),
            self.beside.eq(~owes),
            self.follows.eq(follows),
            events.req_cqe_error.eq(finishes & (s.status != WcStatus.SUCCESS)),
            events.req_cqe_flush_error.eq(finishes & (s.status == WcStatus.WR_FLUSH_ERR)),
            self.pending.payload.packet.eq(packet),
            self.pending.payload.jobless.eq(jobless),
            self.pending.payload.events.eq(counted),
            self.pending.payload.invalidate.eq(invalidates),
            self.pending.payload.pd.eq(s.work.cfg.pd),
        ]
        m.d.sync += counted.eq(counted.as_value() | events.as_value())
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += owes.eq(~self.i.payload.finish & (self.i.payload.header.length != 0))
        with m.Elif(self.job.valid & self.job.ready & (s.kind != ScatterKind.NONE)):
            m.d.sync += owes.eq(0)  # jobs of WQEs that end before its own have none
        with m.If(self.pending.valid & self.pending.ready):
            m.d.sync += [counted.eq(0), packet.eq(0)]
        going_on = self._look_ahead(m, s, due, follows, following & (left == 0))
        # A READ ends whose QP's next response waits: the pop shows the WQE of that one.
        joins = s.placed & ~s.more & going_on & ahead.free
        m.d.comb += [
            ahead.join.eq(finishes & joins),
            ahead.popped.eq(self.pop.valid & self.pop.ready),
        ]
        with m.If(finishes & ~s.early):
            m.d.sync += s.pop.look.eq(s.more | joins)
        self._outputs(m, s)
        return m

    def _take(self, m, s, due, ahead, follows, response_now, packet):
        """The work arrives, and with it the oldest WQE of its QP."""
        taken = self.i.payload
        response = ~taken.finish & taken.operation.response & taken.operation.data
        same = ~s.differs.any()
        can_look = ~due.pop & ~ahead.asked
        # IDLE: takes the work, a READ response together with its WQE; ends with it.
        with m.State("IDLE"):
            m.d.comb += [
                self.ending.eq(1),
                self.head_req.valid.eq(self.i.valid & ~response & can_look),
                self.i.ready.eq(
                    Mux(response, follows & same | ahead.here, self.head_req.ready & can_look)
                ),
            ]
            m.d.sync += [
                s.work.eq(taken),
                s.ack.eq(taken.ack),
                s.said.eq(response_now),
                s.job_pending.eq(~taken.finish),
                packet.eq(~taken.finish),
                s.changed.eq(0),
                s.more.eq(0),
                s.sent.eq(0),
                s.poke.eq(0),
                s.finish.eq(0),
                s.placed.eq(0),
                s.kind.eq(ScatterKind.NONE),
            ]
            with m.If(~same | ~follows):
                m.d.sync += [s.oldest.eq(ahead.oldest), follows.eq(0)]
            with m.If(self.i.valid & self.i.ready):
                m.d.sync += [follows.eq(0), self.qp.eq(taken.qp), due.work.eq(1)]
                m.d.sync += due.look.eq(~response)
                m.next = "HEAD"
                with m.If(response):
                    m.next = "COMPARE"
        # HEAD: waits for the oldest WQE; ends with the table's answer.
        with m.State("HEAD"):
            own = self.head_rsp.valid & ~ahead.asked
            m.d.sync += s.oldest.eq(self.head_rsp.payload)
            with m.If(own):
                m.d.sync += due.look.eq(0)
                m.next = "COMPARE"

    def _act(self, m, s, due, decision, events):
        """The decision about the oldest WQE becomes true."""
        at, complete, verdict = at_hand(s, due), s.oldest.entry.complete, decision.verdict
        ends = decision.finish | (decision.fails & complete)
        prompt = Signal()  # a job would have been taken a cycle ago; now it is known late
        m.d.sync += prompt.eq(self.job.ready)
        # DECIDE: does what ``completer_outcome`` and the policy say; ends by itself.
        with m.State("DECIDE"):
            m.d.comb += events.eq(decision.events)
            m.d.sync += [
                s.offset.eq(message_offset(m, s.work.cfg.path_mtu, s.facts.packets)),
                s.finish.eq(ends),
                s.early.eq(decision.finish & prompt),
                s.status.eq(decision.status),
                s.more.eq(decision.more),
                s.changed.eq(decision.acknowledged.new | decision.fails | verdict.again),
                s.poke.eq(decision.poke),
            ]
            with m.If(decision.acknowledged.new):
                m.d.sync += s.ack.psn.eq(decision.acknowledged.psn)
                self._recovery.progress(m, at)
            # The requester still sends the WQE: a poke finishes it when it is complete.
            with m.If(decision.fails & ~complete):
                m.d.sync += [s.ack.error.eq(1), s.ack.status.eq(decision.status)]
                m.d.sync += s.poke.eq(FINISH_AND_FLUSH)
            with m.If(verdict.again):
                m.d.sync += due.restart.eq(1)
                self._recovery.send_again(m, verdict, at)
            m.next = "END"
            # The WQE leaves the list beside its job, unless that would wait: so would the list.
            with m.If(decision.finish & prompt):
                take_away(m, s, due, self._recovery)
                m.d.sync += s.pop.look.eq(decision.more)
            with m.If(ends):
                m.next = "JOB"
            with m.Elif(decision.place):
                m.next = "PLACE"

    def _place(self, m, s, events, follows):
        """A READ response goes to the SGEs of its WQE."""
        header, said, facts = s.work.header, s.said, s.facts
        # PLACE: checks length and order of the response; ends by itself.
        with m.State("PLACE"):
            length = Signal(32)
            m.d.comb += length.eq(header.length)
            wanted = s.oldest.entry.length
            if self._config.placement:  # the answer to FLUSH and ATOMIC WRITE has no data
                wanted &= (~is_placement(self._config, s.oldest.entry.completion)).replicate(32)
            ends = is_sum(s.offset, length, wanted)
            owes_last = said.last & facts.at_last & ends
            owes_more = ~said.last & ~facts.at_last & said.full
            m.d.sync += [s.job_pending.eq(0), s.kind.eq(self._discard(s))]
            begun, again = s.ack.read_begun, self._recovery.asked_again(s.ack)
            in_order = (said.first != begun) | (begun & again)
            with m.If(~in_order | facts.other_kind | ~(owes_last | owes_more)):
                m.d.comb += events.bad_response.eq(1)
                m.d.sync += [s.finish.eq(1), s.status.eq(WcStatus.BAD_RESP_ERR)]
            with m.Else():
                m.d.sync += [
                    s.kind.eq(Mux(header.length == 0, ScatterKind.NONE, ScatterKind.LINE)),
                    s.placed.eq(1),
                    s.finish.eq(said.last),
                    s.status.eq(WcStatus.SUCCESS),
                    follows.eq(~said.last),
                ]
            m.next = "JOB"

    @staticmethod
    def _discard(s):
        return Mux(s.work.header.length == 0, ScatterKind.NONE, ScatterKind.DISCARD)

    def _hand_over(self, m, s, due, counted, jobless, left):
        """Job, row, completion and what follows from them go to their takers."""
        # END: the packet's job, if it had none, drops its payload; and there may be
        # something to count; ends by itself.
        with m.State("END"):
            m.d.sync += s.job_pending.eq(0)
            with m.If(s.job_pending):
                m.d.sync += s.kind.eq(self._discard(s))
                m.next = "JOB"
            with m.Else():
                m.d.sync += [due.pending.eq(counted.as_value().any()), jobless.eq(1)]
                m.next = "HAND-OVER"
        # JOB: offers the job; ends when it is taken. The row is then as it makes it.
        with m.State("JOB"):
            m.d.comb += self.job.valid.eq(1)
            with m.If(self.job.valid & self.job.ready):
                m.d.sync += [due.pending.eq(1), jobless.eq(0)]
                with m.If(s.finish):
                    finish(m, s, due, self._recovery)
                    with m.If(~s.early):
                        take_away(m, s, due, self._recovery)
                    with m.If(~is_data(s)):
                        m.d.sync += s.job_pending.eq(0)
                with m.Elif(s.placed):
                    m.d.sync += [
                        s.ack.psn.eq(s.said.next_psn),
                        s.ack.read_begun.eq(1),
                        s.changed.eq(1),
                    ]
                    self._recovery.progress(m, at_hand(s, due))
                m.next = "HAND-OVER"
                with m.If(s.more):
                    m.next = "NEXT"
        # HAND-OVER: writes the row and hands over what is due; ends when all of it is taken.
        with m.State("HAND-OVER"):
            m.d.comb += self.ack_write.enable.eq(s.changed)
            m.d.sync += s.changed.eq(0)
            with m.If(left == 0):
                with m.If(s.job_pending):
                    m.d.sync += s.finish.eq(0)
                    m.next = "END"
                with m.Else():
                    m.d.comb += self.ending.eq(1)
                    m.d.sync += due.work.eq(0)
                    m.next = "IDLE"

    def _next(self, m, s, left, entry_now):
        """A packet that acknowledges several WQEs goes on to the next one."""
        # NEXT: writes the row and hands over what is due; ends when all of it is taken, with the
        # next WQE, which the pop shows. One that the table has foreseen is compared at once.
        with m.State("NEXT"):
            m.d.comb += self.ack_write.enable.eq(s.changed)
            m.d.sync += s.changed.eq(0)
            with m.If((left == 0) & self.head_rsp.valid & ~m.submodules.ahead.asked):
                m.d.sync += [
                    s.oldest.eq(self.head_rsp.payload),
                    s.finish.eq(0),
                    s.placed.eq(0),
                    s.more.eq(0),
                    s.kind.eq(ScatterKind.NONE),
                ]
                m.next = "COMPARE"
                with m.If(self.foreseen.valid):
                    m.d.sync += s.facts.eq(entry_now)
                    m.next = "DECIDE"

    def _look_ahead(self, m, s, due, follows, following):
        """Connects what looks ahead; its look and this one's are never made at the same time.

        following: the next WQE is taken when it comes.
        Returns whether a response of the same QP waits, a cycle late."""
        ahead = m.submodules.ahead
        idle, looks = ~due.work, due.look | s.more  # registers, as the table is told late
        same, going_on = ~s.differs.any(), Signal()
        # Compared as the intake takes it on, for this is known late. In IDLE this is at the QP that
        # the intake was at; what both get in one cycle counts only while they stay at one QP.
        with m.If(self.coming.loads):
            m.d.sync += s.differs.eq(unequal(self.coming.next, s.work.qp))
        with m.Elif(idle):
            m.d.sync += s.differs.eq(0)
        m.d.sync += going_on.eq(same & self.coming.valid & ~self.coming.gone)
        m.d.comb += [
            ahead.may.eq(~due.pop & ~looks & Mux(same, idle & ~follows, 1)),
            ahead.head_rsp.valid.eq(self.head_rsp.valid),
            ahead.head_rsp.payload.eq(self.head_rsp.payload),
            ahead.head_req.ready.eq(self.head_req.ready),
            self.head_rsp.ready.eq(Mux(ahead.asked, ahead.head_rsp.ready, due.look | following)),
            # The intake holds one packet, whether it comes or is offered.
            self.head_req.payload.qp.eq(self.coming.qp),
            self.head_req.payload.stopped.eq(~ahead.head_req.valid & self.i.payload.in_error),
        ]
        with m.If(ahead.head_req.valid):
            m.d.comb += self.head_req.valid.eq(1)
        connect(m, wiring.flipped(self.coming), ahead.coming)
        return going_on

    def _outputs(self, m, s):
        """Ports that show the registers."""
        pending = self.pending.payload
        m.d.comb += [
            self.wake.payload.eq(s.work.qp),
            self.repoke.payload.qp.eq(s.work.qp),
            self.repoke.payload.flags.eq(s.poke),
            self.ack_write.index.eq(s.work.qp),
            self.ack_write.row.eq(s.ack),
            self.pop.payload.eq(s.pop),
            self.restart.payload.eq(s.work.qp),
            self.timer.payload.eq(s.timer),
            self.timer.payload.qp.eq(s.work.qp),
            self.timer.payload.idle.eq(s.facts.idle),
            pending.qp.eq(s.work.qp),
            pending.part.eq(Part.COMPLETER),
            pending.silent.eq(unanswered(self._config, s.work.cfg.type)),
            pending.reads.eq(s.finish & s.oldest.entry.data),
            pending.sink.eq(s.oldest.entry.sink),
        ]
        drive_job(m, s, self.job.payload)
        drive_effects(m, s, pending.effects, send_queue(self._config, s.work.qp))
        done, cfg = pending.effects.completion, s.work.cfg
        name_end(m, self._config, cfg, done, dc_initiator(cfg))
