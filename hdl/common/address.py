"""Sums of addresses in two cycles, because a carry chain of 64 bits is too long for one."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Signal, Value

from hdl.config import NicConfig

from .count import raised

__all__ = ["OFFSET_BITS", "add_low", "add_middle", "add_high", "folded", "kept", "mask"]

#: Bits of an offset: the largest virtqueue has 32768 descriptors of 16 bytes.
OFFSET_BITS = 20


def mask(size_log2: Value) -> Value:
    """Ones below bit ``size_log2`` (16 bits): a position's bits that are its place in a ring."""
    return Cat(size_log2 > bit for bit in range(16))


def kept(config: NicConfig, address: Value) -> Value:
    """A bus address as the card keeps it: 0 from bit ``address_bits`` on."""
    bits = min(config.address_bits, len(address))
    return Cat(address[:bits], Const(0, len(address) - bits))


def folded(config: NicConfig, address: Value) -> Value:
    """An address in a region as the card keeps it. One that lies beyond all regions is told by the
    first bit that they do not have; those above are 0."""
    bits = config.address_bits
    if bits >= len(address):
        return address
    beyond = address[bits:].any()
    return Cat(address[:bits], beyond, Const(0, len(address) - bits - 1))


def add_low(m: Module, addr: Value, carry: Signal, base: Value, offset: Value) -> None:
    """First cycle: ``base`` + ``offset`` without the ``carry`` into the upper bits."""
    low = base[:OFFSET_BITS] + offset[:OFFSET_BITS]
    m.d.sync += [Cat(addr[:OFFSET_BITS], carry).eq(low), addr[OFFSET_BITS:].eq(base[OFFSET_BITS:])]


def add_middle(m: Module, addr: Value, carry: Signal, offset: Value) -> None:
    """Second cycle of three, for an ``offset`` of twice as many bits."""
    middle = addr[OFFSET_BITS : 2 * OFFSET_BITS]
    # The carry enters below the sum's own bits, not as a third number.
    total = Cat(Const(1, 1), middle) + Cat(carry, offset[OFFSET_BITS:])
    m.d.sync += Cat(middle, carry).eq(total[1:])


def add_high(m: Module, addr: Value, carry: Signal, above: int = OFFSET_BITS) -> None:
    """Last cycle: the bits from ``above`` on; calling it again adds nothing more."""
    m.d.sync += [addr[above:].eq(raised(addr[above:], carry)), carry.eq(0)]
