"""Moves payload behind headers of any length to lane 0."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.common.shift import shifted

from .decoder import plan

__all__ = ["Realign"]


class Realign(wiring.Component):
    """Shifts each beat together with the beat before it.

    Headers are 2 modulo 4 bytes long, so payload never starts in lane 0 and an output beat never
    consists of one input beat, except the last beat of a packet. That beat comes a cycle after its
    input beat. The first beat of a packet completes no output beat, so the two never collide.
    Members: ``valid``, ``data``, ``plan`` In; ``o_valid``, ``o`` Out, bytes behind the payload's
    end undefined. Latency: ``LATENCY`` cycles, one more for ``flush``. Throughput: one beat per
    cycle, no stall. Reset: nothing in flight.
    """

    LATENCY = 2

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
        words = len(self.plan.shift) - 2  # bits of the shift in words; two bytes always go
        fine = min(2, words)
        reach = 32 << fine
        before, before_shift = Signal(self._width, reset_less=True), Signal.like(self.plan.shift)
        flushing = Signal()
        with m.If(self.valid):
            m.d.sync += [before.eq(self.data), before_shift.eq(self.plan.shift)]
        m.d.sync += flushing.eq(self.valid & self.plan.flush)
        # During the flush, a beat of the next packet may come; it completes no output beat.
        shift = Mux(flushing, before_shift, self.plan.shift)
        moved = Signal(self._width + reach - 32, reset_less=True)
        window = Cat(before, self.data)[16:-16]
        rest, valid = Signal(fine, reset_less=True), Signal()
        m.d.sync += [
            moved.eq(shifted(m, window, shift[2 + fine :], reach, "window")),
            rest.eq(shift[2:]),
            valid.eq((self.valid & self.plan.emit) | flushing),
            self.o.eq(shifted(m, moved, rest, 32, "moved")),
            self.o_valid.eq(valid),
        ]
        return m
