"""EtileStart against a model of a channel's registers, in Amaranth's simulator."""

import random

import pytest

from hdl.mac.etile_start import STEPS, EtileStart
from tests.simulate import simulate


@pytest.mark.parametrize("stall", [0, 0.6])
def test_steps_in_order(stall):
    """Each step once and in order, however long the tile takes; then nothing."""
    rng, dut, log = random.Random(1), EtileStart(pause=20), []

    async def tile(ctx):
        """A poll is answered with something else some times before."""
        left = 3
        while True:
            waits = rng.random() < stall
            ctx.set(dut.waitrequest, waits)
            address = ctx.get(dut.address)
            good = next((s for s in STEPS if s.mask and s.address == address), None)
            ctx.set(dut.readdata, good.value if good and not left else 0x40)
            _, _, read, write, data = await ctx.tick().sample(dut.read, dut.write, dut.writedata)
            assert not (read and write)
            if waits or not (read or write):
                continue
            if write:
                log.append((address, data))
                left = rng.randint(0, 4)
            elif left:
                left -= 1
            else:
                log.append((address, None))

    async def bench(ctx):
        for _ in range(20):
            assert not ctx.get(dut.read) and not ctx.get(dut.write)
            await ctx.tick()
        await ctx.tick().until(dut.done)
        await ctx.tick().repeat(50)
        assert ctx.get(dut.done)

    simulate(dut, bench, background=(tile,))
    assert log == [(one.address, None if one.mask else one.value) for one in STEPS]


def test_bad_pause():
    with pytest.raises(ValueError, match="The pause must be at least 1 cycle, not 0"):
        EtileStart(pause=0)
