"""Counters in pieces count as whole ones do."""

import random

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.common.count import add_up, increment
from tests.simulate import simulate


class Counters(wiring.Component):
    """``count`` by ones, from ``start``."""

    def __init__(self, *, bits: int, start: int):
        super().__init__({"enable": In(1), "count": Out(bits, init=start)})

    def elaborate(self, platform):
        m = Module()
        with m.If(self.enable):
            increment(m, self.count)
        return m


@pytest.mark.parametrize("bits", [20, 32, 64])
@pytest.mark.parametrize("below", [5, 1 << 16, (1 << 19) + 3])
def test_pieces_carry(bits, below):
    start = (1 << bits) - below
    dut = Counters(bits=bits, start=start)

    async def bench(ctx):
        rng, count = random.Random(bits), start
        for _ in range(600):
            enable = rng.random() < 0.7
            ctx.set(dut.enable, enable)
            await ctx.tick()
            count += enable
            assert ctx.get(dut.count) == count % (1 << bits)

    simulate(dut, bench)


class Sum(wiring.Component):
    """``total`` of ``amount``, added up in halves."""

    def __init__(self, *, bits: int):
        super().__init__({"enable": In(1), "amount": In(32), "total": Out(bits)})

    def elaborate(self, platform):
        m = Module()
        add_up(m, self.total, self.amount, self.enable)
        return m


@pytest.mark.parametrize("bits", [32, 38])
def test_halves_carry(bits):
    dut = Sum(bits=bits)

    async def bench(ctx):
        rng, total = random.Random(bits), 0
        for _ in range(30):
            for _ in range(rng.randrange(1, 20)):
                enable, amount = rng.random() < 0.7, rng.choice([0, 1, 0xFFFF, 0xFFFF_FFFF])
                ctx.set(dut.enable, enable)
                ctx.set(dut.amount, amount)
                await ctx.tick()
                total += amount * enable
            ctx.set(dut.enable, 0)
            await ctx.tick()
            assert ctx.get(dut.total) == total % (1 << bits)

    simulate(dut, bench)


def test_a_narrow_total_is_refused():
    with pytest.raises(ValueError, match="more than 16 bits, not 16"):
        add_up(Module(), Signal(32), Signal(16), Signal())
