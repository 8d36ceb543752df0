"""Counters of any width, added in pieces: a carry chain of few levels between two registers."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Signal, Value

__all__ = ["BYTES", "COUNT", "PIECE", "add_up", "increment", "raised"]

#: Bits of a room's count of events, and of bytes. They wrap; hdl/context/counter_bank.py adds up.
COUNT, BYTES = 12, 18
#: Bits of a piece: two carry blocks, behind three levels that compare all bits below.
PIECE = 8


def raised(value: Value, carry: Value) -> Value:
    """``value`` and one more with ``carry``; it wraps.

    A piece is raised when all bits below it are ones. These bits are compared directly, so no
    carry chain crosses the border of a piece.
    """
    pieces = []
    for at in range(0, len(value), PIECE):
        piece = value[at : at + PIECE]
        pieces.append((piece + (carry & value[:at].all()))[: len(piece)])
    return Cat(pieces)


def increment(m: Module, counter: Value) -> None:
    """Add one to ``counter`` where this is called; it wraps."""
    m.d.sync += counter.eq(raised(counter, Const(1)))


def add_up(m: Module, total: Value, amount: Value, enable: Value) -> None:
    """Add ``amount`` to ``total`` in each cycle with ``enable``: the lower half a cycle later, the
    upper half two. A later assignment may clear ``total`` when nothing has been added for two
    cycles."""
    half = len(total) // 2
    if len(amount) <= half:
        raise ValueError(f"Amount must have more than {half} bits, not {len(amount)!r}")
    low, carry, upper = total[:half], Signal(), Signal(len(amount) - half)
    # The carry enters below the sum's own bits, not as a third number.
    high = (Cat(Const(1, 1), total[half:]) + Cat(carry, upper))[1:]
    m.d.sync += [carry.eq(0), upper.eq(0), total[half:].eq(high)]
    with m.If(enable):
        m.d.sync += [Cat(low, carry).eq(low + amount[:half]), upper.eq(amount[half:])]
