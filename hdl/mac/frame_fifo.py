"""A FIFO for whole frames."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.fifo import StreamFifo
from hdl.common.packet import packet_beat, packet_stream

__all__ = ["FrameFifo"]


class FrameFifo(wiring.Component):
    """A FIFO that a frame leaves when all of it is there, so that it leaves without a gap.

    Parameters: ``width`` in bits; ``depth`` in beats, a power of two.
    Members: ``i``, ``o``; ``level`` Out: beats in the FIFO.
    Latency: 2 cycles behind the last beat. Throughput: one beat per cycle.
    Errors: a frame of more than ``depth`` beats leaves when the FIFO is full, and may have gaps.
    Reset: empty.
    """

    def __init__(self, *, width: int, depth: int):
        self._width, self._depth = width, depth
        super().__init__(
            {
                "i": In(packet_stream(width)),
                "o": Out(packet_stream(width)),
                "level": Out(range(depth + 1)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = fifo = StreamFifo(shape=packet_beat(self._width), depth=self._depth)
        connect(m, flipped(self.i), fifo.i)
        # Beats so far, modulo twice the depth. What leaves is told by counts alone, as a RAM's
        # output is late.
        written = Signal(range(2 * self._depth))
        committed = Signal(range(2 * self._depth))  # up to the last one that may leave
        taken = Signal(range(2 * self._depth))
        commits = Signal()  # all that is written may leave
        spills = Signal()  # the frame that comes is too long, and has begun to leave
        leaves, came, went = Signal(), Signal(), Signal()
        m.d.comb += [
            leaves.eq(committed != taken),
            self.o.payload.eq(fifo.o.payload),
            self.o.valid.eq(fifo.o.valid & leaves),
            fifo.o.ready.eq(self.o.ready & leaves),
            self.level.eq(fifo.level),
            came.eq(fifo.i.valid & fifo.i.ready),
            went.eq(self.o.valid & self.o.ready),
        ]
        m.d.sync += [
            written.eq(written + came),
            taken.eq(taken + went),
            commits.eq(came & (self.i.p.last | spills)),
        ]
        with m.If(commits):
            m.d.sync += committed.eq(written)
        with m.If(came & self.i.p.last):
            m.d.sync += spills.eq(0)
        with m.Elif((fifo.level == self._depth) & ~leaves & ~commits):
            m.d.sync += [committed.eq(written), spills.eq(1)]
        return m
