"""How many entries of the outstanding table one QP may have."""

from amaranth.hdl import Module, Signal, Value

__all__ = ["share_of"]

#: Whatever is free: positions are compared modulo 65536.
MOST = 0x7FFF
#: One part in so many of the table is anybody's, also when it is full. A table that is filled by
#: many QPs, each with little, is as it would be without shares.
PARTS = 16


def share_of(m: Module, free: Value, entries: int) -> Signal:
    """Return twice the number of ``free`` ones of the ``entries``, and at least one part in
    ``PARTS`` of these and one, a cycle later.

    A dynamic threshold (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory
    packet switches", 1998). A QP that is alone gets two thirds of the table, and leaves a third to
    all others. Each further one whose peer never answers leaves a third of what it has found, and
    nothing when that is less than its part.
    """
    share, least = Signal(min(16, (2 * entries + 1).bit_length())), entries // PARTS | 1
    m.d.sync += share.eq(free << 1 | 1)
    with m.If(free < least >> 1):
        m.d.sync += share.eq(least)
    if entries > MOST >> 1:
        with m.If(free > MOST >> 1):
            m.d.sync += share.eq(MOST)
    return share
