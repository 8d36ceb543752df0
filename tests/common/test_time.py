"""What goes by time: the epoch, and the delay, which rests when nothing is in it."""

import random

import pytest

from hdl.common.delay import Delay
from hdl.common.epoch import EPOCH, Epoch
from tests.simulate import simulate


def test_epoch():
    """Its end shows once in 65536 cycles."""
    dut, seen = Epoch(), []

    async def bench(ctx):
        for cycle in range(2 * EPOCH + 10):
            if ctx.get(dut.ends):
                seen.append(cycle)
            await ctx.tick()

    simulate(dut, bench, deadline=3 * EPOCH)
    assert seen == [EPOCH - 1, 2 * EPOCH - 1]


@pytest.mark.parametrize("cycles", [2, 3, 7, 8, 9, 17])
def test_delay(cycles):
    """Every valid row comes out, whatever pauses lie between; at rest the output stands still."""
    rng, dut = random.Random(cycles), Delay(shape=16, cycles=cycles)
    rows, outputs = [], []

    async def bench(ctx):
        for period in range(60):
            busy = rng.choice((1, 2, cycles, 3 * cycles))
            for step in range(busy + rng.choice((0, 1, cycles, 4 * cycles))):
                row = rng.getrandbits(16) if step < busy or period % 2 else 0
                ctx.set(dut.i, row)
                ctx.set(dut.i_valid, valid := step < busy and rng.random() < 0.8)
                outputs.append(ctx.get(dut.o))
                rows.append(row if valid else None)
                await ctx.tick()
        ctx.set(dut.i_valid, 0)
        for _ in range(2 * cycles + 4):
            outputs.append(ctx.get(dut.o))
            await ctx.tick()
        still = {outputs[-1]}
        for _ in range(3 * cycles):
            still.add(ctx.get(dut.o))
            await ctx.tick()
        assert len(still) == 1

    simulate(dut, bench)
    for at, row in enumerate(rows):
        assert row is None or outputs[at + cycles] == row, at
    assert sum(row is not None for row in rows) > 60
