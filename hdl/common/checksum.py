"""Ones' complement sums of 16-bit words, pipelined.

Words have their first byte in bits 7:0, and so has the sum: the Internet checksum does not depend
on byte order (RFC 1071, section 2 (B)).
"""

from __future__ import annotations

from functools import reduce
from operator import add

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .sums import wide_sum

__all__ = ["BeatSum", "WordSum", "plus"]


def _grouped(m: Module, values: list[Value], group: int, *, name: str) -> list[Value]:
    """Registered sums of ``group`` neighbours."""
    sums = []
    for at in range(0, len(values), group):
        some = values[at : at + group]
        total = reduce(add, some)
        bits = len(some[0]) + (len(some) - 1).bit_length()  # not one more for each addition
        register = Signal(bits, name=f"{name}{at // group}", reset_less=True)
        m.d.sync += register.eq(total)
        sums.append(register)
    return sums


def plus(value: Value, amount: Value) -> Value:
    """Their sum, as wide as ``value``; it wraps. The carry out of the bits of ``amount`` chooses
    between the upper bits of ``value`` and those plus one, so no chain runs through all bits."""
    bits = len(amount)
    lower, upper = value[:bits] + amount, value[bits:]
    return Cat(lower[:bits], Mux(lower[bits], upper + 1, upper)[: len(upper)])


def _words(vector: Value) -> list[Value]:
    return [vector[at : at + 16] for at in range(0, len(vector), 16)]


class WordSum(wiring.Component):
    """Ones' complement sum of ``words`` 16-bit words (an IPv4 header has ten).

    Spec: RFC 1071; RFC 791, "Header Checksum". ``sum`` is FFFFh for a header whose checksum is
    right.
    Latency: ``LATENCY`` cycles. Throughput: one per cycle. Reset: none needed.
    """

    LATENCY = 4

    def __init__(self, *, words: int):
        if not 1 <= words <= 16:
            raise ValueError(f"Words must be 1 to 16, not {words!r}")
        self._words = words
        super().__init__({"data": In(16 * words), "sum": Out(16)})

    def elaborate(self, platform):
        m = Module()
        fours = _grouped(m, _words(self.data), 4, name="four")
        (total,) = _grouped(m, fours, 4, name="total")
        (folded,) = _grouped(m, [total[:16] + total[16:]], 1, name="folded")
        m.d.sync += self.sum.eq(folded[:16] + folded[16:])
        return m


class BeatSum(wiring.Component):
    """Plain 32-bit sum of the 16-bit words of beats; it cannot overflow for a packet up to 64 KiB.

    Members: ``valid``, ``first``, ``data`` (bytes that do not count are 0); ``sum`` of the beats
    since ``first``.
    Latency: ``LATENCY`` cycles. Throughput: one beat per cycle, gaps allowed. Reset: none in
    flight.
    """

    LATENCY = 4

    def __init__(self, *, width: int):
        if width < 32 or width % 16 or width > 1024:
            raise ValueError(f"Width must be whole words, 32 to 1024 bits, not {width!r}")
        self._width = width
        super().__init__({"valid": In(1), "first": In(1), "data": In(width), "sum": Out(32)})

    def elaborate(self, platform):
        m = Module()
        valid, first = Signal(3), Signal(3)
        m.d.sync += [
            valid.eq(valid << 1 | self.valid),
            first.eq(first << 1 | self.first),
        ]
        sums = _words(self.data)
        for stage in range(3):
            sums = _grouped(m, sums, 4, name=f"stage{stage}_")
        (beat,) = sums
        before = Signal(32)
        m.d.comb += before.eq(Mux(first[2], 0, self.sum))
        after = wide_sum(m, before, beat, block=16)
        with m.If(valid[2]):
            m.d.sync += self.sum.eq(after)
        return m
