"""Free places of a pool, one at hand at a time."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.free_list import FreeList

__all__ = ["Places"]


class Places(wiring.Component):
    """Hands out the numbers of ``places`` places, each to one user at a time, oldest first.

    ``FreeList`` behind a stream: its user needs to know nothing of when it may take. The place at
    hand is nobody's.
    Members: ``o``: a free place; it is its taker's. ``any``: there is one, or one is on its way: it
    comes whatever its user does. ``count``: how many are free. ``give`` (a cycle): ``given`` is
    free again, a cycle later, as it is known late. ``back``: likewise at once, but it waits for
    those. ``ready``: see ``FreeList``.
    Latency: 2 cycles from a place that is taken to the next. Throughput: one is taken in
    ``FreeList.LATENCY`` cycles; one is given back in a cycle.
    Errors: none; nobody may give what is not his. Reset: all are free, after ``places`` cycles.
    """

    def __init__(self, *, places: int):
        self._places, bits = places, ceil_log2(places)
        super().__init__(
            {
                "o": Out(stream.Signature(bits)),
                "any": Out(1),
                "count": Out(range(places + 1)),
                "give": In(1),
                "given": In(bits),
                "back": In(stream.Signature(bits)),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.free = free = FreeList(entries=self._places)
        takes = Signal()
        give, given = Signal(), Signal.like(self.given, reset_less=True)
        since = Signal(free.LATENCY - 1)  # a place was taken in the cycles before
        m.d.comb += [
            self.ready.eq(free.ready),
            self.any.eq(self.o.valid | free.room),
            self.count.eq(free.count),
            self.back.ready.eq(~give & free.ready),
            free.give.eq(give | (self.back.valid & self.back.ready)),
            free.given.eq(given),
            takes.eq(free.room & free.ready & ~self.o.valid & ~since.any()),
            free.take.eq(takes),
        ]
        m.d.sync += [give.eq(self.give), given.eq(self.given)]
        with m.If(~give):
            m.d.comb += free.given.eq(self.back.payload)
        m.d.sync += since.eq(since << 1 | takes)
        with m.If(takes):
            m.d.sync += [self.o.valid.eq(1), self.o.payload.eq(free.number)]
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        return m
