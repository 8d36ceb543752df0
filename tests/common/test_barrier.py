"""Barrier against plain counts, in Amaranth's simulator."""

import random

import pytest

from hdl.common.barrier import Barrier
from tests.simulate import simulate

BURSTS = 6


@pytest.mark.parametrize("at_once", [1, 3, BURSTS])
def test_barrier(at_once):
    """Passed when the bursts that were in flight at the start are done, not those after them."""
    dut = Barrier(bursts=BURSTS, at_once=at_once)

    async def bench(ctx):
        rng, in_flight = random.Random(2), 0
        for _ in range(300):
            left = in_flight = min(BURSTS, in_flight + rng.randint(0, 3))
            ctx.set(dut.start, 1)
            ctx.set(dut.in_flight, in_flight)
            while True:
                done = rng.randint(1, min(at_once, in_flight)) if in_flight else 0
                done *= rng.random() < 0.4
                ctx.set(dut.done, done)
                await ctx.tick()
                ctx.set(dut.start, 0)
                in_flight, left = in_flight - done, max(0, left - done)
                assert ctx.get(dut.passed) == (left == 0)
                if not left:
                    break
                if in_flight < BURSTS and rng.random() < 0.3:  # another one behind the barrier
                    in_flight += 1

    simulate(dut, bench)
