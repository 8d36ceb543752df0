"""Counters of any width, added in pieces: a carry chain of few levels between two registers."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Signal, Value

__all__ = ["PIECE", "accumulate", "add_up", "increment", "raised"]

#: Bits of a piece: two carry blocks, behind three levels that look at all bits below.
PIECE = 8


def raised(value: Value, carry: Value) -> Value:
    """``value`` and one more with ``carry``; it wraps.

    A piece is raised when all bits below it are ones, which no carry chain has to tell, nor the
    piece below.
    """
    pieces = []
    for at in range(0, len(value), PIECE):
        piece = value[at : at + PIECE]
        pieces.append((piece + (carry & value[:at].all()))[: len(piece)])
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
    low, carry, ones = Signal(bits), Signal(), Signal()
    # Carries are 16 cycles apart: what is told of the bits between is as old as it may be.
    middle = (bits + len(counter) + 1) // 2
    m.d.sync += [carry.eq(0), counter[:bits].eq(low), ones.eq(counter[bits:middle].all())]
    with m.If(enable):
        m.d.sync += Cat(low, carry).eq(low + amount)
    with m.If(carry):
        increment(m, counter[bits:middle])
        with m.If(ones):
            increment(m, counter[middle:])


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
