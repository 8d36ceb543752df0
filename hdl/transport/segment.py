"""How a message is cut into packets: arithmetic on the path MTU that sender and responder share."""

from amaranth.hdl import Module, Mux, Signal, Value

__all__ = ["mtu_bytes", "packet_count", "message_offset"]

MTU_CODES = range(1, 6)  # 256 << (code - 1) bytes


def _by_mtu(m: Module, code: Value, value_of, shape, name: str) -> Signal:
    """``value_of(log2 of the MTU)`` for the MTU ``code`` (ABI values 1 to 5; others count as 1)."""
    result = Signal(shape, name=name)
    m.d.comb += result.eq(value_of(8))
    with m.Switch(code):
        for mtu in MTU_CODES:
            with m.Case(mtu):
                m.d.comb += result.eq(value_of(mtu + 7))
    return result


def mtu_bytes(m: Module, code: Value) -> Signal:
    """Path MTU in bytes, 13 bits."""
    return _by_mtu(m, code, lambda log2: 1 << log2, 13, "mtu_bytes")


def packet_count(m: Module, code: Value, length: Value, name: str = "packets") -> Signal:
    """Packets of a message of ``length`` bytes: at least 1, at most 2**23; 24 bits."""

    def count(log2: int):
        whole = length[log2:]
        return Mux(length == 0, 1, whole + (length[:log2] != 0))

    return _by_mtu(m, code, count, 24, name)


def message_offset(m: Module, code: Value, packets: Value, name: str = "offset") -> Signal:
    """Bytes in ``packets`` full packets; 32 bits."""
    return _by_mtu(m, code, lambda log2: packets << log2, 32, name)
