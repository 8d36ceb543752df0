"""A QP whose send queue drains (SQD): what has begun ends, and what has not waits for RTS."""

import random
from dataclasses import replace

import pytest

from hdl.ports.activations import SendFlags
from hdl.ports.rows import QpState
from tests.context.late import slower
from tests.transport.send_side import CONFIG, run, wqe

MTU = 256
WIDE = replace(CONFIG, outstanding=32)


async def change(ctx, world, qp, state):
    """The firmware writes the QP's state, and wakes it as it does."""
    await world.configure(ctx, qp, state=state)
    port = world.dut.scheduler.activate
    ctx.set(port.payload, {"qp": qp, "flags": SendFlags.DOORBELL | SendFlags.WAKE})
    ctx.set(port.valid, 1)
    await ctx.tick().until(port.ready)
    ctx.set(port.valid, 0)


def messages(jobs):
    """The PSNs of each message, in the order in which they were handed over."""
    found = []
    for job in jobs:
        if job.offset == 0:
            found.append([])
        found[-1].append(job.header.psn)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_what_has_begun_ends_and_the_rest_waits(seed):
    rng = random.Random(seed)
    sizes = [rng.randint(1, 9) for _ in range(12)]  # packets; a turn has at most 4

    async def scenario(ctx, world):
        await world.connect(ctx, 2)
        await world.connect(ctx, 3)
        for qp in (2, 3):
            world.queues[qp] = [wqe(length=size * MTU) for size in sizes]
            await world.ring(ctx, qp)
        before = rng.randrange(len(sizes))
        await world.until(ctx, lambda: sum(job.qp == 2 for job in world.handed) > before)
        await change(ctx, world, 2, QpState.SQD)
        at_hand = 1 + len(messages([job for job in world.handed if job.qp == 2]))
        await ctx.tick().repeat(1500 * slower())
        mine = [job for job in world.handed if job.qp == 2]
        begun = messages(mine)
        assert [len(one) for one in begun] == sizes[: len(begun)], "each is sent to its end"
        assert len(begun) <= at_hand, "and no other, but for the one that was at hand"
        assert sum(job.qp == 3 for job in world.handed) == sum(sizes)
        await change(ctx, world, 2, QpState.RTS)
        await world.until(ctx, lambda: len(world.handed) == 2 * sum(sizes))
        mine = [job.header.psn for job in world.handed if job.qp == 2]
        assert mine == list(range(0x100, 0x100 + sum(sizes)))

    run(scenario, config=WIDE)


@pytest.mark.parametrize("seed", range(3))
def test_what_has_begun_is_sent_again(seed):
    """As often as it is lost, while the QP drains; what is posted meanwhile waits."""
    rng = random.Random(seed)
    sizes = [rng.randint(1, 6) for _ in range(6)]
    total = sum(sizes)

    async def scenario(ctx, world):
        await world.connect(ctx, 2)
        world.queues[2] = [wqe(length=size * MTU) for size in sizes[:3]]
        await world.ring(ctx, 2)
        await world.until(ctx, lambda: len(world.handed) == sum(sizes[:3]))
        await change(ctx, world, 2, QpState.SQD)
        world.queues[2] += [wqe(length=size * MTU) for size in sizes[3:]]
        await world.ring(ctx, 2)
        for _ in range(3):
            lost = rng.randrange(sizes[0])
            world.handed.clear()
            await world.acknowledge(ctx, 2, psn=0x100 + lost, start=0x100)
            await world.restart(ctx, 2)
            await ctx.tick().repeat(1200 * slower())
            found = [job.header.psn for job in world.handed]
            assert found == list(range(0x100 + lost, 0x100 + sum(sizes[:3])))
        world.handed.clear()
        await change(ctx, world, 2, QpState.RTS)
        await world.until(ctx, lambda: len(world.handed) == sum(sizes[3:]))
        await ctx.tick().repeat(300)
        found = [job.header.psn for job in world.handed]
        assert found == list(range(0x100 + sum(sizes[:3]), 0x100 + total))

    run(scenario, config=WIDE)
