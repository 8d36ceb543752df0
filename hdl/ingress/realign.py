"""Moves payload behind headers of any length to lane 0."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.common.shift import shifted
from hdl.wire.gateware import swap
from hdl.wire.headers import ATOMIC_ACK_ETH

from .decoder import plan

__all__ = ["Realign"]

NUMBER_BITS = 8 * ATOMIC_ACK_ETH.size


class Realign(wiring.Component):
    """Shifts each beat together with the beat before it.

    Headers are 2 modulo 4 bytes long, so payload never starts in lane 0 and an output beat never
    consists of one input beat, except the last beat of a packet. That beat comes a cycle after its
    input beat. The first beat of a packet completes no output beat, so the two never collide. A
    number leaves in the byte order of the host.
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
        flushing, before_number = Signal(), Signal()
        with m.If(self.valid):
            m.d.sync += [before.eq(self.data), before_shift.eq(self.plan.shift)]
            m.d.sync += before_number.eq(self.plan.number)
        m.d.sync += flushing.eq(self.valid & self.plan.flush)
        # During the flush, a beat of the next packet may come; it completes no output beat.
        shift = Mux(flushing, before_shift, self.plan.shift)
        moved = Signal(self._width + reach - 32, reset_less=True)
        window = Cat(before, self.data)[16:-16]
        rest, valid = Signal(fine, reset_less=True), Signal()
        out, numbers = Signal(self._width, reset_less=True), Signal(2)  # of the two stages
        m.d.sync += [
            moved.eq(shifted(m, window, shift[2 + fine :], reach, "window")),
            rest.eq(shift[2:]),
            valid.eq((self.valid & self.plan.emit) | flushing),
            out.eq(shifted(m, moved, rest, 32, "moved")),
            self.o_valid.eq(valid),
            numbers.eq(Cat(Mux(flushing, before_number, self.plan.number), numbers[0])),
        ]
        m.d.comb += self.o.eq(out)
        with m.If(numbers[1]):
            m.d.comb += self.o[:NUMBER_BITS].eq(swap(out[:NUMBER_BITS]))
        return m
