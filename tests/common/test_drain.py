"""Drain against a list of the jobs that are under way."""

import random

import pytest

from hdl.common.drain import Drain
from tests.simulate import Prepared, simulate

DRAIN = Prepared(Drain())
#: Cycles from the last job's end, or from ``start``, to ``done``.
LATENCY = 3


def play(rng: random.Random, cycles: int, *, enters: float, leaves: float, starts: float) -> int:
    """Jobs that come and go at random, two of them in a cycle; returns how many drains ended."""
    dut, ended = DRAIN.component, 0

    async def bench(ctx):
        nonlocal ended
        jobs: list[tuple[int, int]] = []  # admitted in this cycle, with this epoch
        since = None  # the moment that is waited for
        free = 0  # the last cycle in which a job from before it was under way
        for cycle in range(cycles):
            done, epoch = ctx.get(dut.done), ctx.get(dut.epoch)
            if since is not None:
                assert done == (cycle >= free + LATENCY), (cycle, free, jobs)
                if done:
                    since, ended = None, ended + 1
            start = rng.random() < starts
            ctx.set(dut.start, start)
            if start and since is None:
                since = free = cycle
            enter = rng.random() < enters and len(jobs) < 200
            ctx.set(dut.enter, enter)
            if enter:
                jobs.append((cycle, epoch))
            for n in range(2):
                old = [job for job in jobs if job[0] < cycle]
                leave = bool(old) and rng.random() < leaves
                job = rng.choice(old) if leave else (0, rng.randrange(2))
                ctx.set(getattr(dut, f"leave{n}"), leave)
                ctx.set(getattr(dut, f"epoch{n}"), job[1])
                if leave:
                    jobs.remove(job)
                    if since is not None and job[0] <= since:
                        free = cycle
            if since is not None and any(at <= since for at, _ in jobs):
                free = cycle + 1  # not before the next cycle
            await ctx.tick()

    simulate(DRAIN, bench, deadline=cycles + 10)
    return ended


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("enters, leaves", [(0.5, 0.4), (0.9, 0.44), (0.05, 0.5), (0, 0)])
def test_done_when_what_came_before_has_gone(seed, enters, leaves):
    """Never before, never later than it says, whatever comes meanwhile."""
    ended = play(random.Random(seed), 2500, enters=enters, leaves=leaves, starts=0.1)
    assert ended > 5
