"""Crossings between clocks: what holds whatever the two clocks are, and however bits arrive.

Both clocks are one clock here, and each side moves only in cycles in which it is let: any order of
edges can happen, several of one side between two of the other, and both at once. A synchroniser's
first register takes, bit by bit, the value that is there or the one of the step before: bits of a
bus that are late by less than a source cycle, as the constraints allow, and metastable bits that
settle either way.
"""

from __future__ import annotations

from typing import Any

from amaranth.asserts import AnySeq
from amaranth.hdl import (
    Assert,
    Assume,
    Cat,
    DomainRenamer,
    EnableInserter,
    Fragment,
    Module,
    Mux,
    ResetSignal,
    Signal,
    Value,
)

from hdl.common.crossing import AsyncStreamFifo, PulseCrossing
from tests.force import Force, stuck

from .harness import Proof, any_signal, sequence

__all__ = ["PROOFS"]

DEPTH = 4  # beats; pointers and memory are like those of any other depth
NUMBER = 3  # bits of a beat's number: more beats than the FIFO holds


class _Metastable:
    """A platform whose synchronisers resolve each bit to its old or its new value."""

    def get_ff_sync(self, ff: Any) -> Module:
        m = Module()
        before = Signal(len(ff.i), init=ff._init)
        m.d.step += before.eq(ff.i)
        late = Signal(len(ff.i))
        m.d.comb += late.eq(AnySeq(len(ff.i)))
        stages = [Signal(len(ff.i), init=ff._init, name=f"stage{n}") for n in range(ff._stages)]
        first = Cat(Mux(late[n], before[n], ff.i[n]) for n in range(len(ff.i)))
        for i, o in zip((first, *stages), stages):
            m.d[ff._o_domain] += o.eq(i)
        m.d.comb += ff.o.eq(stages[-1])
        return m

    def get_async_ff_sync(self, ff: Any) -> Module:
        """Nothing is reset in these proofs."""
        m = Module()
        m.d.comb += ff.o.eq(0)
        return m


def _two_clocks(m: Module, dut) -> tuple[Value, Value]:
    """Put ``dut``, of the domains a and b, into a module; returns which of them have an edge."""
    edges = any_signal(m, 1, "edge_a"), any_signal(m, 1, "edge_b")
    parts = Fragment.get(dut, _Metastable())
    parts = EnableInserter({"a": edges[0], "b": edges[1]})(parts)
    m.submodules.dut = DomainRenamer({"a": "sync", "b": "sync", "step": "sync"})(parts)
    m.d.comb += Assume(~ResetSignal("sync"))
    return edges


def _fifo(m: Module) -> None:
    dut = AsyncStreamFifo(shape=NUMBER, depth=DEPTH, i_domain="a", o_domain="b")
    edge_a, edge_b = _two_clocks(m, dut)
    m.d.comb += [
        dut.i.valid.eq(any_signal(m, 1, "i_valid")),
        dut.o.ready.eq(any_signal(m, 1, "o_ready")),
    ]
    entered = sequence(m, edge_a & dut.i.valid & dut.i.ready, NUMBER, "entered")
    left = sequence(m, edge_b & dut.o.valid & dut.o.ready, NUMBER, "left")
    m.d.comb += [dut.i.payload.eq(entered), Assert((entered - left)[:NUMBER] <= DEPTH)]
    with m.If(dut.o.valid):
        m.d.comb += [Assert(entered != left), Assert(dut.o.payload == left)]


def _pulse(m: Module) -> None:
    """Pulses with two edges of the other clock between them: each comes out once."""
    dut = PulseCrossing(i_domain="a", o_domain="b")
    edge_a, edge_b = _two_clocks(m, dut)
    i = any_signal(m, 1, "i")
    given, got, since = Signal(3), Signal(3), Signal(3, init=4)
    m.d.comb += [dut.i.eq(i), Assume(~(i & edge_a) | (since >= 4))]
    with m.If(i & edge_a):
        m.d.sync += [given.eq(given + 1), since.eq(0)]
    with m.Elif(edge_b & (since < 4)):
        m.d.sync += since.eq(since + 1)
    with m.If(edge_b & dut.o):
        m.d.sync += got.eq(got + 1)
    m.d.comb += Assert((given - got)[:3] <= 1)
    with m.If(since >= 4):
        m.d.comb += Assert(given == got)


PROOFS = (
    Proof(
        "async-fifo",
        "A FIFO between two clocks never holds more than its depth, loses no beat, repeats none "
        "and keeps their order, whatever the clocks and however late the bits of its pointers are.",
        _fifo,
        Force("hdl.common.crossing:AsyncStreamFifo", "i.ready", stuck(1)),
    ),
    Proof(
        "pulse-crossing",
        "A pulse with four edges of the other clock behind it comes out there once.",
        _pulse,
        Force("hdl.common.crossing:PulseCrossing", "pulse.o", stuck(0)),
    ),
)
