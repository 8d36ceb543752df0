"""Small gateware for the tests of sim.build."""

from amaranth.hdl import ClockDomain, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class Echo(wiring.Component):
    """A register slice of ``width`` bits; ``count`` transfers so far."""

    def __init__(self, *, width: int) -> None:
        if width < 1:
            raise ValueError(f"Width must be at least 1 bit, not {width!r}")
        words = stream.Signature(width)
        super().__init__({"i": In(words), "o": Out(words), "count": Out(16)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.i.ready.eq(~self.o.valid | self.o.ready)
        with m.If(self.i.ready):
            m.d.sync += [self.o.valid.eq(self.i.valid), self.o.payload.eq(self.i.payload)]
            m.d.sync += self.count.eq(self.count + self.i.valid)
        return m


class Undriven(wiring.Component):
    """Declares a clock domain and does not drive it: Amaranth says nothing."""

    o: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.domains.lost = ClockDomain()
        m.d.lost += self.o.eq(~self.o)
        return m


class Hidden(wiring.Component):
    """Counts inside; ``o`` is the highest bit of ``inner``."""

    o: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        inner = Signal(8)
        m.d.sync += inner.eq(inner + 3)
        m.d.comb += self.o.eq(inner[-1])
        return m
