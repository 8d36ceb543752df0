"""The prefetch window: how many WQEs of a QP are in flight from host memory at a time.

It is a window in bytes, as a transport's send window is: wide enough to cover the latency of the
host (the bandwidth-delay product), and no wider, because the messages of other QPs wait behind what
is in flight. Short messages get as many WQEs as fit these bytes, long ones a single one. It says
nothing about when a packet may go: that is ``eligibility``.
"""

from amaranth.hdl import Module, Signal, Value

from hdl.config import NicConfig

__all__ = ["AHEAD", "few_bytes", "is_long", "log2_ahead"]

#: Messages of a QP under way in the fetch engine have at most so many bytes together: those of the
#: longest packets of two turns of the requester, or less. A WQE comes after two reads of the host,
#: one after the other: at 100 Gb/s these bytes last for reads of 4 us.
PACKET, TURNS, MOST = 4096, 2, 131072
#: log2 of the most WQEs of a QP that are under way: so many are, up to ``few_bytes`` each.
AHEAD = 6


def few_bytes(config: NicConfig) -> int:
    """Bytes of a message above which the requester announces that it begins. Of shorter ones as
    many as there are lines may stand in front of another QP's."""
    return min(MOST, TURNS * PACKET * config.quantum) >> AHEAD


def log2_ahead(m: Module, config: NicConfig, length: Value, few: Value) -> Signal:
    """log2 of how many messages of ``length`` bytes may be under way, a cycle later: 0 to
    ``AHEAD``, which also is the answer for those that have ``few`` set (READ requests)."""
    ahead = Signal(range(AHEAD + 1))
    m.d.sync += ahead.eq(0)
    for n in range(1, AHEAD + 1):
        with m.If((length <= few_bytes(config) << (AHEAD - n)) | few):
            m.d.sync += ahead.eq(n)
    return ahead


def is_long(config: NicConfig, length: Value) -> Value:
    """Whether the requester announces a message of ``length`` bytes when it begins."""
    return length > few_bytes(config)
