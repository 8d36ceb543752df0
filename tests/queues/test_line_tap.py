"""Two readers of the lines: the first one does not notice the second."""

import random

import pytest

from hdl.queues.wqe.tap import LineTap
from tests.simulate import simulate


def held(line: int, slot: int) -> int:
    """What a slot holds."""
    return (line << 8 | slot) * 0x1_0001_0001 + 1


@pytest.mark.parametrize("seed, busy", [(0, 0.3), (1, 0.7), (2, 0.95), (3, 0.0)])
def test_both_get_their_slots(seed, busy):
    """Reads of both at any time: what the first has read stays until its next read, and the second
    waits for a cycle in which the first does not read."""
    dut, rng, found = LineTap(), random.Random(seed), []

    async def lines(ctx):
        """The memory: data come a cycle later and stay."""
        while True:
            _, _, enable, slot = await ctx.tick().sample(dut.lines.slot_enable, dut.lines.slot)
            if enable:
                ctx.set(dut.lines.slot_data, held(slot.line, slot.slot))

    async def first(ctx):
        shown = None
        for _ in range(400):
            reads, place = rng.random() < busy, (rng.randrange(64), rng.randrange(32))
            ctx.set(dut.reader.slot_enable, reads)
            ctx.set(dut.reader.slot, {"line": place[0], "slot": place[1]})
            *_, data = await ctx.tick().sample(dut.reader.slot_data)
            assert shown is None or data == held(*shown)
            shown = place if reads else shown
        ctx.set(dut.reader.slot_enable, 0)
        await ctx.tick().repeat(20)

    async def second(ctx):
        other = random.Random(seed + 100)
        while True:
            place = other.randrange(64), other.randrange(32)
            await ctx.tick().repeat(other.randrange(1, 4))
            ctx.set(dut.spare.slot, {"line": place[0], "slot": place[1]})
            ctx.set(dut.spare.slot_enable, 1)
            *_, data = await ctx.tick().sample(dut.spare.slot_data).until(dut.spare.taken)
            ctx.set(dut.spare.slot_enable, 0)
            assert data == held(*place)
            found.append(place)

    simulate(dut, first, deadline=2_000, background=(lines, second))
    assert len(found) > 5
