"""Small gateware for the tests of sim.rtl.build."""

from amaranth.hdl import ClockDomain, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.fifo import StreamFifo


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


class Server(wiring.Component):
    """Takes words from a queue; each waits for ``grant`` before it leaves by ``o``."""

    def __init__(self, *, depth: int = 8) -> None:
        self._depth = depth
        words = stream.Signature(8)
        super().__init__({"i": In(words), "o": Out(words), "grant": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.queue = queue = StreamFifo(shape=8, depth=self._depth)
        wiring.connect(m, wiring.flipped(self.i), queue.i)
        m.d.comb += self.o.payload.eq(queue.o.payload)
        with m.FSM(name="serve"):
            with m.State("IDLE"):
                with m.If(queue.o.valid):
                    m.next = "AWAIT_GRANT"
            with m.State("AWAIT_GRANT"):
                with m.If(self.grant):
                    m.next = "SEND"
            with m.State("SEND"):
                m.d.comb += [self.o.valid.eq(1), queue.o.ready.eq(self.o.ready)]
                with m.If(self.o.ready):
                    m.next = "IDLE"
        return m


class Servers(wiring.Component):
    """Two servers, one behind the other; ``back`` tells that the second one has something."""

    def __init__(self, *, depth: int = 8) -> None:
        self._depth = depth
        words = stream.Signature(8)
        super().__init__({"i": In(words), "o": Out(words), "grant": In(2), "back": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.front = front = Server(depth=self._depth)
        m.submodules.back = back = Server(depth=self._depth)
        wiring.connect(m, wiring.flipped(self.i), front.i)
        wiring.connect(m, front.o, back.i)
        wiring.connect(m, back.o, wiring.flipped(self.o))
        m.d.comb += [front.grant.eq(self.grant[0]), back.grant.eq(self.grant[1])]
        m.d.comb += self.back.eq(self.o.valid)
        return m
