"""HeaderLanes: answers pass what waits for its payload, and neither lane starves."""

import random

import pytest

from hdl.config import NicConfig
from hdl.egress.lanes import AHEAD, HeaderLanes
from tests.simulate import simulate


@pytest.mark.parametrize("width", [64, 512])
def test_answers_pass_long_packets(width):
    """No more long packets are built than the one that is going out and the next, and an answer
    follows at once."""
    lanes, taken = HeaderLanes(config=NicConfig(width=width)), []
    beats = 4096 * 8 // width

    async def bench(ctx):
        ctx.set(lanes.o.ready, 1)
        ctx.set(lanes.header.payload, {"length": 4096})
        ctx.set(lanes.header.valid, 1)
        await ctx.tick().repeat(60)
        assert taken == [4096]
        ctx.set(lanes.stepped, 1)
        await ctx.tick().repeat(beats - AHEAD - 2)
        assert taken == [4096]
        await ctx.tick().repeat(6)
        assert taken == [4096] * 2
        ctx.set(lanes.stepped, 0)
        ctx.set(lanes.answer.payload, {"psn": 1})
        ctx.set(lanes.answer.valid, 1)
        await ctx.tick()
        ctx.set(lanes.answer.valid, 0)
        await ctx.tick().repeat(4)
        assert taken == [4096, 4096, 0]

    simulate(lanes, bench, deadline=1000, background=(taker(lanes, taken),))


def taker(lanes, taken):
    async def take(ctx):
        async for *_, valid, ready, header in ctx.tick().sample(
            lanes.o.valid, lanes.o.ready, lanes.o.payload
        ):
            if valid and ready:
                taken.append(header.length)

    return take


def test_lanes_take_turns():
    """Many answers and many short packets: each lane has every other place."""
    lanes, taken = HeaderLanes(config=NicConfig(width=512)), []

    async def bench(ctx):
        ctx.set(lanes.header.payload, {"length": 64})
        for port in (lanes.header, lanes.answer):
            ctx.set(port.valid, 1)
        ctx.set(lanes.stepped, 0)
        for n in range(200):  # a packet in 4 cycles, and its beat
            ctx.set(lanes.o.ready, n % 4 == 0)
            ctx.set(lanes.stepped, n % 4 == 3 and taken[-1:] == [64])
            await ctx.tick()

    simulate(lanes, bench, deadline=1000, background=(taker(lanes, taken),))
    assert len(taken) == 50 and abs(taken.count(0) - 25) <= 1, taken


@pytest.mark.parametrize("seed", range(3))
def test_each_lane_keeps_its_order(seed):
    """Whatever is ready when: nothing is lost, and each lane comes in its order."""
    rng, lanes = random.Random(seed), HeaderLanes(config=NicConfig(width=64))
    lengths = [rng.choice((0, 1, 8, 100, 4096)) for _ in range(60)]
    taken, owed = [], [0]

    def sender(port, headers):
        async def send(ctx):
            for header in headers:
                await ctx.tick().repeat(rng.randrange(1, 30))
                ctx.set(port.payload, header)
                ctx.set(port.valid, 1)
                await ctx.tick().until(port.ready)
                ctx.set(port.valid, 0)

        return send

    async def line(ctx):
        while len(taken) < 2 * len(lengths):
            ctx.set(lanes.o.ready, rng.random() < 0.7)
            steps = owed[0] > 0 and rng.random() < 0.9
            ctx.set(lanes.stepped, steps)
            *_, valid, ready, header = await ctx.tick().sample(
                lanes.o.valid, lanes.o.ready, lanes.o.payload
            )
            owed[0] -= steps
            if valid and ready:
                taken.append((header.msn, header.psn))
                owed[0] += -(-header.length // 8)

    packets = [{"psn": n, "length": length} for n, length in enumerate(lengths)]
    answers = [{"psn": n, "msn": 1} for n in range(len(lengths))]
    simulate(
        lanes,
        line,
        sender(lanes.header, packets),
        sender(lanes.answer, answers),
        deadline=40_000,
    )
    for lane in (0, 1):
        assert [psn for one, psn in taken if one == lane] == list(range(len(lengths)))
