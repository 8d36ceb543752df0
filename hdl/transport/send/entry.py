"""The outstanding entry of the WQE that the requester begins."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.contract import require, taken_at_once
from hdl.common.skid import Register
from hdl.config import NicConfig
from hdl.ports.jobs import SendFetched
from hdl.ports.numbers import QpNumber
from hdl.ports.operations import is_copy, unanswered
from hdl.ports.rows import QpCfg, QpTx
from hdl.ports.shared import ex

from ..outstanding.types import Append

__all__ = ["RequestEntry"]


class RequestEntry(wiring.Component):
    """Appends a WQE's entry to the outstanding table, while its first packet goes its way.

    Spec: IBTA vol 1, 10.8.3 (order of completions).
    The entry is speculative until the first packet is answered: ``RequestChecks`` takes that answer
    only when the entry is in the table. A WQE of one packet is complete from the start, because
    nobody but its QP's list knows its entry; unless nothing will answer it, as that it has been
    sent is then all that is waited for. A WQE that cannot be sent is appended with its ``status``,
    and one that needs no packet when it has been executed, so that both are completed in order,
    behind those before them.

    Members: ``start`` appends the entry of ``wqe`` at the place of ``row.entry``, which is taken
    from the other inputs a cycle later; ``free``: it may be given; ``unsent``, with it: no packet
    of the WQE will be sent; ``single``: it has one packet; ``psns``: PSNs but one that it takes.
    ``busy``: the entry is not in the table yet. ``entered``: it has been started, and nothing has
    been ``handed`` over since; ``begun``: pulse, it is in the table and packets will follow.

    Latency: 2 cycles to ``append``. Throughput: one at a time. Errors: none. Reset: idle.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "start": In(1),
                "free": Out(1),
                "unsent": In(1),
                "qp": In(QpNumber),
                "wqe": In(SendFetched),
                "cfg": In(QpCfg),
                "row": In(QpTx),
                "status": In(8),
                "single": In(1),
                "psns": In(24),
                "append": Out(stream.Signature(Append)),
                "busy": Out(1),
                "handed": In(1),
                "entered": Out(1),
                "begun": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        # In a register: the table is asked by many, and takes what is first late in the cycle.
        m.submodules.slice = port = Register(shape=Append)
        wiring.connect(m, port.o, wiring.flipped(self.append))
        wqe, operation, entry = self.wqe, self.wqe.wqe.operation, port.i.payload.entry
        unsent = Signal()  # the WQE never gets a packet
        span = Signal(24, reset_less=True)  # its PSNs but one; -1 when it has none
        counts = Signal()  # packets follow
        done = Signal()  # a cycle late: the table takes it late
        m.d.sync += done.eq(self.append.valid & self.append.ready)
        m.d.comb += [
            port.i.payload.qp.eq(self.qp),
            port.i.payload.number.eq(self.row.entry),
            # The gather and the scatter end a MEMCPY, not an answer.
            port.i.payload.unsent.eq(unsent | is_copy(self._config, operation.completion)),
            entry.position.eq(wqe.position),
            entry.head.eq(wqe.head),
            entry.wr_id.eq(wqe.wqe.wr_id),
            entry.completion.eq(operation.completion),
            entry.data.eq(operation.data & ~unsent),  # unsent: no READ on its way
            entry.num_sge.eq(wqe.wqe.num_sge),
            entry.sink.eq(self.row.sink),
            entry.invalidate.eq(operation.invalidate & operation.data),
            entry.key.eq(ex(wqe.wqe).invalidate_rkey),
            entry.signaled.eq(wqe.wqe.signaled | self.cfg.signal_all),
            entry.length.eq(wqe.wqe.length),
            entry.first_psn.eq(self.row.psn),
            # Without packets of its own the range is empty.
            entry.last_psn.eq(self.row.psn + span),
            entry.complete.eq(unsent | (self.single & ~unanswered(self._config, self.cfg.type))),
            entry.status.eq(self.status),
            entry.function.eq(self.cfg.function),
            self.free.eq(~self.busy | done),
            self.begun.eq(done & counts),
        ]
        m.d.sync += [
            port.i.valid.eq(self.start),
            unsent.eq(self.unsent),
            span.eq(Mux(self.unsent, -1, self.psns)),
        ]
        with m.If(done):
            m.d.sync += self.busy.eq(0)
        with m.If(self.handed):
            m.d.sync += self.entered.eq(0)
        with m.If(self.start):
            m.d.sync += [self.busy.eq(1), counts.eq(~self.unsent)]
            m.d.sync += self.entered.eq(~self.unsent)
        require(m, platform, self.free | ~self.start, "one entry at a time is made")
        taken_at_once(m, platform, port.i, "each entry goes to the table")
        return m
