"""Broken virtqueues: whom they are told to, each once, and none is lost."""

from __future__ import annotations

import random

import pytest

from hdl.config import NicConfig
from hdl.host.queue_errors import QueueErrors
from hdl.ports.jobs import QueueErrorCause
from tests.simulate import simulate

CONFIG = NicConfig(width=64, qps=8, cqs=4, mrs=8, gids=2, queue_size=16, read_resources=16)
TWO = NicConfig(
    width=64, functions=2, qps=16, cqs=8, mrs=8, gids=4, queue_size=16, read_resources=32
)
#: Cycles in which the firmware is told of a queue, at the latest.
PATIENCE = 4 * 64
CAUSE = QueueErrorCause.DESC_INDEX


class Bench:
    """One who finds errors, a firmware, and a function that notes what is told to it."""

    def __init__(self, ctx, dut):
        self.ctx, self.dut = ctx, dut

    async def start(self, isolates: int):
        """Waits until the rows are clear."""
        self.ctx.set(self.dut.isolates, isolates)
        self.ctx.set(self.dut.o.ready, 1)
        await self.ctx.tick().repeat(TWO.queues + 4)
        return self

    async def error(self, queue: int, cause=CAUSE) -> None:
        """An engine finds an error."""
        ctx, dut = self.ctx, self.dut
        ctx.set(dut.i.payload, {"queue": queue, "cause": cause})
        ctx.set(dut.i.valid, 1)
        await ctx.tick().until(dut.i.ready)
        ctx.set(dut.i.valid, 0)

    async def drop(self, queue: int) -> None:
        """The queue is dropped, and all is done that follows from it."""
        ctx, dut = self.ctx, self.dut
        ctx.set(dut.dropped.queue, queue)
        ctx.set(dut.dropped.valid, 1)
        await ctx.tick()
        ctx.set(dut.dropped.valid, 0)
        await ctx.tick().repeat(8)

    async def shown(self):
        """Queue and cause that the firmware sees; None: nothing comes."""
        ctx, dut = self.ctx, self.dut
        for _ in range(PATIENCE):
            if ctx.get(dut.broken.valid):
                return ctx.get(dut.broken.queue), QueueErrorCause(ctx.get(dut.broken.cause))
            await ctx.tick()
        return None

    async def done(self) -> None:
        """The firmware has seen to it."""
        self.ctx.set(self.dut.broken.done, 1)
        await self.ctx.tick()
        self.ctx.set(self.dut.broken.done, 0)

    async def told(self, queue: int, cause=CAUSE) -> bool:
        """Whether an error goes on to the function."""
        ctx, dut = self.ctx, self.dut
        await self.error(queue, cause)
        for _ in range(8):
            if ctx.get(dut.o.valid):
                assert ctx.get(dut.o.payload.queue) == queue
                assert QueueErrorCause(ctx.get(dut.o.payload.cause)) == cause
                await ctx.tick()
                return True
            await ctx.tick()
        return False


def run(config, isolates, bench):
    """Simulates ``bench`` with the functions of ``isolates``, a mask, that have negotiated it."""
    dut = QueueErrors(config=config)

    async def body(ctx):
        await bench(await Bench(ctx, dut).start(isolates))

    simulate(dut, body)


def test_who_is_told():
    """Control queue and event queue, and all queues of a function without the feature: it needs a
    reset. Others are the firmware's."""

    async def bench(b):
        first = 1 << TWO.number_bits["queues"]
        for queue in (0, TWO.event_queue, first, first + 1, first + TWO.event_queue):
            assert await b.told(queue), queue
        for queue in (1, TWO.sq_queue(2), TWO.rq_queue(3), TWO.event_queue - 1):
            assert not await b.told(queue), queue
            assert await b.shown() == (queue, CAUSE)
            await b.done()
        assert b.ctx.get(b.dut.errors) == 9

    run(TWO, 0b01, bench)


def test_nobody_has_negotiated_it():
    """Each error is the function's, as without the extension."""

    async def bench(b):
        for queue in range(CONFIG.queues):
            assert await b.told(queue)
        assert await b.shown() is None

    run(CONFIG, 0, bench)


def test_once_in_a_life():
    """An error that is found again is not told again, before it was seen to and after; a dropped
    queue is as new, also while it waits or is shown."""

    async def bench(b):
        for _ in range(3):
            await b.error(5, QueueErrorCause.AVAIL_INDEX)
            await b.error(5)
            assert await b.shown() == (5, QueueErrorCause.AVAIL_INDEX), "the first one"
            await b.error(5)
            await b.done()
            await b.error(5)
            assert await b.shown() is None
            await b.drop(5)
        await b.error(5)
        assert await b.shown() == (5, CAUSE)
        await b.error(6)
        await b.drop(6)  # it waits behind the other
        await b.drop(5)  # it is shown
        assert await b.shown() is None
        await b.error(6)
        assert await b.shown() == (6, CAUSE)

    run(CONFIG, 1, bench)


@pytest.mark.parametrize("seed", range(3))
def test_a_flood_loses_nothing(seed):
    """Some queues have errors without end; each of the others is told of all the same."""
    rng = random.Random(seed)

    async def bench(b):
        queues = range(1, CONFIG.event_queue)
        left, seen = set(queues), []
        noisy = rng.sample(queues, 3)
        while left:
            queue = rng.choice(noisy) if rng.random() < 0.8 else rng.choice(sorted(left))
            await b.error(queue)
            left.discard(queue)
            if b.ctx.get(b.dut.broken.valid) and rng.random() < 0.2:  # the firmware is slow
                seen.append(b.ctx.get(b.dut.broken.queue))
                await b.done()
        assert seen, "some are shown while errors come without a pause"
        while (found := await b.shown()) is not None:
            seen.append(found[0])
            await b.done()
        assert sorted(seen) == list(queues)

    run(CONFIG, 1, bench)


def test_turns():
    """The queue that breaks again and again does not keep one behind it from being shown."""

    async def bench(b):
        await b.error(3)
        assert await b.shown() == (3, CAUSE)
        await b.error(9)
        seen = []
        for _ in range(4):
            seen.append((await b.shown())[0])
            await b.drop(3)
            await b.error(3)
            await b.done()
        assert 9 in seen[:3], seen

    run(CONFIG, 1, bench)
