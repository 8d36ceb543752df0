"""Reads that the link partner takes, so that none stands before a write in AMD's block."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["ReadCredits"]

#: Cycles after which a read that has been sent shows in the block's credits: PG213 says two. More
#: cost nothing, as the block tells of fifteen credits if there are as many.
WINDOW = 10
#: Credits that the block tells of at most: that many, or more.
MOST = 15


class ReadCredits(wiring.Component):
    """Says whether a read may be put in line.

    A request that finds no credit holds all behind it on RQ, writes too, until the link partner
    takes reads. That one may wait for these writes (PCI Express Base Specification, "Transaction
    Ordering": a posted request must be able to pass a read). So a read only gets in line when the
    block has a credit for it and for all reads that it does not know of yet.

    Members: ``nph_av`` In: the block's ``pcie_tfc_nph_av``; ``taken`` In: a read gets in line;
    ``sent`` In: one has left on RQ; ``may_read`` Out: one more may get in line.
    Latency: ``may_read`` is a register, which knows of a read in the cycle behind it.
    Throughput: with credits enough, a read a cycle until ``MOST`` are between the line and the
    block's count. Errors: none. Reset: none in line.
    Source: PG213, "Avoiding Head-of-Line Blocking for Posted Requests".
    """

    def __init__(self):
        super().__init__({"nph_av": In(4), "taken": In(1), "sent": In(1), "may_read": Out(1)})

    def elaborate(self, platform):
        m = Module()
        recent = Signal(WINDOW)  # cycles in which a read was sent
        unknown = Signal(range(2 * MOST))  # reads that the block's count does not have yet
        m.d.sync += [
            recent.eq((recent << 1) | self.sent),
            unknown.eq(unknown + self.taken - recent[-1]),
            self.may_read.eq(self.nph_av > unknown + self.taken),
        ]
        return m
