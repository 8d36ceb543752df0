"""Flow control credits of the link partner, of which P-Tile tells the limits in turn."""

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.common.contract import require

__all__ = ["Credits"]


class Credits(wiring.Component):
    """Counts what may still be sent of one kind.

    A limit counts all credits since the link came up, modulo 2**``bits``. A kind whose limit has
    never been other than 0 is infinite (PCI Express Base Specification, "Flow Control").

    Parameters: ``index``: of the limit among all (UG683059, "TX Flow Control Interface"); ``bits``
    of a limit; ``most``: of credits that are asked for at once.
    Members: ``limit``, ``index``: the block's pins; ``asks`` In: ``need`` In is asked for, and
    stays until it is spent; ``enough`` Out: that many are there; ``spend`` In: they are spent in
    this cycle, with ``enough``.
    Latency: ``enough`` is a register. Throughput: credits are spent in every other cycle.
    Reset: none spent, with the link.
    """

    def __init__(self, *, index: int, bits: int, most: int):
        self._index, self._bits = index, bits
        super().__init__(
            {
                "limit": In(16),
                "index": In(3),
                "asks": In(1),
                "need": In(range(most + 1)),
                "enough": Out(1),
                "spend": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        limit, spent = Signal(self._bits), Signal(self._bits)
        finite, left = Signal(), Signal(signed(self._bits))
        # As it was a cycle ago, when ``enough`` was found out: ``spend`` comes late.
        needed = Signal.like(self.need)
        m.d.sync += [needed.eq(self.need), left.eq(limit - spent)]
        with m.If(self.spend):
            require(m, platform, self.need == needed, "what is asked for stays until it is spent")
            m.d.sync += [spent.eq(spent + needed), left.eq(limit - spent - needed)]
        with m.If(self.index == self._index):
            m.d.sync += [limit.eq(self.limit), finite.eq(finite | (self.limit != 0))]
        # What was spent in this cycle is not in ``left`` yet.
        m.d.sync += self.enough.eq(self.asks & ~self.spend & (~finite | (left >= self.need)))
        return m
