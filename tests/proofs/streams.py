"""Streams: FIFOs, register slices, forks and arbiters lose nothing and repeat nothing.

Beats carry their number. What comes out must carry the numbers in turn, so that a beat that is
lost, repeated or overtaken is seen. The components do not look at a payload.
"""

from __future__ import annotations

from amaranth.hdl import Array, Assert, Assume, Module, Signal
from amaranth.lib import data

from hdl.axi.order import Fence
from hdl.common.arbiter import StreamArbiter
from hdl.common.fifo import StreamFifo
from hdl.common.fork import StreamFork
from hdl.common.skid import Register, Skid, Stage
from tests.force import Force, like, stuck

from .harness import Proof, any_signal, offer, sequence, take

__all__ = ["PROOFS"]

NUMBER = 4  # bits of a beat's number: more beats than any of the components holds
INPUTS = 3


def _in_order(m: Module, dut) -> tuple[Signal, Signal]:
    """Number the beats that go in and assert the numbers that come out; returns both counts."""
    m.submodules.dut = dut
    entered = sequence(m, offer(m, dut.i), NUMBER, "entered")
    left = sequence(m, take(m, dut.o), NUMBER, "left")
    m.d.comb += Assume(dut.i.payload == entered)
    with m.If(dut.o.valid):
        m.d.comb += Assert(dut.o.payload == left)
    return entered, left


def _slice(part):
    return lambda m: _in_order(m, part(shape=NUMBER)) and None


def _fifo(m: Module) -> None:
    dut = StreamFifo(shape=NUMBER, depth=4)
    entered, left = _in_order(m, dut)
    m.d.comb += Assert(dut.level == (entered - left)[:NUMBER])


def _fifo_moves(m: Module) -> None:
    """A FIFO that holds something offers it within two cycles."""
    m.submodules.dut = dut = StreamFifo(shape=NUMBER, depth=4)
    offer(m, dut.i)
    take(m, dut.o)
    waited = Signal(3)
    with m.If((dut.level != 0) & ~dut.o.valid):
        m.d.sync += waited.eq(waited + 1)
    with m.Else():
        m.d.sync += waited.eq(0)
    m.d.comb += [Assert(waited < 2), Assert(dut.i.ready | (dut.level == 4))]


def _bypass(m: Module) -> None:
    few = 3  # bits of a number: a small FIFO, whose ends are watched too
    shape = data.StructLayout({"number": few, "end": 1})
    m.submodules.dut = dut = StreamFifo(shape=shape, depth=2, bypass="end")
    entered = sequence(m, offer(m, dut.i), few, "entered")
    ready, wants = any_signal(m, 1, "ready"), Signal()
    left = sequence(m, dut.o.valid & dut.o.ready, few, "left")
    m.d.comb += [
        dut.o.ready.eq(ready),
        Assume(dut.i.p.number == entered),
        # Its user stays ready until it has taken a beat with the field set.
        Assume(~wants | ready),
    ]
    m.d.sync += wants.eq(dut.o.ready & ~(dut.o.valid & dut.o.p.end))
    ends = Array(Signal(name=f"end{n}") for n in range(1 << few))
    with m.If(dut.i.valid & dut.i.ready):
        m.d.sync += ends[entered].eq(dut.i.p.end)
    with m.If(dut.o.valid):
        m.d.comb += Assert(dut.o.p.number == left)
    passed = (dut.level == 0) & (entered == left)
    with m.If(dut.o.valid & ~passed):
        m.d.comb += Assert(dut.o.p.end == ends[left])


def _fork(m: Module) -> None:
    m.submodules.dut = dut = StreamFork(shape=NUMBER, outputs=2)
    taken = offer(m, dut.i)
    entered = sequence(m, taken, NUMBER, "entered")
    m.d.comb += [Assume(dut.i.payload == entered), Assert(dut.done == taken)]
    for n in range(2):
        port = getattr(dut, f"o{n}")
        left = sequence(m, take(m, port, f"o{n}"), NUMBER, f"left{n}")
        ahead = (left - entered)[:NUMBER]
        m.d.comb += Assert(ahead <= 1)
        with m.If(port.valid):
            m.d.comb += Assert(port.payload == left)


def _arbiter(m: Module) -> None:
    shape = data.StructLayout({"source": 2, "number": NUMBER})
    m.submodules.dut = dut = StreamArbiter(shape=shape, inputs=INPUTS)
    left = take(m, dut.o)
    for n in range(INPUTS):
        port = getattr(dut, f"i{n}")
        entered = sequence(m, offer(m, port, f"i{n}"), NUMBER, f"entered{n}")
        here = left & (dut.o.p.source == n)
        number = sequence(m, here, NUMBER, f"left{n}")
        m.d.comb += [Assume(port.p.source == n), Assume(port.p.number == entered)]
        with m.If(dut.o.valid & (dut.o.p.source == n)):
            m.d.comb += Assert(dut.o.p.number == number)
    with m.If(dut.o.valid):
        m.d.comb += Assert(dut.o.p.source < INPUTS)


