"""Counters of any width, added in pieces: a carry chain of few levels between two registers."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Signal, Value

__all__ = ["accumulate", "increment", "raised"]

#: Bits of a piece: two carry blocks, behind three levels that look at all bits below.
PIECE = 8


def raised(value: Value, carry: Value) -> Value:
    """``value`` and one more with ``carry``; it wraps.

    A piece is raised when all bits below it are ones, which no carry chain has to tell.
    """
    pieces = []
    for at in range(0, len(value), PIECE):
        piece = value[at : at + PIECE]
        pieces.append((piece + carry)[: len(piece)])
        carry = carry & piece.all()
    return Cat(pieces)


def increment(m: Module, counter: Value) -> None:
    """Add one to ``counter`` where this is called; it wraps."""
    m.d.sync += counter.eq(raised(counter, Const(1)))


def accumulate(m: Module, counter: Value, amount: Value, enable: Value) -> None:
    """Add ``amount`` to ``counter`` in each cycle with ``enable``, seen two cycles later.

    The carry out of the lower bits, as many as ``amount`` has and a few, waits for a cycle, and
    they with it: ``counter`` is never half of two values.
    """
    bits = len(amount) + 4
    if len(counter) <= bits:
        raise ValueError(f"Counter must have more than {bits} bits, not {len(counter)!r}")
    low, carry = Signal(bits), Signal()
    m.d.sync += [carry.eq(0), counter[:bits].eq(low)]
    with m.If(enable):
        m.d.sync += Cat(low, carry).eq(low + amount)
    with m.If(carry):
        increment(m, counter[bits:])
