"""The walk of a layout: no entry of another layout gives a range, and each range brings the walk
nearer to its end."""

from __future__ import annotations

from amaranth.hdl import Assert, Assume, Module, Signal

from hdl.config import NicConfig
from hdl.memory.layout import LayoutWalk
from hdl.ports.keys import GENERATION, layout_of
from tests.force import Force, stuck

from .harness import Proof, any_signal, offer, take

__all__ = ["PROOFS"]

#: One indirect key of two entries.
CONFIG = NicConfig(width=64, mkeys=True, mrs=2, max_sge=2)
#: Bits of the bytes of an entry and of a request: few, so that a walk is short.
BYTES = 2


def _walk(m: Module) -> LayoutWalk:
    """A walk whose entries are set at any time. Where bytes lie is not looked at."""
    m.submodules.dut = dut = LayoutWalk(config=CONFIG)
    write, entry = dut.layout, dut.layout.entry
    m.d.comb += [
        write.valid.eq(any_signal(m, 1, "sets")),
        write.place.eq(any_signal(m, 1, "place")),
        entry.count.eq(any_signal(m, BYTES, "count")),
        entry.generation.eq(any_signal(m, GENERATION, "generation")),
        entry.key.eq(entry.generation),
    ]
    return dut


def generations(m: Module) -> None:
    """The key of each entry is its generation, so a range tells whose entry it is."""
    dut = _walk(m)
    taken, row = offer(m, dut.i), Signal(GENERATION)
    take(m, dut.o)
    with m.If(taken):
        m.d.sync += row.eq(layout_of(dut.i.p.row).generation)
    given = dut.o.valid & ~dut.o.p.refused
    m.d.comb += Assert(~given | (dut.o.p.key == row))


def ends(m: Module) -> None:
    """Each range has at least a byte of what is left, and the last one has all of it."""
    dut = _walk(m)
    taken, gone = offer(m, dut.i), take(m, dut.o)
    found, left, walks = dut.o.p, Signal(BYTES), Signal()
    m.d.comb += [
        Assume(dut.i.p.request.length != 0),
        Assume(dut.i.p.request.length < 1 << BYTES),
    ]
    with m.If(taken):
        m.d.sync += [left.eq(dut.i.p.request.length), walks.eq(1)]
    with m.If(gone):
        m.d.sync += left.eq(left - found.length)
        with m.If(found.last):
            m.d.sync += walks.eq(0)
    m.d.comb += [
        Assert(~dut.o.valid | (walks & (found.length != 0) & (found.length <= left))),
        Assert(~dut.o.valid | found.refused | (found.last == (found.length == left))),
        Assert(dut.i.ready == ~walks),
    ]


PROOFS = (
    Proof(
        "layout-generation",
        "A range comes from an entry of the layout that the key's row names, whatever is set.",
        generations,
        Force("hdl.memory.layout:LayoutReader", "stale", stuck(0)),
        sweep=True,
    ),
    Proof(
        "layout-ends",
        "Each range of a walk has a byte of what is left, and the last one all of it.",
        ends,
        Force("hdl.memory.layout:LayoutWalk", "left", stuck(3)),
        sweep=True,
    ),
)
