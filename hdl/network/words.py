"""Sums of 16-bit words in one's complement, as the Internet's checksums have them."""

from __future__ import annotations

from functools import reduce
from operator import add

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from .types import LENGTH_BITS

__all__ = ["WordSum", "folded"]

#: Words that are added up in one cycle.
_ADDENDS = 4
#: Bits of the sum of all words of the longest frame.
_TOTAL = 16 + LENGTH_BITS - 1


def folded(once: Value) -> Value:
    """The 16 bits of a sum that has been folded to 17: the carry is added once more."""
    return (once[:16] + once[16])[:16]


class WordSum(wiring.Component):
    """Adds up the words of each frame, a beat a cycle.

    Spec: RFC 1071, 1 and 2. Words are added with their first byte in the low half, which gives the
    sum with its bytes swapped (2B).
    Parameters: ``words`` in a beat.
    Members: ``i``: the words of a beat, 0 where there is none; ``first``: it begins a frame; ``o``:
    the sum of the frame up to that beat, ``latency`` cycles later, folded to 17 bits.
    Throughput: a beat a cycle. Errors: none. Reset: between two frames.
    """

    def __init__(self, *, words: int):
        self._words, levels = words, 0
        while words > 1:
            words, levels = -(-words // _ADDENDS), levels + 1
        #: Levels of adders, the total, and the first fold.
        self.latency = levels + 2
        super().__init__({"i": In(16 * self._words), "first": In(1), "o": Out(17)})

    def elaborate(self, platform):
        m = Module()
        terms: list[Value] = [self.i[16 * n : 16 * n + 16] for n in range(self._words)]
        first, level = self.first, 0
        while len(terms) > 1:
            groups = [terms[at : at + _ADDENDS] for at in range(0, len(terms), _ADDENDS)]
            terms, later = [], Signal(name=f"first{level}")
            m.d.sync += later.eq(first)
            for number, group in enumerate(groups):
                bits = max(map(len, group)) + ceil_log2(len(group))
                term = Signal(bits, name=f"sum{level}_{number}", reset_less=True)
                m.d.sync += term.eq(reduce(add, group))
                terms.append(term)
            first, level = later, level + 1
        total = Signal(_TOTAL, reset_less=True)
        m.d.sync += [
            total.eq(Mux(first, 0, total) + terms[0]),
            self.o.eq(total[:16] + total[16:]),
        ]
        return m
