"""Sums in blocks against Python's own: carries through all, some and no blocks."""

import random

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from hdl.common.sums import at_most, is_sum, reaches, wide_difference, wide_sum


class Sums(wiring.Component):
    """Everything that ``sums`` offers, of ``a`` and a narrower ``b``."""

    def __init__(self, *, bits, narrow, block):
        self._block = block
        super().__init__(
            {
                "a": In(bits),
                "b": In(narrow),
                "other": In(bits),
                "sum": Out(bits + 1),
                "successor": Out(bits + 1),
                "difference": Out(bits + 1),
                "at_most": Out(1),
                "is_sum": Out(1),
                "is_sum_modulo": Out(1),
                "reaches": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        wide = Signal.like(self.a)
        m.d.comb += [
            wide.eq(self.b),
            self.sum.eq(wide_sum(m, self.a, self.b, block=self._block)),
            self.successor.eq(wide_sum(m, self.a, self.b, carry=True, block=self._block)),
            self.difference.eq(wide_difference(m, self.a, self.b, block=self._block)),
            self.at_most.eq(at_most(self.a, self.other, block=self._block)),
            self.is_sum.eq(is_sum(self.a, wide, self.other)),
            self.is_sum_modulo.eq(is_sum(self.a, wide, self.other, wraps=True)),
            self.reaches.eq(reaches(m, self.a, self.b, self.other, block=self._block)),
        ]
        return m


@pytest.mark.parametrize(
    "bits, narrow, block", [(64, 64, 15), (64, 32, 11), (34, 13, 15), (9, 5, 4)]
)
def test_sums(bits, narrow, block):
    rng = random.Random(bits + narrow)
    dut, most = Sums(bits=bits, narrow=narrow, block=block), (1 << bits) - 1

    def number(size):
        """Long runs of equal bits, so that carries go far."""
        cut, kind = rng.randrange(size + 1), rng.randrange(4)
        run = ((1 << size) - 1) >> cut << cut
        return [rng.getrandbits(size), run, run ^ ((1 << size) - 1), run | 1][kind]

    async def bench(ctx):
        for _ in range(300):
            a, b = number(bits), number(narrow)
            total, bit = a + b & most, 1 << rng.randrange(bits)
            other = rng.choice([a, a ^ bit, number(bits), total, total ^ bit, total + 1 & most])
            ctx.set(dut.a, a)
            ctx.set(dut.b, b)
            ctx.set(dut.other, other)
            assert ctx.get(dut.sum) == a + b
            assert ctx.get(dut.successor) == a + b + 1
            assert ctx.get(dut.difference) == (a - b & most) | (a >= b) << bits
            assert ctx.get(dut.at_most) == (a <= other)
            assert ctx.get(dut.is_sum) == (a + b == other)
            assert ctx.get(dut.is_sum_modulo) == (a + b & most == other)
            assert ctx.get(dut.reaches) == (a + b >= other)

    sim = Simulator(dut)
    sim.add_testbench(bench)
    sim.run()
