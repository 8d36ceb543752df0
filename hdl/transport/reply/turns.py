"""Whose turn it is to be answered, and what its peer is told next."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.enums import QpType
from hdl.common.count import COUNT, increment
from hdl.common.tables import TableRead, TableWrite
from hdl.config import NicConfig
from hdl.ports.atomics import AtomicResult
from hdl.ports.context import ContextRead
from hdl.ports.jobs import Activation, ReplyFlags
from hdl.ports.numbers import QpNumber
from hdl.ports.operations import is_type
from hdl.ports.rows import QpReply, QpState, ReadResource
from hdl.wire.constants import (
    NAK_REMOTE_ACCESS,
    NAK_REMOTE_OPERATION,
    SYNDROME_ACK_NO_LIMIT,
)

from .checks import Response
from .packets import Progress, Reply

__all__ = ["ReplyTurns"]

#: Flags of a QP that stands in the list again.
READ_DUE = ReplyFlags.const({"read": 1}).as_value()


class _Turn(data.Struct):
    """The turn of a QP: what is kept of its rows, and what is left to do."""

    qp: QpNumber
    flags: ReplyFlags
    row: QpReply
    mask: 8  # of the number of a READ in the QP's part of the pool,
    base: 16  # which begins there
    tail: 8  # one behind the QP's newest READ
    psn: 24  # of the ACK or NAK at the end
    nak: 1  # the end is a NAK
    answers: 1  # there is an ACK or a NAK at the end
    replays: 1  # it begins with a replay
    again: 1  # the READ at the head was answered before: it may be overwritten
    again_next: 1  # ... and the one behind it
    overwritten: 1  # it was
    quiet: 1  # the QP says nothing
    fresh: 1  # nothing has been said in it
    serving: 1  # it is for a refused response
    following: 8  # the READ behind the one at the head
    more: 1  # ... is due
    leaves: 1  # the turn is over with the READ at the head


class ReplyTurns(wiring.Component):
    """Takes QPs from the list and says what each is to be told: READs in order, then NAK or ACK.

    Spec: IBTA vol 1, 9.7.5 (acknowledgements), 9.7.5.1.1 (syndromes). A turn works with the rows as
    they are when the QP is taken. What comes later has an activation of its own. ``row`` is
    speculative: it says that a READ has been answered as soon as ``ReplyPackets`` has its last
    packet at hand, before the check. A refused response (``refused``) rolls it back between two
    turns: the READs the QP still has are dropped, and the peer gets NAK 62h with the PSN of the
    first refused one. ``QpReply.generation`` tells the first from those behind it. Atomics stand
    among the READs. Their ``result`` is read together with ``resource``. While a READ or an atomic
    is ``awaited``, the QP goes back into the list. Without a result (the host did not answer) the
    peer gets NAK 63h. Members: ``active``, ``again``: the list's output, and back into it;
    ``hold``: no QP is taken; ``idle``: nobody's turn, nothing refused; ``o`` stream of Reply,
    ``progress`` of the READ taken last; ``acks``, ``naks`` (``COUNT`` bits, wrap). Latency: 3
    cycles from the list to ``o``. Throughput: a turn in 4 cycles with one READ of one packet, in 3
    with an ACK; a READ of one packet in 2, further packets as ReplyPackets makes them. A refused
    response takes 4. Errors: ``refused``. Reset: idle.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "active": In(stream.Signature(Activation)),
                "again": Out(stream.Signature(Activation)),
                "hold": In(1),
                "idle": Out(1),
                "context": Out(ContextRead("replier")),
                "row_write": Out(TableWrite(QpNumber, QpReply)),
                "resource": Out(TableRead(16, ReadResource)),
                "result": In(AtomicResult),
                "awaited": In(1),
                "refused": In(stream.Signature(Response)),
                "o": Out(stream.Signature(Reply)),
                "progress": In(Progress),
                "acks": Out(COUNT),
                "naks": Out(COUNT),
            }
        )

    def elaborate(self, platform):
        m = Module()
        turn = Signal(_Turn)
        m.d.comb += [
            self.again.payload.qp.eq(turn.qp),
            self.again.payload.flags.eq(turn.flags.as_value() | READ_DUE),
            self.resource.index.eq(turn.base + (turn.row.read_head & turn.mask)),
            self.row_write.index.eq(turn.qp),
            self.row_write.row.eq(turn.row),
        ]
        m.d.comb += self.context.number.eq(
            Mux(self.refused.valid, self.refused.payload.qp, self.active.payload.qp)
        )
        with m.If(self.active.valid & self.active.ready):
            m.d.sync += [
                turn.qp.eq(self.active.payload.qp),
                turn.flags.eq(self.active.payload.flags),
            ]
        with m.FSM(name="turns"):
            self._begin(m, turn)
            self._answer_reads(m, turn)
            self._acknowledge(m, turn)
            self._roll_back(m, turn)
        self._reply(m, turn)
        return m

    @property
    def _may_take(self):
        """The QP at the head of the list may have its turn."""
        return self.active.valid & ~self.refused.valid & ~self.hold

    def _read_rows(self, m: Module, condition) -> None:
        """Read the rows of the QP whose turn is next."""
        m.d.comb += self.context.enable.eq(condition)

    def _next_turn(self, m: Module) -> None:
        """The turn is over: that of the next QP begins at once, if there is one."""
        self._read_rows(m, self._may_take)
        m.d.comb += self.active.ready.eq(self._may_take)
        m.next = "IDLE"
        with m.If(self._may_take):
            m.next = "ROWS"

    def _quiet(self):
        """The QP is in a state in which it says nothing."""
        states = (QpState.RESET, QpState.INIT, QpState.ERR)
        return Cat(self.context.rows.cfg.state == state for state in states).any()

    def _begin(self, m: Module, turn: Signal) -> None:
        """A QP's turn begins: what it has to be told is found out."""
        rows = self.context.rows
        cfg, rx = rows.cfg, rows.rx
        # IDLE: nobody's turn; a refused response ends it, or a QP in the list.
        with m.State("IDLE"):
            m.d.comb += self.idle.eq(~self.refused.valid)
            self._next_turn(m)
            with m.If(self.refused.valid):
                self._read_rows(m, 1)
                m.d.sync += turn.qp.eq(self.refused.payload.qp)
                m.next = "REFUSED"
        # ROWS: keeps what the turn needs of the QP's rows; ends when they are here.
        with m.State("ROWS"):
            nak = turn.flags.nak & (rx.nak_sent | rx.error)
            m.d.sync += [
                turn.row.eq(rows.reply),
                turn.mask.eq(cfg.max_dest_rd_atomic - 1),
                turn.base.eq(cfg.read_base),
                turn.tail.eq(rx.read_tail),
                # A gap that has closed while the NAK waited is no longer worth one.
                turn.nak.eq(nak),
                turn.psn.eq(Mux(nak, rx.psn, rx.ack_psn)),
                turn.answers.eq(turn.flags.nak | turn.flags.ack),
                turn.replays.eq(turn.flags.replay),
                turn.fresh.eq(1),
                turn.serving.eq(0),
            ]
            with m.If(turn.flags.replay):
                m.d.sync += [
                    turn.row.read_head.eq(rx.replay),
                    turn.row.packet.eq(rx.replay_skip),
                    turn.row.replay_seq.eq(rx.replay_seq),
                ]
            m.d.sync += turn.quiet.eq(self._quiet())
            with m.If(self.context.valid):
                m.d.sync += turn.flags.replay.eq(0)
                m.next = "CHOOSE"
        # CHOOSE: reads the READ at the head of the QP's list, as READs go first, and tells at once
        # that a replay has begun; ends by itself.
        with m.State("CHOOSE"):
            again = turn.row.read_head != turn.row.answered
            m.d.comb += [
                self.resource.enable.eq(1),
                self.row_write.enable.eq(turn.replays & ~turn.quiet),
            ]
            m.d.sync += turn.again.eq(again)
            self._go_on(m, turn, again)
            with m.If(turn.quiet):
                m.next = "IDLE"
        # CHECK: a new READ may have taken the resource of one that is answered again (the peer has
        # that answer, or it would not have sent the new one); ends by itself.
        with m.State("CHECK"):
            m.d.sync += turn.overwritten.eq(self.resource.row.number != turn.row.read_head)
            m.next = "CHECKED"
        # CHECKED: offers the READ if it still has its resource; ends by itself.
        with m.State("CHECKED"):
            m.next = "OFFER"
            with m.If(turn.overwritten):
                m.d.sync += [turn.row.read_head.eq(turn.row.read_head + 1), turn.row.packet.eq(0)]
                m.next = "SKIP"
        # SKIP: leaves out the overwritten READ and reads the next one; ends by itself.
        with m.State("SKIP"):
            again = turn.row.read_head != turn.row.answered
            m.d.comb += [self.resource.enable.eq(1), self.row_write.enable.eq(1)]
            m.d.sync += turn.again.eq(again)
            self._go_on(m, turn, again)

    def _go_on(self, m: Module, turn: Signal, again) -> None:
        """The head of the list is known: its READ is next, or what the QP has to be told else."""
        with m.If(turn.row.read_head != turn.tail):
            m.next = "OFFER"
            with m.If(again):
                m.next = "CHECK"
        with m.Elif(turn.answers):
            m.next = "ANSWER"
        with m.Else():
            m.next = "IDLE"

    def _answer_reads(self, m: Module, turn: Signal) -> None:
        """READs are answered, one after the other."""
        progress, following = self.progress, turn.following
        # OFFER: offers the READ at the head; ends when ReplyPackets takes it, or at once if it is
        # awaited: what stands in front of it has not been written, or it has not been executed.
        with m.State("OFFER"):
            after = (turn.row.read_head + 1)[:8]
            m.d.comb += [self.o.valid.eq(~self.awaited), self.o.payload.read.eq(1)]
            m.d.sync += [
                following.eq(after),
                turn.more.eq(after != turn.tail),
                turn.again_next.eq(turn.again & (after != turn.row.answered)),
                turn.leaves.eq((after == turn.tail) & ~turn.answers),
            ]
            with m.If(self.awaited):
                m.next = "YIELD"
            with m.Elif(self.o.ready):
                m.d.sync += turn.fresh.eq(0)
                m.next = "SENDING"
        # SENDING: its packets go out; ends when the last one, or the turn's, is at hand. The
        # responder must know of an answered READ before its peer can send another one for it.
        with m.State("SENDING"):
            # Rows are read before it is known whether the turn ends: they are not used any more.
            # Those written now cannot be read now.
            leaving = turn.leaves & self._may_take & (self.active.payload.qp != turn.qp)
            self._read_rows(m, leaving)
            m.d.comb += [
                self.resource.index.eq(turn.base + (following & turn.mask)),
                self.resource.enable.eq(1),
                self.row_write.enable.eq(progress.ends),
                self.row_write.row.read_head.eq(Mux(progress.last, following, turn.row.read_head)),
                self.row_write.row.packet.eq(Mux(progress.last, 0, progress.sent)),
            ]
            with m.If(progress.last & ~turn.again):
                m.d.comb += self.row_write.row.answered.eq(following)
            with m.If(progress.ends):
                m.d.sync += [
                    turn.row.read_head.eq(following),
                    turn.row.packet.eq(0),
                    turn.again.eq(turn.again_next),
                ]
                with m.If(~turn.again):
                    m.d.sync += turn.row.answered.eq(following)
                with m.If(progress.last & turn.leaves):
                    m.d.comb += self.active.ready.eq(leaving)
                    m.next = "IDLE"
                    with m.If(leaving):
                        m.next = "ROWS"
                with m.Elif(progress.full):
                    m.next = "YIELD"
                with m.Elif(turn.more):
                    m.next = "OFFER"
                    with m.If(turn.again_next):
                        m.next = "CHECK"
                with m.Else():
                    m.next = "ANSWER"
        # YIELD: the quantum is used up, or a request is awaited; ends when the QP is in the list
        # again. It counts between READs too, or many small READs of one QP would hold up everybody.
        with m.State("YIELD"):
            m.d.comb += self.again.valid.eq(1)
            with m.If(self.again.ready):
                m.next = "IDLE"

    def _acknowledge(self, m: Module, turn: Signal) -> None:
        """The turn ends with an ACK or a NAK."""
        # ANSWER: offers it; ends when ReplyPackets takes it.
        with m.State("ANSWER"):
            m.d.comb += self.o.valid.eq(1)
            with m.If(self.o.ready):
                with m.If(turn.nak | turn.serving):
                    increment(m, self.naks)
                with m.Else():
                    increment(m, self.acks)
                m.d.comb += self.refused.ready.eq(turn.serving)
                self._next_turn(m)

    def _roll_back(self, m: Module, turn: Signal) -> None:
        """A turn for a refused response, between those of the list."""
        rows = self.context.rows
        # REFUSED: waits for the rows of its QP; ends with them.
        with m.State("REFUSED"):
            m.d.sync += [
                turn.row.eq(rows.reply),
                turn.tail.eq(rows.rx.read_tail),
                turn.serving.eq(1),
            ]
            old = rows.reply.generation != self.refused.payload.generation
            m.d.sync += turn.quiet.eq(old | self._quiet())
            with m.If(self.context.valid):
                m.next = "JUDGE"
        # JUDGE: a response of an old generation, or of a QP that says nothing any more, is
        # forgotten; ends by itself.
        with m.State("JUDGE"):
            m.next = "ROLL-BACK"
            with m.If(turn.quiet):
                m.d.comb += self.refused.ready.eq(1)
                m.next = "IDLE"
        # ROLL-BACK: drops the QP's READs; ends by itself, and the NAK follows.
        with m.State("ROLL-BACK"):
            m.d.comb += [
                self.row_write.enable.eq(1),
                self.row_write.row.read_head.eq(turn.tail),
                self.row_write.row.answered.eq(turn.tail),
                self.row_write.row.packet.eq(0),
                self.row_write.row.generation.eq(~turn.row.generation),
            ]
            m.next = "ANSWER"

    def _reply(self, m: Module, turn: Signal) -> None:
        """What is offered: a READ, a refused response, a NAK or an ACK of the QP."""
        said, rows, resource = self.o.payload, self.context.rows, self.resource.row
        cfg, rx = rows.cfg, rows.rx
        m.d.comb += [
            said.fresh.eq(turn.fresh),
            said.first.eq(turn.row.packet == 0),
            said.qp.eq(turn.qp),
            said.generation.eq(turn.row.generation),
            said.function.eq(cfg.function),
            said.pd.eq(cfg.pd),
            said.pkey.eq(cfg.pkey),
            said.dest_qp.eq(cfg.dest_qpn),
            said.av.eq(cfg.av),
            said.path_mtu.eq(cfg.path_mtu),
            said.atomic.eq(resource.atomic),
            said.failed.eq(self.result.failed),
            said.va.eq(Mux(resource.atomic, self.result.value, resource.va)),
            said.key.eq(resource.rkey),
            said.length.eq(resource.length),
            said.single.eq(resource.single),
            said.packet.eq(turn.row.packet),
            said.syndrome.eq(SYNDROME_ACK_NO_LIMIT),
            said.psn.eq(turn.psn),
            said.msn.eq(rx.ack_msn),
        ]
        if self._config.xrc:
            m.d.comb += [
                said.xrc.eq(is_type(self._config, cfg.type, QpType.XRC_TGT)),
                said.pd.eq(resource.pd),
            ]
        if self._config.dc:
            m.d.comb += said.dc.eq(is_type(self._config, cfg.type, QpType.DCT))
        with m.If(said.read):
            # A repetition says how many messages are done now, as an ACK would (IBTA, 9.7.7.1).
            msn = Mux(turn.again, rx.msn, resource.msn)
            m.d.comb += [said.psn.eq(resource.psn), said.msn.eq(msn)]
            with m.If(resource.atomic & self.result.failed):
                m.d.comb += said.syndrome.eq(NAK_REMOTE_OPERATION)
        with m.Elif(turn.serving):
            m.d.comb += [
                said.syndrome.eq(NAK_REMOTE_ACCESS),
                said.psn.eq(self.refused.payload.psn),
                said.msn.eq(self.refused.payload.msn),
            ]
        with m.Elif(turn.nak):
            m.d.comb += [said.syndrome.eq(rx.syndrome), said.msn.eq(rx.msn)]
