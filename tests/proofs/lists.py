"""Lists and allocators: no number is given twice, none is lost, every wait is bounded."""

from __future__ import annotations

from amaranth.asserts import AnyConst
from amaranth.hdl import Assert, Assume, Fragment, Module, Signal

from hdl.common.activation import ActivationList
from hdl.common.drain import Drain
from hdl.common.free_list import FreeList
from hdl.common.quiesce import Quiesce
from hdl.queues.wqe.lines import FreeLines
from tests.force import Force, stuck

from .harness import Proof, any_signal, offer, take

__all__ = ["PROOFS"]

LINES = 4
QPS = 4


def _constant(m: Module, below: int, name: str) -> Signal:
    """Return any number below ``below``, the same in all cycles."""
    number = Signal(range(below), name=name)
    m.d.comb += [number.eq(AnyConst(len(number))), Assume(number < below)]
    return number


def _lines(m: Module) -> None:
    m.submodules.dut = dut = FreeLines(lines=LINES)
    returned, given = offer(m, dut.i), take(m, dut.o)
    out = Signal(LINES)  # the lines that are with the user
    with m.If(given):
        m.d.sync += out.bit_select(dut.o.payload, 1).eq(1)
    with m.If(returned):
        m.d.sync += out.bit_select(dut.i.payload, 1).eq(0)
    m.d.comb += [
        Assume(~dut.i.valid | out.bit_select(dut.i.payload, 1)),
        Assert(~dut.o.valid | ~out.bit_select(dut.o.payload, 1)),
        Assert(dut.i.ready | (out == 0)),
    ]


def _lines_come(m: Module) -> None:
    dut = FreeLines(lines=LINES)
    # As it is built: its contract is about which lines come back, and here they are only counted.
    m.submodules.dut = Fragment.get(dut, "verilog")
    returned, given = offer(m, dut.i), take(m, dut.o)
    out, idle = Signal(range(LINES + 1)), Signal(2)
    m.d.sync += out.eq(out + given - returned)
    with m.If((out != LINES) & ~dut.o.valid):
        m.d.sync += idle.eq(idle + 1)
    with m.Else():
        m.d.sync += idle.eq(0)
    m.d.comb += [Assume(~dut.i.valid | (out != 0)), Assert(idle < 2)]


def _entries(m: Module) -> None:
    """A user takes entries and gives them back, in any order, as the list allows."""
    m.submodules.dut = dut = FreeList(entries=LINES)
    out, wait = Signal(LINES), Signal(range(FreeList.LATENCY))  # with the user; cycles to wait
    gave = Signal(LINES)  # given back in the cycle before
    take_now, give_now = any_signal(m, 1, "take"), any_signal(m, 1, "give")
    given = any_signal(m, len(dut.given), "given")
    m.d.comb += [
        dut.take.eq(take_now & dut.ready & (wait == 0) & dut.room),
        dut.give.eq(give_now & dut.ready & out.bit_select(given, 1)),
        dut.given.eq(given),
        Assert(~dut.take | ~out.bit_select(dut.number, 1)),
        Assert(~dut.ready | (dut.room == ~(out | gave).all())),
    ]
    with m.If(dut.take):
        m.d.sync += wait.eq(FreeList.LATENCY - 1)
    with m.Elif(wait != 0):
        m.d.sync += wait.eq(wait - 1)
    m.d.sync += gave.eq(0)
    with m.If(dut.take):
        m.d.sync += out.bit_select(dut.number, 1).eq(1)
    with m.If(dut.give):
        m.d.sync += [out.bit_select(given, 1).eq(0), gave.bit_select(given, 1).eq(1)]


def _activation(m: Module) -> None:
    """The output shows exactly the flags that were set for a QP, whichever, and not shown yet."""
    m.submodules.dut = dut = ActivationList(qps=QPS, sets=2)
    watched = _constant(m, QPS, "watched")
    owed, added, open_ = Signal(4), Signal(4), Signal()
    for n, port in enumerate((dut.set0, dut.set1)):
        m.d.comb += Assume(port.p.qp < QPS)
        with m.If(offer(m, port, f"set{n}") & (port.p.qp == watched)):
            m.d.comb += added.eq(port.p.flags)
    taken = take(m, dut.o)
    m.d.sync += [open_.eq(dut.o.valid & ~taken), owed.eq(owed | added)]
    with m.If(dut.o.valid & ~open_ & (dut.o.p.qp == watched)):  # shown for the first time
        m.d.sync += owed.eq(added)
        m.d.comb += Assert(dut.o.p.flags == owed)
    m.d.comb += [Assert(dut.level <= QPS), Assert(~dut.o.valid | (dut.o.p.flags != 0))]


