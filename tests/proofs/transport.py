"""The send side: how many WQEs may be asked for ahead."""

from __future__ import annotations

from amaranth.asserts import AnyConst
from amaranth.hdl import Assert, Module, Mux, Signal, Value

from hdl.config import NicConfig
from hdl.ports.rows import QpFetch
from hdl.transport.fetch_turn import FetchTurn
from tests.force import Force, plus

from .harness import Proof

__all__ = ["PROOFS"]

CONFIG = NicConfig(
    width=64, qps=4, cqs=4, mrs=16, gids=2, send_lines=4, outstanding=4, max_rd_atomic=4
)


def _window(m: Module) -> None:
    """A turn with any rows, doorbell and wake. It is over after four cycles, and never comes again:
    so a look at six says all."""
    m.submodules.dut = dut = FetchTurn(config=CONFIG)
    row = Signal(QpFetch)
    m.d.comb += row.eq(AnyConst(len(row.as_value())))
    for port in (dut.cfg, dut.ack, dut.tx, dut.sent, dut.high, dut.flags, dut.notified):
        value = Value.cast(port)
        m.d.comb += value.eq(AnyConst(len(value)))
    m.d.comb += [dut.fetch.eq(row), dut.row.eq(row), dut.may_fetch.eq(AnyConst(1))]
    cycle, over = Signal(3), Signal()
    m.d.sync += cycle.eq(Mux(cycle == 5, 5, cycle + 1))
    m.d.comb += [
        dut.take.eq(cycle == 1),
        dut.weigh.eq(cycle == 2),
        dut.decide.eq(cycle == 3),
        over.eq(cycle == 4),
    ]
    limit, under_way, left = Signal(8), Signal(16), Signal(16)
    m.d.comb += [
        limit.eq(Mux((1 << row.ahead) < CONFIG.send_lines, 1 << row.ahead, CONFIG.send_lines)),
        under_way.eq(row.asked - row.position),
        left.eq(dut.known - row.asked),
        Assert(~over | (dut.count == 0) | (under_way + dut.count <= limit)),
        Assert(~over | (dut.count == 0) | ((dut.count <= left) & (left <= CONFIG.queue_size))),
        Assert(~over | (dut.asked_row.asked == (row.asked + dut.count)[:16])),
    ]


PROOFS = (
    Proof(
        "fetch-window",
        "No turn asks for more WQEs than may be under way, nor for one that is not known.",
        _window,
        Force("hdl.transport.fetch_turn:FetchTurn", "room", plus(1)),
        depth=6,
    ),
)
