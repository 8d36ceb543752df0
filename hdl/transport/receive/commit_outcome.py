"""What a record of the receive side becomes: what it says, or what its check makes of it."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.enums import WcFlags, WcOpcode, WcStatus
from hdl.config import NicConfig
from hdl.ports.jobs import Effects
from hdl.ports.rows import QpRx, RxMessage

from .failed_qps import FailedQp
from .types import Events, Part, Pending, Syndrome, pieces_bit

__all__ = ["CommitOutcome", "Fate"]


class Fate(data.Struct):
    """What decides on a record; none of ``undo`` and ``fails``: it is committed."""

    undo: 1  # its QP has failed before
    fails: 1  # its own check is not good
    status: 8  # of its check
    key: 1  # which is that of the key to invalidate
    drops: 1  # with ``fails``: a bad request without an answer: it is dropped, its QP goes on
    failed: FailedQp  # with ``undo``: its QP
    covered: 1  # its ACK is left out, as a later answer covers it
    ack_pending: 1  # an ACK of its QP was left out


class CommitOutcome(wiring.Component):
    """The row, effects and events of a ``record``, as it says or as its ``fate`` wants them.

    Members: ``committed``: the QP's committed row, which is there a cycle before the outcome is
    used; ``writes``: ``row`` becomes the QP's.
    Latency: none, but for what is told of ``committed``. Spec: see ``Commit``.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "record": In(Pending),
                "fate": In(Fate),
                "committed": In(QpRx),
                "effects": Out(Effects),
                "row": Out(QpRx),
                "events": Out(Events),
                "writes": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        record, fate = self.record, self.fate
        responder = record.part == Part.RESPONDER
        # The QP holds a WQE as committed, of a message or of one that was dropped: registers, as a
        # RAM's output is late. And the record would have been the end of the former.
        ended, holds, held = Signal(), Signal(), Signal()
        m.d.sync += [
            holds.eq(self.committed.message == RxMessage.SEND),
            held.eq(self.committed.held),
        ]
        m.d.comb += [
            ended.eq(fate.undo & holds & responder & record.effects.complete & ~self._pieces),
            self.effects.eq(record.effects),
            self.row.eq(record.row),
            self.events.eq(record.events),
            self.writes.eq(Mux(fate.undo, ended, record.commit)),
        ]
        with m.If(fate.covered):
            m.d.comb += [self.effects.reply.eq(0), self.effects.flags.eq(0)]
        with m.If(fate.undo | fate.fails):
            self._discard(m, ended)
        with m.If(responder & (fate.fails | ended)):
            m.d.comb += [self.row.eq(self.committed), self.row.message.eq(RxMessage.NONE)]
        with m.If(responder & fate.drops):
            self._drop(m, holds | held)
        with m.Elif(responder & fate.fails):
            self._refuse(m, held)
        if self._config.mp_wr:
            self._waste(m)
        return m

    @property
    def _pieces(self):
        """Whether the record is of a request that takes several packets."""
        return pieces_bit(self.record) if self._config.mp_wr else Const(0)

    def _waste(self, m):
        """What a packet that is undone, or dropped, has taken of such a request stays unused, as
        others may lie behind it. A request that ends with it goes back without it."""
        record, fate, events = self.record, self.fate, self.events
        effects, done = self.effects, self.effects.completion
        bad = fate.fails & record.send  # the request itself, which completes
        with m.If((record.part == Part.RESPONDER) & pieces_bit(record) & (fate.undo | fate.fails)):
            m.d.comb += [
                effects.complete.eq(record.taken | bad),
                done.vendor_error.eq(0),
                done.flags.eq(Mux(record.taken, WcFlags.MP_WR_CONSUMED, 0)),
            ]
            with m.If(~bad):
                m.d.comb += [
                    done.status.eq(WcStatus.SUCCESS),
                    done.opcode.eq(WcOpcode.RECV_NOP),
                    done.imm.eq(0),
                    done.solicited.eq(0),
                    events.resp_cqe_error.eq(0),
                    events.resp_cqe_flush_error.eq(0),
                ]
            with m.If(fate.drops):
                m.d.comb += self.row.held.eq(0)

    def _discard(self, m, ended):
        """Nothing of the record becomes true; a WQE that it would have ended ends in error, and so
        does one that it took: no source takes it back."""
        record, fate, events = self.record, self.fate, self.events
        effects, done = self.effects, self.effects.completion
        status = Signal(8, name="end_status")
        pending = Mux(fate.failed.unreported, fate.failed.status, WcStatus.WR_FLUSH_ERR)
        sends = (record.part == Part.COMPLETER) & record.effects.complete
        m.d.comb += [
            status.eq(Mux(fate.fails, fate.status, pending)),
            effects.discard.eq(1),
            effects.reply.eq(0),
            effects.flags.eq(0),
            done.emit.eq(1),
            done.status.eq(status),
            done.byte_len.eq(0),
            done.flags.eq(0),
            done.solicited.eq(1),
            events.eq(0),
            events.req_cqe_error.eq(sends),
            events.req_cqe_flush_error.eq(sends & (status == WcStatus.WR_FLUSH_ERR)),
            events.qp_state.eq(fate.undo & record.packet & ~record.silent),
            events.out_of_sequence.eq(fate.undo & record.packet & record.silent),
        ]
        with m.If(record.part == Part.RESPONDER):
            flushed = ~(fate.fails & record.send)
            m.d.comb += [
                effects.complete.eq(record.taken | ended | (fate.fails & record.send)),
                done.status.eq(Mux(flushed, WcStatus.WR_FLUSH_ERR, fate.status)),
                events.resp_cqe_error.eq(effects.complete),
                events.resp_cqe_flush_error.eq(effects.complete & flushed),
            ]
        with m.Elif(fate.fails & fate.ack_pending):
            # The request that was to be acknowledged for others, too, will be rolled back.
            m.d.comb += [
                effects.reply.eq(1),
                effects.flags.ack.eq(1),
                effects.qp.eq(record.qp),
            ]

    def _refuse(self, m, held):
        """A request whose check is not good: a NAK, and the QP stops where it was committed."""
        record, fate, row, events = self.record, self.fate, self.row, self.events
        effects, buffer = self.effects, record.send & ~fate.key  # its check was not good
        m.d.comb += [
            effects.reply.eq(~record.silent),
            effects.flags.nak.eq(~record.silent),
            row.error.eq(1),
            row.held.eq(held & ~record.send),  # its receive WQE has ended
            row.syndrome.eq(Mux(buffer, Syndrome.REMOTE_OPERATIONAL, Syndrome.REMOTE_ACCESS)),
            events.resp_remote_access_errors.eq(~buffer),
            events.resp_remote_operational_errors.eq(buffer),
            events.resp_local_length_error.eq(buffer & (fate.status == WcStatus.LOC_LEN_ERR)),
        ]

    def _drop(self, m, holds):
        """A request that its key does not allow, and that nobody answers: its message goes no
        further. What its QP holds stays with it, and so does what it has taken."""
        record, row, events = self.record, self.row, self.events
        m.d.comb += [
            self.effects.complete.eq(0),
            row.held.eq(record.taken | holds),
            events.resp_cqe_error.eq(0),
            events.resp_cqe_flush_error.eq(0),
            events.resp_remote_access_errors.eq(1),
        ]
        with m.If(record.taken):
            m.d.comb += row.head.eq(record.row.head)
