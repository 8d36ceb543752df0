"""Addresses in rings and tables, added up in two cycles: 64 bits are too long a carry chain."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Signal, Value

from .count import raised

__all__ = ["OFFSET_BITS", "add_low", "add_middle", "add_high", "mask"]

#: Bits of an offset: the largest virtqueue has 32768 descriptors of 16 bytes.
OFFSET_BITS = 20


def mask(size_log2: Value) -> Value:
    """Ones below bit ``size_log2``: what a position's place in a ring is made of; 16 bits."""
    return Cat(size_log2 > bit for bit in range(16))


def add_low(m: Module, addr: Value, carry: Signal, base: Value, offset: Value) -> None:
    """First cycle: ``base`` + ``offset``, but for the ``carry`` into the upper bits."""
    low = base[:OFFSET_BITS] + offset[:OFFSET_BITS]
    m.d.sync += [Cat(addr[:OFFSET_BITS], carry).eq(low), addr[OFFSET_BITS:].eq(base[OFFSET_BITS:])]


def add_middle(m: Module, addr: Value, carry: Signal, offset: Value) -> None:
    """Second cycle of three, for an ``offset`` of twice as many bits."""
    middle = addr[OFFSET_BITS : 2 * OFFSET_BITS]
    # The carry enters below the sum's own bits, not as a third number.
    total = Cat(Const(1, 1), middle) + Cat(carry, offset[OFFSET_BITS:])
    m.d.sync += Cat(middle, carry).eq(total[1:])


def add_high(m: Module, addr: Value, carry: Signal, above: int = OFFSET_BITS) -> None:
    """Last cycle: the bits from ``above`` on; where it is called again nothing more is added."""
    m.d.sync += [addr[above:].eq(raised(addr[above:], carry)), carry.eq(0)]
