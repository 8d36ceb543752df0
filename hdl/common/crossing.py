"""From one clock to another: streams, levels, pulses and resets.

Amaranth's own parts (``amaranth.lib.cdc``, ``amaranth.lib.fifo``) do the work. What is added here:
each component says which of its paths run from one clock to the other (``paths``), so that timing
constraints follow from the design itself (``hdl/common/constraints.py``).

Clock domains are named by the user of a component, and keep these names: ``DomainRenamer`` around a
component would make its ``paths`` name the wrong clocks.
"""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Shape, Signal, Value
from amaranth.lib import cdc, stream, wiring
from amaranth.lib.fifo import AsyncFIFO
from amaranth.lib.wiring import In, Out

from .constraints import ClockPath, PathKind
from .count import raised

__all__ = ["AsyncStreamFifo", "CountCrossing", "LevelCrossing", "PulseCrossing", "ResetSequencer"]

#: Fewest beats with which a FIFO takes a beat a cycle when both clocks are alike: a pointer needs
#: two cycles of synchronisation and two registers on its way, and so does the other one back.
FULL_RATE_DEPTH = 16


class AsyncStreamFifo(wiring.Component):
    """Takes a stream from one clock to another through a FIFO with Gray-coded pointers.

    Design: Cummings, "Simulation and Synthesis Techniques for Asynchronous FIFO Design" (SNUG
    2002), style 2, as ``amaranth.lib.fifo.AsyncFIFO`` has it.
    Parameters: ``shape`` of a beat; ``depth`` in beats, a power of two: look-up table RAM or,
    when it is deep, block RAM, whose output is a register; ``i_domain``, ``o_domain``.
    Members: ``i`` in ``i_domain``, ``o`` in ``o_domain``; ``level`` Out, in ``i_domain``: beats in
    the FIFO, or more than there are, as reads show late; writes show two cycles late.
    Latency: two to three cycles of ``o_domain`` after the edge that takes a beat. Throughput: one
    beat per cycle of the slower clock, of a FIFO of 16 beats or more. ``i.ready`` and
    ``o.valid`` depend on registers only.
    Errors: none; a full FIFO is not ready.
    Reset: that of ``i_domain`` empties the FIFO; it must last at least 4 cycles of each clock
    (``ResetSequencer`` sees to it) and resets the pointers of the other side too. A reset of
    ``o_domain`` alone leaves the beats in the FIFO.
    """

    def __init__(self, *, shape, depth: int = FULL_RATE_DEPTH, i_domain: str, o_domain: str):
        if depth < 4 or depth & (depth - 1):
            raise ValueError(f"Depth must be a power of two, at least 4 beats, not {depth!r}")
        if i_domain == o_domain:
            raise ValueError(f"Domains must differ, not {i_domain!r} twice")
        self._shape, self._depth = shape, depth
        self._i_domain, self._o_domain = i_domain, o_domain
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(shape)),
                "level": Out(range(depth + 1)),
            },
        )

    @property
    def paths(self) -> tuple[ClockPath, ...]:
        """Paths between the clocks; registers by their places below this component."""
        there, back = (self._i_domain, self._o_domain), (self._o_domain, self._i_domain)
        return (
            ClockPath(PathKind.BUS, "fifo.produce_w_gry", "fifo.produce_cdc.stage0", *there),
            ClockPath(PathKind.BUS, "fifo.consume_r_gry", "fifo.consume_cdc.stage0", *back),
            ClockPath(PathKind.MEMORY, "fifo.storage", "fifo.storage", *there),
            ClockPath(PathKind.RESET, "", "fifo.rst_cdc.stage", *there),
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = fifo = AsyncFIFO(
            width=Shape.cast(self._shape).width,
            depth=self._depth,
            w_domain=self._i_domain,
            r_domain=self._o_domain,
            exact_depth=True,
        )
        m.d.comb += [
            fifo.w_data.eq(self.i.payload),
            fifo.w_en.eq(self.i.valid),
            self.i.ready.eq(fifo.w_rdy),
            Value.cast(self.o.payload).eq(fifo.r_data),
            self.o.valid.eq(fifo.r_rdy),
            fifo.r_en.eq(self.o.ready),
            self.level.eq(fifo.w_level),
        ]
        return m


class LevelCrossing(wiring.Component):
    """Takes bits that change seldom, and independently of one another, to another clock.

    Parameters: ``width`` in bits; ``i_domain``, ``o_domain``; ``init``: before the first edges.
    Members: ``i`` in ``i_domain``, ``o`` in ``o_domain``. A value that stays for less than two
    cycles of ``o_domain`` may be missed, and bits that change together may arrive in two cycles.
    Latency: two to three cycles of ``o_domain`` after the edge of ``i_domain`` that sees it.
    Reset: ``i_domain``'s brings ``init``.
    """

    def __init__(self, *, width: int = 1, i_domain: str, o_domain: str, init: int = 0):
        self._i_domain, self._o_domain, self._init = i_domain, o_domain, init
        super().__init__({"i": In(width), "o": Out(width, init=init)})

    @property
    def paths(self) -> tuple[ClockPath, ...]:
        """Paths between the clocks; registers by their places below this component."""
        domains = (self._i_domain, self._o_domain)
        return (ClockPath(PathKind.BITS, "launch", "synchroniser.stage0", *domains),)

    def elaborate(self, platform):
        m = Module()
        # Logic in front of a synchroniser could show it values that nobody meant.
        launch = Signal(len(self.i), init=self._init)
        m.d[self._i_domain] += launch.eq(self.i)
        m.submodules.synchroniser = cdc.FFSynchronizer(
            launch, self.o, o_domain=self._o_domain, init=self._init
        )
        return m


class PulseCrossing(wiring.Component):
    """Makes one pulse of each pulse, a cycle long, in another clock.

    Parameters: ``i_domain``, ``o_domain``. Members: ``i`` in ``i_domain``, ``o`` in ``o_domain``.
    Pulses need two cycles of ``o_domain`` between them, or one may be lost.
    Latency: two to three cycles of ``o_domain`` after the edge of ``i_domain`` that sees it.
    Reset: of both domains at a time (``ResetSequencer``); of one alone it may make a pulse.
    """

    def __init__(self, *, i_domain: str, o_domain: str):
        self._i_domain, self._o_domain = i_domain, o_domain
        super().__init__({"i": In(1), "o": Out(1)})

    @property
    def paths(self) -> tuple[ClockPath, ...]:
        """Paths between the clocks; registers by their places below this component."""
        domains = (self._i_domain, self._o_domain)
        return (ClockPath(PathKind.BITS, "pulse.i_toggle", "pulse.ff_sync.stage0", *domains),)

    def elaborate(self, platform):
        m = Module()
        m.submodules.pulse = pulse = cdc.PulseSynchronizer(self._i_domain, self._o_domain)
        m.d.comb += [pulse.i.eq(self.i), self.o.eq(pulse.o)]
        return m


class CountCrossing(wiring.Component):
    """Counts cycles of one clock in which something is so, and shows the count in another.

    Parameters: ``width`` in bits; ``i_domain``, ``o_domain``. Members: ``i`` in ``i_domain``: it is
    counted in each cycle in which it is 1; ``o`` in ``o_domain``: the count, which wraps.
    The count passes as a Gray code, so each value that is seen is one that has been.
    Latency: three to four cycles of ``o_domain`` after two of ``i_domain``.
    Reset: of both domains at a time (``ResetSequencer``).
    """

    def __init__(self, *, width: int, i_domain: str, o_domain: str):
        self._i_domain, self._o_domain = i_domain, o_domain
        super().__init__({"i": In(1), "o": Out(width)})

    @property
    def paths(self) -> tuple[ClockPath, ...]:
        """Paths between the clocks; registers by their places below this component."""
        domains = (self._i_domain, self._o_domain)
        return (ClockPath(PathKind.BUS, "gray", "synchroniser.stage0", *domains),)

    def elaborate(self, platform):
        m = Module()
        width = len(self.o)
        count = Signal(width)
        gray = Signal(width)  # constraints tell the register by this name
        seen = Signal(width)
        m.d[self._i_domain] += gray.eq(count ^ count[1:])
        with m.If(self.i):
            m.d[self._i_domain] += count.eq(raised(count, Const(1)))
        m.submodules.synchroniser = cdc.FFSynchronizer(gray, seen, o_domain=self._o_domain)
        m.d[self._o_domain] += self.o.eq(Cat(seen[bit:].xor() for bit in range(width)))
        return m


class ResetSequencer(wiring.Component):
    """Resets clock domains together and lets them run one after the other.

    Parameters: ``domains`` in the order in which they run again; ``hold`` in cycles.
    Members: ``request`` In, of any clock or none (a button, a PLL that is not locked);
    ``<domain>_rst`` Out for each domain: set at once, without its clock, and taken back by an edge
    of its own clock.
    Each reset lasts at least ``hold`` cycles of every one of the clocks. A domain runs ``hold`` of
    its own cycles after the domain before it, or later.
    Latency: see above. Reset: none but ``request``; all resets are set when the device starts.
    """

    def __init__(self, *, domains: Sequence[str], hold: int = 8):
        if not domains or len(set(domains)) != len(domains):
            raise ValueError(f"Domains must be different names, at least one, not {domains!r}")
        if hold < 4:
            raise ValueError(f"Hold must be at least 4 cycles, not {hold!r}")
        self._domains, self._hold = tuple(domains), hold
        super().__init__({"request": In(1)} | {f"{name}_rst": Out(1) for name in domains})

    @property
    def paths(self) -> tuple[ClockPath, ...]:
        """Paths between the clocks; registers by their places below this component."""
        return tuple(
            ClockPath(PathKind.RESET, "", f"{phase}_{name}.stage", "", name)
            for name in self._domains
            for phase in ("runs", "release")
        )

    def elaborate(self, platform):
        m = Module()
        # First every clock must have run; only then the first domain may.
        waits = Signal(len(self._domains), init=-1)
        before = Signal()
        m.d.comb += before.eq(waits.any())
        for n, name in enumerate(self._domains):
            own = getattr(self, f"{name}_rst")
            m.submodules[f"runs_{name}"] = cdc.AsyncFFSynchronizer(
                self.request, waits[n], o_domain=name, stages=self._hold
            )
            m.submodules[f"release_{name}"] = cdc.AsyncFFSynchronizer(
                before, own, o_domain=name, stages=self._hold
            )
            before = own
        return m
