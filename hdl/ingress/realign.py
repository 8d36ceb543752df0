"""Moves payload behind headers of any length to lane 0."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.common.delay import delayed
from hdl.common.rotate import pipelined_rotate

from .decoder import plan

__all__ = ["Realign"]


class Realign(wiring.Component):
    """Rotates each beat and joins it with the one before.

    Headers are 2 modulo 4 bytes long, so payload never starts in lane 0 and an output beat never
    consists of one input beat, except a packet's last one. That one comes a cycle after its input
    beat; a packet's first beat completes nothing, so the two never meet.
    Members: ``valid``, ``data``, ``plan`` In; ``o_valid``, ``o`` Out, bytes behind the payload's
    end undefined. Latency: ``LATENCY`` cycles, one more for ``flush``. Throughput: one beat per
    cycle, no stall. Reset: nothing in flight.
    """

    ROTATE = 2
    LATENCY = ROTATE + 1

    def __init__(self, *, width: int):
        self._width = width
        super().__init__(
            {
                "valid": In(1),
                "data": In(width),
                "plan": In(plan(width)),
                "o_valid": Out(1),
                "o": Out(width),
            }
        )

    def elaborate(self, platform):
        m = Module()
        size = self._width // 8
        rotated = pipelined_rotate(
            m, self.data, self.plan.shift, left=False, stages=self.ROTATE, name="data"
        )
        shift = delayed(m, self.plan.shift, self.ROTATE, name="shift")
        emit = delayed(m, self.plan.emit, self.ROTATE, name="emit")
        flush = delayed(m, self.plan.flush, self.ROTATE, name="flush")
        valid = Signal(self.ROTATE)
        m.d.sync += valid.eq(Cat(self.valid, valid))
        before = Signal(self._width, reset_less=True)
        flushing = Signal()
        with m.If(valid[-1]):
            m.d.sync += before.eq(rotated)
        own = Cat((shift + lane >= size).replicate(8) for lane in range(size))
        m.d.sync += [
            flushing.eq(valid[-1] & flush),
            self.o_valid.eq((valid[-1] & emit) | flushing),
            self.o.eq(Mux(flushing, before, (rotated & own) | (before & ~own))),
        ]
        return m
