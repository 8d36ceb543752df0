"""A back end of the QPs' context that answers after a random number of cycles.

Every machine must live with it: it shows whether one counts cycles instead of waiting for
``valid``, or uses rows that are not there. A row that is not valid yet has random bits.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.config import NicConfig
from hdl.context.ram_context import RamContext
from hdl.ports.context import QP_MACHINES, ContextBackEnd, ContextRead
from hdl.ports.numbers import QpNumber

from .stored import StoredContext

__all__ = [
    "CACHED",
    "Late",
    "LateContext",
    "Window",
    "context_of",
    "late_answers",
    "seed",
    "slower",
]

_seed = ContextVar("seed", default=0)
#: From this seed on the back end is the cache, over a store that answers late.
CACHED = 1 << 16


def seed() -> int:
    """Return the seed of the back end that benches are to have now; 0: they have RAM."""
    return _seed.get()


def slower() -> int:
    """Return how many times as long a bench must wait for what takes a few answers."""
    return 8 if seed() else 1


@contextmanager
def late_answers(value: int) -> Iterator[None]:
    """Benches that begin meanwhile have a context that answers late."""
    token = _seed.set(value)
    try:
        yield
    finally:
        _seed.reset(token)


class Late(wiring.Component):
    """Between a machine and its look at the context: passes each request on, some later.

    Parameter ``seed``: of the random numbers, not 0. Members: ``i``: of the machine; ``o``: of what
    stands behind it. A third of the answers come at once, others up to 15 cycles later, a few up to
    255. Reset: no request is waiting; the random numbers go on.
    """

    def __init__(self, machine: str, *, seed: int):
        if not seed & 0xFFFFFFFF:
            raise ValueError(f"Seed must have one of its low 32 bits set, not {seed!r}")
        self._seed = seed & 0xFFFFFFFF
        super().__init__({"i": In(ContextRead(machine)), "o": Out(ContextRead(machine))})

    def elaborate(self, platform):
        m = Module()
        noise = state = Signal(32, init=self._seed, reset_less=True)
        # Marsaglia's generator of 32 bits: three shifts.
        for name, shift in (("first", 13), ("second", -17), ("third", 5)):
            step = Signal(32, name=name)
            m.d.comb += step.eq(noise ^ (noise << shift if shift > 0 else noise >> -shift))
            noise = step
        m.d.sync += state.eq(noise)
        number, waits, left = Signal(QpNumber), Signal(), Signal(8)
        short = Mux(noise[2:4].all(), noise[8:16], noise[8:12])
        wait = Mux(noise[:2] == 0, 0, short)
        m.d.comb += [
            self.o.number.eq(Mux(self.i.enable, self.i.number, number)),
            self.o.enable.eq(Mux(self.i.enable, wait == 0, waits & (left == 0))),
            self.i.valid.eq(~waits & self.o.valid),
        ]
        with m.If(self.i.enable):
            m.d.sync += [number.eq(self.i.number), left.eq(wait - 1), waits.eq(wait != 0)]
        with m.Elif(self.o.enable):
            m.d.sync += waits.eq(0)
        with m.Else():
            m.d.sync += left.eq(left - 1)
        rows, bits = Value.cast(self.o.rows), len(Value.cast(self.o.rows))
        garbage = noise.replicate(-(-bits // 32))[:bits]
        m.d.comb += Value.cast(self.i.rows).eq(rows ^ Mux(self.i.valid, Const(0, bits), garbage))
        return m


class LateContext(wiring.Component):
    """``RamContext``, each machine's answers from which are ``Late``."""

    def __init__(self, *, config: NicConfig, seed: int = 1):
        self._config, self._seed = config, seed
        super().__init__(ContextBackEnd(parity=config.parity).flip())

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = rows = RamContext(config=self._config)
        for number, machine in enumerate(QP_MACHINES):
            late = Late(machine, seed=self._seed + (number << 8))
            m.submodules[machine] = late
            connect(m, flipped(getattr(self, machine)), late.i)
            connect(m, late.o, getattr(rows, machine))
        for name in self.signature.members:
            if name in QP_MACHINES:
                continue
            mine, inner = getattr(self, name), getattr(rows, name)
            if name in ("ready", "bad"):
                m.d.comb += mine.eq(inner)
            elif name == "spoil":
                m.d.comb += inner.eq(mine)
            else:
                connect(m, flipped(mine), inner)
        return m


class Window:
    """One table of a back end, for a bench that programs and writes its rows: ``program``, and
    ``write`` if it has an owner."""

    def __init__(self, context: RamContext | LateContext | StoredContext, name: str):
        self.program = getattr(context, name)
        self.write = getattr(context, f"{name}_write", None)
        self.ready = context.ready


def context_of(config: NicConfig, late: int) -> RamContext | LateContext | StoredContext:
    """Return the context of a bench: RAM, or with a seed ``late`` one that answers late, from
    ``CACHED`` on the cache."""
    if late >= CACHED:
        return StoredContext(config=config, seed=late)
    return LateContext(config=config, seed=late) if late else RamContext(config=config)
