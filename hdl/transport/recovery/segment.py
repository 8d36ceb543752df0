"""How a message is cut into packets: arithmetic on the path MTU that sender and responder share."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value

from hdl.common.count import raised

__all__ = [
    "MTU_CODES",
    "PSN_BLOCK",
    "fit",
    "message_offset",
    "mtu_bytes",
    "packet_count",
    "ragged_bits",
    "whole_packets",
]

#: Bits of a block of a PSN's sums and differences (``hdl.common.sums``).
PSN_BLOCK = 8

MTU_CODES = range(1, 6)  # 256 << (code - 1) bytes


def _by_mtu(m: Module, code: Value, value_of, shape, name: str) -> Signal:
    """``value_of(log2 of the MTU)`` for the MTU ``code`` (ABI values 1 to 5; others count as 1).

    The code comes out of RAM: its bits choose themselves, without a decoder in front."""
    result = Signal(shape, name=name)
    values = [value_of(mtu + 7 if mtu in MTU_CODES else 8) for mtu in range(1 << len(code))]
    for bit in code:
        values = [Mux(bit, *pair) for pair in zip(values[1::2], values[::2], strict=True)]
    m.d.comb += result.eq(values[0])
    return result


def mtu_bytes(m: Module, code: Value) -> Signal:
    """Path MTU in bytes, 13 bits."""
    return _by_mtu(m, code, lambda log2: 1 << log2, 13, "mtu_bytes")


def whole_packets(m: Module, code: Value, length: Value, name: str = "whole") -> Signal:
    """Full packets in ``length`` bytes, at most 2**23; 24 bits. One packet more carries what is
    left over if any of the message's ``ragged_bits`` is set."""
    return _by_mtu(m, code, lambda log2: length[log2:], 24, name)


def ragged_bits(code: Value, length: Value) -> Value:
    """A message of ``length`` bytes has a packet that is not full, or an empty one, if any of these
    bits is set. Each but the first is one look-up table, of the MTU's ``code``, which comes out of
    RAM, and of one bit of ``length``."""
    least = length[:8].any() | (length == 0)
    larger = [code.matches(*(mtu for mtu in MTU_CODES if mtu + 7 > bit)) for bit in range(8, 12)]
    return Cat(least, *(length[bit] & some for bit, some in enumerate(larger, 8)))


def packet_count(m: Module, code: Value, length: Value) -> Value:
    """Packets of a message of ``length`` bytes: at least 1, at most 2**23; 24 bits."""
    return raised(whole_packets(m, code, length), ragged_bits(code, length).any())


def fit(length: Value, mtu: Value) -> Value:
    """Whether ``length`` bytes fit a packet; the upper bits have no carry chain."""
    return ~length[len(mtu) :].any() & (length[: len(mtu)] <= mtu)


def message_offset(m: Module, code: Value, packets: Value, name: str = "offset") -> Signal:
    """Bytes in ``packets`` full packets; 32 bits."""
    return _by_mtu(m, code, lambda log2: packets << log2, 32, name)
