"""Sums and comparisons of many bits in few levels of logic.

A ripple of 64 bits is a chain of 16 carry blocks, twice as long as a cycle allows. These functions
compute both sums of each block of bits, without a carry and with one, and the carries choose
(carry-select). Call them outside of conditions (``m.If``), which would be a level before each bit.
"""

from amaranth.hdl import Cat, Const, Module, Signal, Value

__all__ = ["at_most", "is_sum", "reaches", "unequal", "wide_difference", "wide_sum"]

#: Bits of a block; with its carry four carry blocks of four bits.
BLOCK = 15


def wide_sum(m: Module, a, b, *, carry: bool = False, block: int = BLOCK) -> Value:
    """Return ``a`` + ``b`` + ``carry``, both unsigned: the bits of the longer one and a carry.

    Six levels of logic and, for more than three blocks, one more (for comparison: 64 bits in one
    piece are 17).
    """
    bits = max(len(a), len(b))
    total, ended = [], None
    for at in range(0, bits, block):
        width = min(block, bits - at)
        one, other = Signal(width), Signal(width)
        m.d.comb += [one.eq(a[at : at + width]), other.eq(b[at : at + width])]
        without, with_one = Signal(width + 1), Signal(width + 1)
        # the difference from the complement is the sum and one: a single chain with a carry in
        difference = one - ~other
        m.d.comb += [
            without.eq(one + other),
            with_one.eq(Cat(difference[:width], ~difference[width])),
        ]
        chosen = Signal(width + 1)
        if ended is None:
            m.d.comb += chosen.eq(with_one if carry else without)
        else:
            # no Mux: Yosys would make one sum of the two, behind the carry
            choice = ended.replicate(width + 1)
            m.d.comb += chosen.eq((with_one & choice) | (without & ~choice))
        total.append(chosen[:width])
        ended = chosen[width]
    return Cat(*total, ended)


def wide_difference(m: Module, a, b, *, block: int = BLOCK) -> Value:
    """Return ``a`` - ``b`` (not the longer one), and above it whether ``a`` is at least ``b``."""
    full = Signal(len(a))
    m.d.comb += full.eq(b)
    return wide_sum(m, a, ~full, carry=True, block=block)


def at_most(a, b, *, block: int = 16) -> Value:
    """Return whether ``a`` <= ``b``, both unsigned and as long: seven levels for 64 bits."""
    places = range(0, len(a), block)
    parts = [(a[at : at + block], b[at : at + block]) for at in places]
    lowest = parts[0]
    less = [lowest[0] <= lowest[1], *(one < other for one, other in parts[1:])]
    equal = [one == other for one, other in parts]
    while len(less) > 1:  # two neighbours are merged, and the upper one decides first
        pairs = range(0, len(less) - 1, 2)
        rest = len(less) // 2 * 2
        less = [less[n + 1] | (equal[n + 1] & less[n]) for n in pairs] + less[rest:]
        equal = [equal[n + 1] & equal[n] for n in pairs] + equal[rest:]
    return less[0]


def unequal(a: Value, b: Value) -> Value:
    """Return a bit for each group of three bits where two values differ: a look-up table each."""
    return Cat(a[n : n + 3] != b[n : n + 3] for n in range(0, len(a), 3))


def is_sum(a: Value, b: Value, total: Value, *, wraps: bool = False) -> Value:
    """Return whether ``a`` + ``b`` == ``total``, all as long and unsigned, and no bit carried out
    unless the sum ``wraps``.

    Each bit of ``total`` fixes the carry that the bit must receive, and so the carry that it gives.
    Comparing these for all bits takes four levels and no carry chain.
    """
    gets = a ^ b ^ total
    gives = (a & b) | ((a | b) & ~total)
    carried = Cat(Const(0, 1), gives)
    return gets == (carried[: len(a)] if wraps else carried)


def reaches(m: Module, a, b, limit, *, block: int = BLOCK) -> Value:
    """Return whether ``a`` + ``b`` >= ``limit``, all unsigned and of no more bits than ``limit``.

    The difference is a sum of three numbers. A carry-save step makes two numbers of them at no
    additional level, so this is as deep as ``wide_sum``.
    """
    bits = len(limit) + 1  # of a + b, which ``limit`` is taken from
    one, other, less = Signal(bits), Signal(bits), Signal(bits)
    m.d.comb += [one.eq(a), other.eq(b), less.eq(~Cat(limit, Const(0, 1)))]
    total = one ^ other ^ less
    carries = (one & other) | ((one | other) & less)
    # ``less`` is the complement: of bits + 1 bits the sum is 2 ** bits higher than the difference.
    return wide_sum(m, total, Cat(Const(0, 1), carries), carry=True, block=block)[bits:].any()
