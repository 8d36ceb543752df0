"""Quiesce: fronts first, then parts."""

import random

import pytest
from amaranth.sim import Simulator

from hdl.common.quiesce import Quiesce


def run(dut, bench):
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("seed", range(5))
def test_parts_start_when_every_front_has_turned(seed):
    dut, rng = Quiesce(fronts=3, parts=2), random.Random(seed)

    async def bench(ctx):
        for _ in range(20):
            ctx.set(dut.part_done, 3)
            for _ in range(rng.randrange(3)):
                ctx.set(dut.turned, rng.randrange(8))
                await ctx.tick()
            ctx.set(dut.start, 1)
            ctx.set(dut.turned, 7)  # before anyone could have seen the start: does not count
            assert not ctx.get(dut.part_start)
            await ctx.tick()
            left = 7
            while True:
                turned = rng.choice((0, 0, 1, 2, 4, 3))
                ctx.set(dut.turned, turned)
                assert ctx.get(dut.part_start) == (left == 0)
                if not left:
                    break
                await ctx.tick()
                left &= ~turned
            await ctx.tick()
            ctx.set(dut.turned, 0)
            done = 0
            while done != 3:
                ctx.set(dut.part_done, done)
                assert not ctx.get(dut.done)
                await ctx.tick()
                done |= rng.choice((0, 0, 1, 2))
            ctx.set(dut.part_done, done)
            waited = 0
            while not ctx.get(dut.done):
                await ctx.tick()
                waited += 1
                assert waited < 3
            await ctx.tick()
            ctx.set(dut.start, 0)
            await ctx.tick()
            assert not ctx.get(dut.done) and not ctx.get(dut.part_start)

    run(dut, bench)


def test_without_fronts():
    dut = Quiesce(fronts=0, parts=1)

    async def bench(ctx):
        ctx.set(dut.start, 1)
        for _ in range(4):
            await ctx.tick()
            if ctx.get(dut.part_start):
                break
        else:
            raise AssertionError("the part was not started")
        for _ in range(9):
            await ctx.tick()
            assert not ctx.get(dut.done)
        ctx.set(dut.part_done, 1)
        assert ctx.get(dut.done)

    run(dut, bench)


def test_bad_parameters():
    with pytest.raises(ValueError, match="not -1"):
        Quiesce(fronts=-1, parts=1)
    with pytest.raises(ValueError, match="not 0"):
        Quiesce(fronts=0, parts=0)
