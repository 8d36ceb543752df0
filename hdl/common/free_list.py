"""Which entries of a pool are free."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .contract import require
from .ram import Ram

__all__ = ["FreeList"]


class FreeList(wiring.Component):
    """Hands out the numbers of ``entries`` entries, each to one user at a time, oldest first.

    Members: ``room``: an entry is free; ``number`` is the next one. ``take`` (a cycle, with
    ``room``): ``number`` is the user's now. ``give`` (a cycle, also with ``take``): ``given`` is
    free again. ``count``: of those that are free, a cycle late.
    Latency: ``take`` may come ``LATENCY`` cycles after another one; ``room`` comes 2 cycles after
    ``give`` to an empty list, as ``give`` is known late. Throughput: an entry is taken in
    ``LATENCY`` cycles, and given back in a cycle. Errors: none; the user must keep to this.
    Reset: ``entries`` cycles until ``ready``; then all are free.
    """

    #: Cycles from ``take`` to the next ``number``.
    LATENCY = 3

    def __init__(self, *, entries: int):
        if entries < 2 or entries & (entries - 1):
            raise ValueError(f"Entries must be a power of two, at least 2, not {entries!r}")
        self._entries, bits = entries, ceil_log2(entries)
        super().__init__(
            {
                "room": Out(1),
                "number": Out(bits),
                "take": In(1),
                "give": In(1),
                "given": In(bits),
                "count": Out(range(self._entries + 1)),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bits = ceil_log2(self._entries)
        m.submodules.ring = ring = Ram(shape=bits, depth=self._entries)
        head, tail = Signal(bits), Signal(bits)
        gave, count = Signal(), self.count  # an entry was given back in the cycle before
        m.d.comb += [
            ring.read0.index.eq(head),
            ring.read0.enable.eq(1),
            ring.write.index.eq(tail),
            ring.write.row.eq(Mux(self.ready, self.given, tail)),
            ring.write.enable.eq(self.give | ~self.ready),
        ]
        # A register behind the RAM, whose output is late.
        m.d.sync += self.number.eq(ring.read0.row)
        with m.If(ring.write.enable):
            m.d.sync += tail.eq(tail + 1)
        with m.If(self.take):
            m.d.sync += head.eq(head + 1)
        # Worked out in the cycle before: much is decided by it.
        m.d.sync += self.room.eq(~self.ready | gave | (count > 1) | (~self.take & (count != 0)))
        m.d.sync += gave.eq(self.give)
        with m.If(~self.ready):
            m.d.sync += [count.eq(self._entries), self.ready.eq(tail == self._entries - 1)]
        with m.Elif(gave & ~self.take):
            m.d.sync += count.eq(count + 1)
        with m.Elif(self.take & ~gave):
            m.d.sync += count.eq(count - 1)
        if platform is None:  # in models of cards these bits would cost too much time
            self._contract(m, platform)
        return m

    def _contract(self, m: Module, platform) -> None:
        """Each entry is free or somebody's, who has it in ``owned``."""
        owned, known = Signal(self._entries), self.LATENCY
        since = Signal(range(known + 1), init=known)  # cycles since an entry was taken
        with m.If(self.take):
            m.d.sync += [since.eq(1), owned.bit_select(self.number, 1).eq(1)]
        with m.Elif(since != known):
            m.d.sync += since.eq(since + 1)
        with m.If(self.give):
            m.d.sync += owned.bit_select(self.given, 1).eq(0)
        mine, yours = owned.bit_select(self.number, 1), owned.bit_select(self.given, 1)
        free = self.room & self.ready
        require(m, platform, ~self.take | free, "no entry is taken when none is free")
        require(m, platform, ~self.take | (since == known), "no number is taken before it is there")
        require(m, platform, ~self.take | ~mine, "no entry is given to two users")
        require(m, platform, ~self.give | yours, "no entry is given back twice")
