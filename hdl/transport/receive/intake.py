"""The intake of the receive side: packets and pokes in turn, with the rows of their QP."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.enums import QpType
from hdl.common.count import COUNT, increment
from hdl.common.tables import TableRead, TableWrite
from hdl.config import ACTIVATION_FLAGS, NicConfig
from hdl.ports.activations import FINISH_AND_FLUSH, ReceiveFlags
from hdl.ports.context import ContextRead
from hdl.ports.headers import RxHeader
from hdl.ports.jobs import Activation, Upcoming
from hdl.ports.numbers import QpNumber, card_number, ordinal_of
from hdl.ports.operations import decode_packet, is_type, names_source
from hdl.ports.rows import QpAck, QpRx, QpSent, RxMessage, SourceKind
from hdl.ports.shared import named_srq
from hdl.wire.opcodes import XRC_QUEUE, Kind

from ..recovery.qp_timers import TimerKind, TimerRow
from .completer_ahead import Coming
from .dropper import DropWork
from .intake_check import drop_cause, stopped_sides, supersedes
from .named_source import NamedSource
from .types import CompleterWork, Events, Part, ResponderWork

__all__ = ["Intake"]


class Intake(wiring.Component):
    """Takes one packet or poke, reads the QP's rows, and hands both to the part that works on them.

    A packet's opcode is decoded here, once. A packet that is not for its QP goes to the dropper, a
    request to the responder, a response to the completer. A poke goes to the completer (FINISH),
    then to the responder (FLUSH), as far as its flags ask for it. The responder and the dropper
    work with the rows held here until they are done; meanwhile the next packet's rows are read. The
    completer takes its work over at once and goes on beside the intake, and requests of other QPs
    are worked on meanwhile; one of its own QP waits.
    Spec: IBTA vol 1, 9.6.1 (checks of a packet against its QP), 9.7.5.1.2 (an ACK covers all before
    it).

    Members: ``header``, ``poke`` In. ``context``: the QP's rows. ``responder``, ``completer``,
    ``dropper`` Out: the work; ``ready`` ends it for the first and the last. ``rx_written``,
    ``ack_written``: rows that responder and completer write, which replace those read before.
    ``completer_busy``, ``completer_ending`` (in its last cycle), ``completer_qp``: what it is at;
    ``completer_beside``, ``completer_follows``: see
    ``Completer``. ``coming``: a READ response that is held for it. ``rest``: nothing new is taken.
    ``hold``: nothing is taken before the completer has ended. ``idle``: nothing is held;
    ``settled``: no packet is on its way behind. ``upcoming`` tells of each packet that will ask for
    a receive WQE, when its rows are read: most of the time before the packet in front of it is done
    with. ``merged_acks`` counts ACKs that a later one has replaced while they waited for the
    completer. Latency: 3 cycles from ``header`` to the work. Throughput: a packet in 3 cycles and
    those of its part, 1 less when its rows could be read before. Packets and pokes alternate when
    both wait. A packet of a service without answers that takes a receive WQE waits until the WRITEs
    of that service before it have settled: one that is dropped then leaves behind it no WQE that
    was taken. Errors: none of its own. Reset: idle.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "header": In(stream.Signature(RxHeader)),
                "poke": In(stream.Signature(Activation)),
                "context": Out(ContextRead("receive")),
                "running": Out(TableRead(QpNumber, TimerRow)),
                "responder": Out(stream.Signature(ResponderWork)),
                "completer": Out(stream.Signature(CompleterWork)),
                "dropper": Out(stream.Signature(DropWork)),
                "rx_written": In(TableWrite(QpNumber, QpRx)),
                "ack_written": In(TableWrite(QpNumber, QpAck)),
                "completer_busy": In(1),
                "completer_beside": In(1),
                "completer_ending": In(1),
                "completer_qp": In(QpNumber),
                "completer_follows": In(1),
                "coming": Out(Coming()),
                "rest": In(1),
                "settled": In(1),
                "hold": In(1),
                "upcoming": Out(Upcoming()),
                "idle": Out(1),
                "merged_acks": Out(COUNT),
            }
        )

    def elaborate(self, platform):
        m = Module()
        work = Signal(ResponderWork, reset_less=True)  # the packet or poke at hand, and its rows
        ack, sent = Signal(QpAck, reset_less=True), Signal(QpSent, reset_less=True)
        cause = Signal(Events)  # why the packet is dropped, one bit
        offered = Signal(len(Part))  # to whom it is, a bit for each ``Part``
        # ReceiveFlags: what is left to do of a poke; its timer stands still, and has the turn.
        poke, timers = Signal(ACTIVATION_FLAGS), Signal(2)
        stop = Signal()  # the QP must stop
        turn = Signal()  # pokes are served when idle
        poked = work.flush  # the work is a poke, not a packet
        send_stopped, receive_stopped = stopped_sides(m, self._config, work, ack)
        cause_now = drop_cause(m, self._config, work, receive_stopped)
        arriving = decode_packet(m, self._config, self.header.payload.opcode, name="arriving")
        responds = Signal()  # a packet is held: a READ response or the answer to an atomic
        # The pair index is the low bits of a QPN; what is above them only has to match (VR-3.22).
        pair, index = self._pair(), Signal(QpNumber)
        unsettled, waits = self._unsettled(m, arriving), Signal()
        m.d.comb += index.eq(Mux(turn, self.poke.payload.qp, pair))
        m.d.comb += waits.eq(self.rest | (self.completer_busy & self.hold))
        free = self._free(work, responds)
        # The next packet says all that this QP's one does, which the completer cannot take yet.
        replaces = supersedes(m, self.header, arriving, work, sent) & ~self.header.ready
        replaced = Signal()
        given = Signal()  # responder or dropper has done with the work
        asked = Signal()  # it is not, and the rows of the next packet have been asked for,
        peeked = Signal()  # and are here
        written, missed = Signal(), Signal()  # see ``_load_ahead``
        due = Signal()  # the rows of the packet or poke at hand are not here yet
        m.d.sync += [asked.eq(0), replaced.eq(0)]
        m.d.sync += [written.eq(self.rx_written.enable), missed.eq(self.ack_written.enable)]
        named = self._named(m, work)
        m.d.comb += [
            peeked.eq(asked & self.context.valid),
            given.eq(
                (self.responder.valid & self.responder.ready)
                | (self.dropper.valid & self.dropper.ready)
            ),
        ]
        self._hint(m, peeked & self.header.payload.takes)
        self._offer(m, work, (ack, sent), send_stopped, timers)
        with m.FSM(name="intake") as fsm:
            # IDLE: takes a packet or, in its turn, a poke, and reads its QP's rows; ends with one.
            with m.State("IDLE"):
                m.d.comb += [
                    self.header.ready.eq(~turn & ~waits & ~unsettled),
                    self.poke.ready.eq(turn & ~waits),
                ]
                rests = waits | (~turn & unsettled)
                takes = ~rests & Mux(turn, self.poke.valid, self.header.valid)
                self._read_rows(m, index, takes)
                self._take_packet(m, work, arriving)
                self._load_qp(m, work, index)
                m.d.sync += [poked.eq(turn), poke.eq(self.poke.payload.flags), due.eq(1)]
                with m.If(takes):
                    m.next = "ROWS"
                with m.Elif(~rests):
                    m.d.sync += turn.eq(self.poke.valid)
            self._keep_rows(m, work, (ack, sent), (timers, due, missed), named)
            # CHECK: decides which part works on it, and whether the queue that it names is one of
            # its domain; ends when the completer can take work, or a request may pass beside it.
            # Until then a later ACK may replace the one at hand.
            with m.State("CHECK"):
                m.next = "HAND-OVER"
                self._judge(m, work, named)
                # A later ACK may be for what had not left when the one at hand came.
                self._read_rows(m, work.qp, self.context.valid)
                with m.If(self.context.valid):
                    m.d.sync += sent.eq(self.context.rows.sent)
                good = cause_now.as_value() == 0
                m.d.sync += [replaced.eq(replaces & good), cause.eq(cause_now), stop.eq(0)]
                with m.If(self.completer_busy & ~poked & replaced):
                    m.d.comb += self.header.ready.eq(1)
                    self._take_packet(m, work, arriving)
                    increment(m, self.merged_acks)
                with m.If(~free):
                    m.next = "CHECK"
                with m.Elif(~poked):
                    drops, answers = cause_now.as_value() != 0, work.operation.response
                    m.d.sync += offered.eq(Cat(drops, ~drops & ~answers, ~drops & answers))
                with m.Else():
                    failed = work.rx.error
                    self._choose_half(m, offered, poke, timers, stop, (failed, receive_stopped))
            # HAND-OVER: offers the work; ends when the completer has taken it, or when responder or
            # dropper have done with it. Then the next packet is taken at once if its rows are here.
            with m.State("HAND-OVER"):
                with m.If(~poked & self.responder.valid):
                    self._read_rows(m, pair, self.header.valid & (peeked | ~asked))
                    m.d.sync += asked.eq(self.header.valid)
                    self._look_ahead(m, work, arriving, named, asked, pair)
                with m.If(given | (self.completer.valid & self.completer.ready)):
                    m.d.sync += [turn.eq(~poked & self.poke.valid), responds.eq(0), offered.eq(0)]
                    m.next = "IDLE"
                    with m.If(poked & (poke != 0)):
                        m.next = "CHECK"  # the poke has a second half
                with m.If(given & stop):
                    m.d.sync += work.rx.error.eq(1)
                rest = self.rest | unsettled
                with m.If(given & peeked & ~self.poke.valid & ~rest & ~self.hold):
                    m.d.comb += self.header.ready.eq(1)
                    self._load_ahead(m, work, (ack, sent), pair, (written, missed))
                    self._take_packet(m, work, arriving)
                    self._go_on(m, self._use_ahead(m, work, arriving, named))
            # NOTHING: there was nothing to do for a poke; ends by itself.
            with m.State("NOTHING"):
                m.d.sync += turn.eq(0)
                m.next = "IDLE"
        self._replace(m, work, ack, ~fsm.ongoing("IDLE"))
        with m.If(self.header.ready):
            m.d.sync += responds.eq(self.header.valid & arriving.response & arriving.data)
        m.d.comb += self.idle.eq(fsm.ongoing("IDLE"))
        self._come(m, work, responds & (~due | self.context.valid), given)
        m.d.comb += [self.dropper.payload.stop.eq(stop), self.dropper.payload.cause.eq(cause)]
        parts = (self.dropper, self.responder, self.completer)
        m.d.comb += [to.valid.eq(bit) for to, bit in zip(parts, offered, strict=True)]
        return m

    def _keep_rows(self, m, work, rows, state, source):
        """The rows that were read. One that is written in the cycle in which it is read comes as it
        was before, and is read again: the word of a write is too late to wait for with the packet.
        Rows that are written later replace what has been read."""
        timers, due, missed = state
        # ROWS: keeps the rows; ends when they are here, and none was written as they were read.
        with m.State("ROWS"):
            valid = self.context.valid
            with m.If(valid):
                self._load_rows(m, work, *rows)
                m.d.sync += due.eq(0)
                if source is not None:
                    m.d.comb += [source.load.eq(1), source.uses.eq(0)]
            m.d.sync += timers[0].eq(self.running.row.kind == TimerKind.OFF)
            # Its timer is read again with each cycle that they take.
            self._read_rows(m, work.qp, valid & missed)
            with m.If(~valid):
                m.d.comb += self.running.enable.eq(1)
            with m.If(valid & ~missed):
                named = names_source(self._config, work.operation)
                m.d.comb += self.upcoming.valid.eq(work.operation.receive & ~work.flush & ~named)
                rows = self.context.rows
                holds = (rows.rx_ahead.message == RxMessage.SEND) & is_type(
                    self._config, rows.cfg.type, QpType.XRC_TGT
                )
                m.d.sync += work.srq.eq(rows.rx_ahead.srq)
                self._go_on(m, Mux(work.flush, holds, named))
        if source is not None:
            self._find_source(m, work, source)

    def _replace(self, m, work, ack, busy):
        """The completer writes a row of the QP at hand: it replaces what was read."""
        written = self.ack_written
        with m.If(written.enable & (written.index == work.qp) & busy):
            m.d.sync += ack.eq(written.row)

    def _go_on(self, m, named):
        """The rows are here: the work is judged by them, or with those of what it names."""
        m.next = "CHECK"
        if self._config.xrc:
            with m.If(named):
                m.next = "SOURCE"

    def _named(self, m, work):
        """What looks up the receive queue that a packet names, or whose request a message holds;
        None on a card without XRC. It is asked for that of the work at hand, if for no other."""
        if not self._config.xrc:
            return None
        m.submodules.named = named = NamedSource(config=self._config)
        m.d.comb += [
            named.number.eq(Mux(work.flush, work.srq, named_srq(work.header))),
            named.function.eq(work.cfg.function),
            named.row.eq(self.context.rows.cfg),
            named.valid.eq(self.context.valid),
            named.domain.eq(work.cfg.pd),
        ]
        return named

    def _find_source(self, m, work, named):
        """The receive queue gives the work what a QP with one receive queue has in its own row."""
        # SOURCE: asks for the row of that queue; one cycle.
        with m.State("SOURCE"):
            self._read_rows(m, named.index, 1)
            m.next = "NAMED"
        # NAMED: keeps what the row says; ends when it is here.
        with m.State("NAMED"):
            m.d.comb += named.keep.eq(self.context.valid)
            with m.If(self.context.valid):
                m.next = "JUDGE"
        # JUDGE: puts it into the work, and says that the queue will be asked; one cycle.
        with m.State("JUDGE"):
            m.d.comb += [named.load.eq(1), named.uses.eq(1)]
            m.d.sync += named.give(work)
            live = ~named.queue.differs.any()
            self._announce(m, named.queue.index, work.operation.receive & ~work.flush & live)
            m.next = "CHECK"

    def _judge(self, m, work, named):
        """Whether the queue that the work names is one of its QP's domain. The responder looks at
        its work in the cycle before it begins, which this is."""
        if named is not None:
            m.d.sync += work.lost.eq(named.lost)
            m.d.comb += self.responder.payload.lost.eq(named.lost)

    def _announce(self, m, index, asks):
        """Tell that a receive WQE of the shared queue in pair ``index`` will be asked for."""
        m.d.comb += [
            self.upcoming.source.kind.eq(SourceKind.SHARED),
            self.upcoming.source.number.eq(index),
            self.upcoming.valid.eq(asks),
        ]

    def _look_ahead(self, m, work, arriving, named, asked, pair):
        """Reads the row of the queue that the next packet names before that of its QP, if the
        packet at hand takes long enough: one that takes a receive WQE. What is found is forgotten
        when that has been done with, like the rows of the QP."""
        if named is None:
            return
        header = self.header.payload
        names = self.header.valid & names_source(self._config, arriving)
        m.d.comb += [
            named.holds.eq(1),
            named.number.eq(named_srq(header)),
            named.function.eq(header.function),  # the QP's, or the packet is dropped
            named.seek.eq(names & work.operation.receive & ~named.sought & ~named.here),
        ]
        with m.If(named.seek):
            self._read_rows(m, named.index, 1)
            m.d.sync += asked.eq(0)
        with m.Elif(named.sought):
            self._read_rows(m, pair, named.found)
            m.d.sync += asked.eq(named.found)
        with m.If(named.found):
            live = self.context.rows.cfg.type == XRC_QUEUE
            self._announce(m, named.index, arriving.receive & live)

    def _use_ahead(self, m, work, arriving, named):
        """The next packet is taken, with the rows that have been read ahead. Whether the queue that
        it names is still to be looked up."""
        if named is None:
            return names_source(self._config, arriving)
        m.d.comb += [
            named.load.eq(1),
            named.uses.eq(named.here),
            named.domain.eq(self.context.rows.cfg.pd),
        ]
        with m.If(named.here):
            m.d.sync += named.give(work)
        return names_source(self._config, arriving) & ~named.here

    def _unsettled(self, m, arriving):
        """The packet that arrives may take a receive WQE, and a WRITE that may still be dropped is
        on its way."""
        written = Signal()
        silent = arriving.served & ~arriving.acknowledged
        writes = self.header.valid & silent & (arriving.kind == Kind.WRITE)
        # ``ready`` settles late: as one function, without an enable in front of it.
        m.d.sync += written.eq((self.header.ready & writes) | (written & ~self.settled))
        return self.header.valid & self.header.payload.silent & written

    def _free(self, work, data):
        """The work at hand can go on: the completer can take it, or will in the next cycle, as
        another QP's or the next response of the READ that it is at; or it is a request of another
        QP, and the completer has no payload to place before that of the request."""
        other = self.completer_qp != work.qp
        passes = ~work.flush & ~work.operation.response & self.completer_beside & other
        ends = self.completer_ending & (other | (data & self.completer_follows))
        return ~self.completer_busy | ends | passes

    def _pair(self):
        """The pair index that the packet which arrives asks for."""
        config, header = self._config, self.header.payload
        return card_number(config, "qps", ordinal_of(config, header.function), header.dest_qp)

    def _choose_half(self, m, offered, poke, timers, stop, stopped):
        """Which part sees to a poke, and what is left of it; nobody if it asks for nothing.

        A QP stops once. Each completion that is lost says that it must, and those behind the first
        one, as many as WQEs that are flushed, would keep packets from being taken.
        """
        failed, receive_stopped = stopped
        with m.If(((poke & ReceiveFlags.FAIL.value) != 0) & ~failed):
            m.d.sync += [offered.eq(1 << Part.FRONT.value), stop.eq(1)]
            m.d.sync += poke.eq((poke | FINISH_AND_FLUSH) & ~ReceiveFlags.FAIL.value)
        with m.Elif((poke & ReceiveFlags.FINISH.value) != 0):
            m.d.sync += [offered.eq(1 << Part.COMPLETER.value), timers[1].eq(0)]
            m.d.sync += poke.eq(poke & ~ReceiveFlags.FINISH.value)
        with m.Elif(((poke & ReceiveFlags.TIMEOUT.value) != 0) & timers[0]):
            m.d.sync += [offered.eq(1 << Part.COMPLETER.value), timers[1].eq(1)]
            m.d.sync += poke.eq(poke & ReceiveFlags.FLUSH.value)
        with m.Elif(((poke & ReceiveFlags.FLUSH.value) != 0) & receive_stopped):
            m.d.sync += [offered.eq(1 << Part.RESPONDER.value), poke.eq(0)]
        with m.Else():
            m.next = "NOTHING"

    def _hint(self, m, peeks):
        """Tell whose receive WQE will be asked for, once its rows have been read ahead."""
        hinted = Signal()
        m.d.sync += hinted.eq(peeks)
        m.d.comb += [
            self.upcoming.source.eq(self.context.rows.cfg.source),
            self.upcoming.valid.eq(peeks & ~hinted),
        ]

    def _read_rows(self, m, index, enable):
        m.d.comb += [
            self.context.number.eq(index),
            self.context.enable.eq(enable),
            self.running.index.eq(index),
            self.running.enable.eq(enable),
        ]

    def _load_qp(self, m, work, qp):
        m.d.sync += work.qp.eq(qp)
        m.d.comb += [self.coming.loads.eq(1), self.coming.next.eq(qp)]

    def _load_rows(self, m, work, ack, sent):
        rows = self.context.rows
        m.d.sync += [
            work.cfg.eq(rows.cfg),
            work.rx.eq(rows.rx_ahead),
            work.reply.eq(rows.reply),
            ack.eq(rows.ack),
            sent.eq(rows.sent),
        ]

    def _load_ahead(self, m, work, rows, pair, late):
        """The rows of the QP ``pair`` that have been read ahead, but for those that are being
        written, or were in the cycle before: ``late``, the responder's and the completer's."""
        (ack, sent), (written, missed) = rows, late
        self._load_rows(m, work, ack, sent)
        self._load_qp(m, work, pair)
        with m.If((self.rx_written.enable | written) & (pair == work.qp)):
            m.d.sync += work.rx.eq(self.rx_written.row)
        acked = self.ack_written
        with m.If((acked.enable | missed) & (acked.index == pair)):
            m.d.sync += ack.eq(acked.row)

    def _take_packet(self, m, work, operation):
        m.d.sync += [work.header.eq(self.header.payload), work.operation.eq(operation)]

    def _offer(self, m, work, rows, send_stopped, timers):
        """The work at hand in the form of each part."""
        completer, dropper = self.completer.payload, self.dropper.payload
        ack, sent = rows
        m.d.comb += [
            self.responder.payload.eq(work),
            completer.finish.eq(work.flush),
            completer.timeout.eq(work.flush & timers[1]),
            completer.in_error.eq(send_stopped),
            completer.ack.eq(ack),
            completer.sent.eq(sent),
            dropper.length.eq(work.header.length),
            dropper.rx.eq(work.rx),
            dropper.qp.eq(work.qp),
        ]
        for name in ("qp", "header", "operation", "cfg"):
            m.d.comb += completer[name].eq(work[name])

    def _come(self, m, work, held, given):
        """Tell the completer of a READ response that is ``held`` for it, with its rows."""
        m.d.comb += [
            self.coming.valid.eq(held),
            self.coming.gone.eq(given | (self.completer.valid & self.completer.ready)),
            self.coming.qp.eq(work.qp),
        ]
