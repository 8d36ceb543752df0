"""Interrupt levels that do not overtake writes."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.common.barrier import Barrier

__all__ = ["LevelsBehindWrites"]


class LevelsBehindWrites(wiring.Component):
    """Passes levels on; each rises when the bursts that were in flight when it rose are done.

    Parameters: ``width``: how many. Members: ``i``, ``o``; ``in_flight``, ``done``: of the write
    side. Latency: 2 cycles to rise without writes, 1 to fall. Reset: all are low.
    """

    def __init__(self, *, width: int, bursts: int):
        self._bursts = bursts
        super().__init__(
            {
                "i": In(width),
                "o": Out(width),
                "in_flight": In(range(bursts + 1)),
                "done": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        for n, level in enumerate(self.i):
            m.submodules[f"barrier{n}"] = barrier = Barrier(bursts=self._bursts)
            before = Signal(name=f"before{n}")
            m.d.comb += [
                barrier.start.eq(level & ~before),
                barrier.in_flight.eq(self.in_flight),
                barrier.done.eq(self.done),
            ]
            m.d.sync += [before.eq(level), self.o[n].eq(level & before & barrier.passed)]
        return m
