"""What waits for all writes that are in flight at some moment."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Barrier"]


class Barrier(wiring.Component):
    """Says when all bursts that were in flight at some moment are done: for one thing at a time.

    Parameters: ``bursts``: the most that are in flight; ``at_once``: the most that are done in a
    cycle. Members: ``start``: the moment; ``in_flight``: bursts that are taken and not done;
    ``done``: how many are in this cycle; ``passed``: no burst of that moment is left. It stays
    until ``start``. Bursts are done in the order in which they were taken.
    Latency: ``passed`` is a register. Reset: passed.
    """

    def __init__(self, *, bursts: int, at_once: int = 1):
        self._shape = range(bursts + 1)
        super().__init__(
            {
                "start": In(1),
                "in_flight": In(self._shape),
                "done": In(range(at_once + 1)),
                "passed": Out(1, init=1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        left, now, later = Signal(self._shape), Signal(self._shape), Signal(self._shape)
        m.d.comb += [
            now.eq(Mux(self.start, self.in_flight, left)),
            later.eq(Mux(now > self.done, now - self.done, 0)),
        ]
        with m.If(self.start | ~self.passed):
            m.d.sync += [left.eq(later), self.passed.eq(later == 0)]
        return m
