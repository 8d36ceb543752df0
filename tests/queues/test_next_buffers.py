"""Buffers read ahead of completions, against a ring of which each place is used again."""

import random
from collections import deque

from amaranth.sim import Simulator

from hdl.config import NicConfig
from hdl.queues.completion.next_buffers import NextBuffers

#: Positions after which a CQ is at the same one again: as 65536, but soon.
LAP = 16
CQS, LINES = 3, 2


class Rings:
    """CQs whose buffers lie somewhere else at each turn, and a reader that takes a while."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.places: dict[tuple[int, int], int] = {}
        self.used = [0] * CQS  # buffers that had a completion
        self.asked: deque = deque()  # jobs in the reader
        self.waiting: deque = deque()  # buffers that `given` owes to completions
        self.owed: deque = deque()  # buffers that `taken` owes
        self.ahead = self.hits = self.odd = 0

    def address(self, cq: int, count: int) -> int:
        return self.places.setdefault((cq, count), self.rng.getrandbits(64))

    def at(self, cq: int, position: int) -> int:
        """Which buffer lies at a position now: one that is not used yet, or just about to be."""
        first = max(0, self.used[cq] - 1)
        return next(n for n in range(first, first + LAP) if n % LAP == position)


async def complete(ctx, dut, rings: Rings, cq: int) -> None:
    """One completion: it looks for its buffer here, and has it read if that is not there."""
    n = rings.used[cq]
    ctx.set(dut.cq, cq)
    ctx.set(dut.look, 1)
    await ctx.tick()
    ctx.set(dut.look, 0)
    kept = ctx.get(dut.kept)
    hit = kept and ctx.get(dut.position) == n % LAP
    ctx.set(dut.drop, kept)
    ctx.set(dut.take, hit)
    job = {"request": {"qp": cq, "queue": 1 + cq, "position": n % LAP, "known": 0}}
    ctx.set(dut.i.payload, job)
    if hit:
        rings.owed.append(rings.address(cq, n))
        rings.hits += 1
        ctx.set(dut.used, 1)
        rings.used[cq] += 1
        await ctx.tick()
        ctx.set(dut.used, 0)
    else:
        rings.waiting.append(rings.address(cq, n))
        ctx.set(dut.i.valid, 1)
        while not ctx.get(dut.i.ready):
            await ctx.tick()
            ctx.set(dut.drop, 0)
        ctx.set(dut.used, 1)
        rings.used[cq] += 1
        await ctx.tick()
        ctx.set(dut.i.valid, 0)
        ctx.set(dut.used, 0)
    ctx.set(dut.drop, 0)
    ctx.set(dut.take, 0)


def simulate(seed: int, gaps: tuple[int, ...], count: int = 250) -> Rings:
    """Completions of CQs at random, with pauses of ``gaps`` cycles."""
    dut = NextBuffers(config=NicConfig(cqs=4), lines=LINES, waiting=16, most=65536)
    rings = Rings(seed)
    over = False

    async def completions(ctx):
        nonlocal over
        for _ in range(count):
            while len(rings.waiting) + len(rings.owed) > 12:
                await ctx.tick()
            await complete(ctx, dut, rings, rings.rng.randrange(CQS))
            # A job that is being decided about keeps others from beginning.
            ctx.set(dut.hold, rings.rng.random() < 0.1)
            for _ in range(rings.rng.choice(gaps)):
                await ctx.tick()
        ctx.set(dut.hold, 0)
        for _ in range(100):
            await ctx.tick()
        assert not rings.waiting and not rings.owed and not rings.asked
        assert not ctx.get(dut.reading)
        over = True

    async def reader(ctx):
        ctx.set(dut.o.ready, 1)
        now = 0
        while not over:
            now += 1
            element = rings.asked[0] if rings.asked and rings.asked[0][0] <= now else None
            ctx.set(dut.element.valid, element is not None)
            if element is not None:
                ctx.set(dut.element.payload, element[1])
            _, _, asks, job, taken = await ctx.tick().sample(
                dut.o.valid & dut.o.ready, dut.o.payload, dut.element.valid & dut.element.ready
            )
            if taken:
                rings.asked.popleft()
            if asks:
                cq, position = job.request.qp, job.request.position % LAP
                odd = rings.rng.random() < 0.1
                address = rings.address(cq, rings.at(cq, position))
                rings.odd += odd
                late = now + rings.rng.randrange(6, 20)
                rings.asked.append((late, {"head": position, "addr": address, "odd": odd}))

    async def takers(ctx):
        while not over:
            given_ready, taken_ready = (rings.rng.random() < 0.8 for _ in range(2))
            ctx.set(dut.given.ready, given_ready)
            ctx.set(dut.taken.ready, taken_ready)
            _, _, given, element, taken, buffer = await ctx.tick().sample(
                dut.given.valid & dut.given.ready,
                dut.given.payload,
                dut.taken.valid & dut.taken.ready,
                dut.taken.payload,
            )
            if given:
                assert element.addr == rings.waiting.popleft()
            if taken:
                assert buffer.addr == rings.owed.popleft()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    for bench in (completions, reader, takers):
        simulator.add_testbench(bench)
    simulator.run()
    return rings


def test_each_completion_has_its_own_buffer():
    """Amid all loads: what is taken here is the buffer that lies there now, not one of a turn
    before, and what is not here comes from the reader, in order."""
    for seed, gaps in enumerate(((0, 1, 9, 60), (0,) * 60 + (80,), (0,))):
        rings = simulate(seed, gaps, count=250 if 9 in gaps else 800)
        assert min(rings.used) > 2 * LAP
        assert rings.odd
        if 9 in gaps:
            assert rings.hits > 20


def test_completions_that_come_alone_find_their_buffer():
    rings = simulate(9, (60,), count=100)
    # All but the first of each CQ, those whose line another CQ has, and odd ones.
    assert rings.hits > 30
