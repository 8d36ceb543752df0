"""A FIFO for whole frames."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.fifo import StreamFifo
from hdl.ports.packet import packet_beat, packet_stream

__all__ = ["FrameFifo"]


class FrameFifo(wiring.Component):
    """A FIFO that a frame leaves when all of it is there, so that it leaves without a gap.

    Parameters: ``width`` in bits; ``depth`` in beats, a power of two.
    Latency: 2 cycles behind the last beat. Throughput: one beat per cycle.
    Errors: a frame of more than ``depth`` beats leaves when the FIFO is full, and may have gaps.
    Reset: empty.
    """

    def __init__(self, *, width: int, depth: int):
        self._width, self._depth = width, depth
        super().__init__({"i": In(packet_stream(width)), "o": Out(packet_stream(width))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = fifo = StreamFifo(shape=packet_beat(self._width), depth=self._depth)
        connect(m, flipped(self.i), fifo.i)
        # Frames whose last beat has come, and has left: the latter is known late, so it is no part
        # of a sum.
        ended, left = Signal(range(self._depth * 2)), Signal(range(self._depth * 2))
        goes = Signal()  # a frame that was too long has begun to leave
        leaves = Signal()
        m.d.comb += [
            leaves.eq((ended != left) | goes),
            self.o.payload.eq(fifo.o.payload),
            self.o.valid.eq(fifo.o.valid & leaves),
            fifo.o.ready.eq(self.o.ready & leaves),
        ]
        came = fifo.i.valid & fifo.i.ready & fifo.i.p.last
        went = self.o.valid & self.o.ready & self.o.p.last
        with m.If(came):
            m.d.sync += ended.eq(ended + 1)
        with m.If(went):
            m.d.sync += [left.eq(left + 1), goes.eq(0)]
        with m.Elif(fifo.level == self._depth):
            m.d.sync += goes.eq(1)
        return m