def _arbiter_waits(m: Module) -> None:
    m.submodules.dut = dut = StreamArbiter(shape=1, inputs=INPUTS)
    take(m, dut.o)
    ports = [getattr(dut, f"i{n}") for n in range(INPUTS)]
    taken = [offer(m, port, f"i{n}") for n, port in enumerate(ports)]
    for n, port in enumerate(ports):
        others = sum((one for k, one in enumerate(taken) if k != n), start=0)
        passed = Signal(3, name=f"passed{n}")
        with m.If(port.valid & ~port.ready):
            m.d.sync += passed.eq(passed + others)
        with m.Else():
            m.d.sync += passed.eq(0)
        m.d.comb += Assert(passed < INPUTS)
    m.d.comb += Assert(sum(taken, start=0) <= 1)


def _fence(m: Module) -> None:
    """Any one beat is watched: the bursts that were in flight when it entered are counted down."""
    bursts = 2
    dut = Fence(shape=NUMBER, depth=2, bursts=bursts)
    entered, left = _in_order(m, dut)
    taken, done = any_signal(m, 1, "taken"), any_signal(m, 1, "done")
    in_flight = Signal(range(bursts + 1))
    m.d.comb += [
        dut.taken.eq(taken),
        dut.done.eq(done),
        Assume(~taken | (in_flight != bursts)),
        Assume(~done | (in_flight != 0)),
    ]
    m.d.sync += in_flight.eq(in_flight + taken - done)
    watched, number, before = Signal(), Signal(NUMBER), Signal.like(in_flight)
    gone = dut.o.valid & dut.o.ready & (left == number)
    begins = dut.i.valid & dut.i.ready & any_signal(m, 1, "watch")
    with m.If(watched):
        with m.If(done & (before != 0)):
            m.d.sync += before.eq(before - 1)
        with m.If(gone):
            m.d.sync += watched.eq(0)
    with m.Elif(begins):
        m.d.sync += [watched.eq(1), number.eq(entered), before.eq(in_flight - done)]
    with m.If(watched & dut.o.valid & (left == number)):
        m.d.comb += Assert(before == 0)


PROOFS = (
    Proof(
        "fence",
        "No beat leaves a fence before the write bursts that were in flight when it entered.",
        _fence,
        Force("hdl.axi.order:Fence", "limit", like("come")),
        depth=12,
    ),
    Proof(
        "skid",
        "A skid buffer loses no beat, repeats none and keeps their order.",
        _slice(Skid),
        Force("hdl.common.skid:Skid", "spare_valid", stuck(0)),
    ),
    Proof(
        "register",
        "A register slice loses no beat, repeats none and keeps their order.",
        _slice(Register),
        Force("hdl.common.skid:Register", "i.ready", stuck(1)),
    ),
    Proof(
        "stage",
        "A pipeline stage loses no beat, repeats none and keeps their order.",
        _slice(Stage),
        Force("hdl.common.skid:Stage", "i.ready", stuck(1)),
    ),
    Proof(
        "fifo",
        "A FIFO loses no beat, repeats none, keeps their order, and its level counts them.",
        _fifo,
        Force("hdl.common.fifo:StreamFifo", "i.ready", stuck(1)),
    ),
    Proof(
        "fifo-moves",
        "A FIFO that holds something offers it within two cycles, and is ready unless full.",
        _fifo_moves,
        Force("hdl.common.fifo:StreamFifo", "fetch", stuck(0)),
    ),
    Proof(
        "fifo-bypass",
        "Beats that pass a FIFO without a cycle keep their order with those that wait in it.",
        _bypass,
        Force("hdl.common.fifo:StreamFifo", "asked", stuck(1)),
    ),
    Proof(
        "fork",
        "A fork gives each beat to each taker once, and is done when all have it.",
        _fork,
        Force("hdl.common.fork:StreamFork", "taken", stuck(0)),
    ),
    Proof(
        "arbiter",
        "An arbiter of three streams loses no beat, repeats none and keeps each stream's order.",
        _arbiter,
        Force("hdl.common.arbiter:StreamArbiter", "i1.ready", stuck(1)),
    ),
    Proof(
        "arbiter-wait",
        "A stream at an arbiter waits while at most one beat of each other stream passes.",
        _arbiter_waits,
        Force("hdl.common.arbiter:StreamArbiter", "last", stuck(0)),
    ),
)
