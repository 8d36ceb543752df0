"""Sums of addresses in two cycles, because a carry chain of 64 bits is too long for one."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Signal, Value

from .count import raised

__all__ = ["OFFSET_BITS", "add_low", "add_middle", "add_high", "mask"]

#: Bits of an offset: the largest virtqueue has 32768 descriptors of 16 bytes.
OFFSET_BITS = 20


def mask(size_log2: Value) -> Value:
    """Ones below bit ``size_log2`` (16 bits): a position's bits that are its place in a ring."""
    return Cat(size_log2 > bit for bit in range(16))


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
