"""Line numbers that are free."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.fifo import StreamFifo

__all__ = ["FreeLines"]


class FreeLines(wiring.Component):
    """Gives each of ``lines`` numbers once, then those that come back.

    Latency: 2 cycles from ``i`` (always ready: it holds all numbers) to ``o``. Throughput: a
    number per cycle. Reset: all are free. A number returned twice is the caller's error.
    """

    def __init__(self, *, lines: int):
        if lines < 2 or lines & (lines - 1):
            raise ValueError(f"Lines must be a power of two, at least 2, not {lines!r}")
        self._lines, bits = lines, ceil_log2(lines)
        super().__init__({"i": In(stream.Signature(bits)), "o": Out(stream.Signature(bits))})

    def elaborate(self, platform):
        m = Module()
        bits = ceil_log2(self._lines)
        m.submodules.returned = returned = StreamFifo(shape=bits, depth=self._lines)
        given = Signal(range(self._lines + 1))
        unused = given != self._lines
        m.d.comb += [
            returned.i.valid.eq(self.i.valid),
            returned.i.payload.eq(self.i.payload),
            self.i.ready.eq(returned.i.ready),
            returned.o.ready.eq(self.o.ready & ~unused),
        ]
        with m.If(unused):
            m.d.comb += [self.o.valid.eq(1), self.o.payload.eq(given)]
            with m.If(self.o.ready):
                m.d.sync += given.eq(given + 1)
        with m.Else():
            m.d.comb += [
                self.o.valid.eq(returned.o.valid),
                self.o.payload.eq(returned.o.payload),
            ]
        return m