def _drain(m: Module) -> None:
    m.submodules.dut = dut = Drain()
    start, enter = any_signal(m, 1, "start"), any_signal(m, 1, "enter")
    leaves = [any_signal(m, 1, f"leave{n}") for n in range(2)]
    epochs = [any_signal(m, 1, f"epoch{n}") for n in range(2)]
    m.d.comb += [dut.start.eq(start), dut.enter.eq(enter)]
    for n in range(2):
        m.d.comb += [
            getattr(dut, f"leave{n}").eq(leaves[n]),
            getattr(dut, f"epoch{n}").eq(epochs[n]),
        ]
    jobs = [Signal(3, name=f"jobs{n}") for n in range(2)]
    for n, count in enumerate(jobs):
        left = [one & (epoch == n) for one, epoch in zip(leaves, epochs, strict=True)]
        came = enter & (dut.epoch == n)
        m.d.sync += count.eq(count + came - left[0] - left[1])
        m.d.comb += [Assume(left[0] + left[1] <= count), Assume(~came | (count < 5))]
    # While it is not done, somebody of the older epoch may be inside; when it says done, nobody is.
    older = Signal(3)
    with m.If(dut.epoch):
        m.d.comb += older.eq(jobs[0])
    with m.Else():
        m.d.comb += older.eq(jobs[1])
    waited = Signal(3)
    m.d.sync += waited.eq(0)
    with m.If(~dut.done & (older == 0)):
        m.d.sync += waited.eq(waited + 1)
    m.d.comb += [Assert(~dut.done | (older == 0)), Assert(waited < 5)]


def _quiesce(m: Module) -> None:
    m.submodules.dut = dut = Quiesce(fronts=2, parts=2)
    start, turned = any_signal(m, 1, "start"), any_signal(m, 2, "turned")
    finished = any_signal(m, 2, "finished")
    held, busy, since, begun = Signal(), Signal(2), Signal(2), Signal()
    m.d.comb += [
        dut.start.eq(start),
        dut.turned.eq(turned),
        dut.part_done.eq(~busy),
        Assume(~held | start),
    ]
    m.d.sync += held.eq(start & ~dut.done)
    m.d.sync += busy.eq(busy & ~finished)
    with m.If(dut.part_start):
        m.d.sync += [busy.eq(0b11), begun.eq(1)]
    with m.If(dut.done):
        m.d.sync += [begun.eq(0), since.eq(0)]
    with m.Elif(start):
        m.d.sync += since.eq(since | turned)
    m.d.comb += [
        Assert(~dut.part_start | (since == 0b11)),
        Assert(~dut.done | (begun & (busy == 0))),
    ]


PROOFS = (
    Proof(
        "free-lines",
        "No line is given while it is out, and every line that comes back is taken.",
        _lines,
        Force("hdl.queues.wqe.lines:FreeLines", "returned.o.payload", stuck(0)),
    ),
    Proof(
        "free-lines-come",
        "A line that is free is offered within two cycles: none is lost.",
        _lines_come,
        Force("hdl.queues.wqe.lines:FreeLines", "returned.i.valid", stuck(0)),
        depth=24,
    ),
    Proof(
        "free-entries",
        "No entry of a pool is given twice, and there is one as long as not all are out.",
        _entries,
        Force("hdl.common.free_list:FreeList", "given", stuck(0)),
    ),
    Proof(
        "activation",
        "A QP is shown with exactly the flags that were set for it since; the queue never"
        " overflows.",
        _activation,
        Force("hdl.common.activation:ActivationList", "chosen.flags", stuck(15)),
        depth=20,
    ),
    Proof(
        "drain",
        "A drain is done only when all that was admitted before it has left, and soon after.",
        _drain,
        Force("hdl.common.drain:Drain", "opening", stuck(0)),
    ),
    Proof(
        "quiesce",
        "The parts start after every front has turned, and it is done when every part has ended.",
        _quiesce,
        Force("hdl.common.quiesce:Quiesce", "left", stuck(0)),
    ),
)
