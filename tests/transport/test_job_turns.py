"""Jobs and records of two sides that work at the same time: each record in its job's place."""

import random
from collections import deque

import pytest

from hdl.transport.receive.job_turns import JobTurns
from hdl.transport.receive.types import Pending
from tests.simulate import simulate

#: What a side hands over, in order: a job with its record, a record alone, or one that makes a key
#: invalid.
PAIR, ALONE, KEY = range(3)
SIDES = ("request", "completer")


async def play(ctx, dut, side: str, works: list[tuple[int, int]], rng: random.Random) -> None:
    """Hand over ``works`` (number, kind): the job first, or both at once, as responder and
    completer do; behind a key that becomes invalid nothing before it is decided."""
    job, record = getattr(dut, f"{side}_job"), getattr(dut, f"{side}_pending")
    for number, kind in works:
        for _ in range(rng.choice((0, 0, 1, 3))):
            await ctx.tick()
        ctx.set(job.payload.va, number)
        fields = {"qp": number, "jobless": kind == ALONE, "invalidate": kind == KEY}
        ctx.set(record.payload, Pending.const(fields))
        left = {job, record} if kind != ALONE else {record}
        if side == "request":
            ctx.set(dut.wanted, 1)
            for _ in range(rng.choice((0, 0, 1))):
                await ctx.tick()
        late = rng.random() < 0.5 and kind != ALONE
        while left:
            for port in (job, record):
                ctx.set(port.valid, port in left and not (late and port is record and job in left))
            taken = await ctx.tick().sample(*(p.valid & p.ready for p in (job, record)))
            left -= {p for p, gone in zip((job, record), taken[2:], strict=True) if gone}
        for port in (job, record):
            ctx.set(port.valid, 0)
        if side == "request":
            ctx.set(dut.wanted, 0)
        if kind == KEY:
            await ctx.tick().until(dut.decided)


@pytest.mark.parametrize("seed", range(4))
def test_records_come_in_the_order_of_their_jobs(seed: int) -> None:
    dut, rng = JobTurns(), random.Random(seed)
    kinds = [rng.choice((PAIR, PAIR, PAIR, ALONE, KEY)) for _ in range(300)]
    works = {
        side: [(n, kind) for n, kind in enumerate(kinds) if n % 2 == i]
        for i, side in enumerate(SIDES)
    }
    order: list[tuple[str, int]] = []
    undecided: deque[int] = deque()  # cycles that each record on its way still takes

    async def look(ctx):
        """Takes jobs and records at random times; says when all is decided."""
        while True:
            ctx.set(dut.job.ready, rng.random() < 0.6)
            ctx.set(dut.pending.ready, rng.random() < 0.6)
            *_, job, number, record, row = await ctx.tick().sample(
                dut.job.valid & dut.job.ready,
                dut.job.payload.va,
                dut.pending.valid & dut.pending.ready,
                dut.pending.payload,
            )
            if job:
                assert not set(invalidating) - {number}, "a job behind a key that is undecided"
                order.append(("job", number))
            if record:
                order.append(("record", row.qp))
                undecided.append(rng.randrange(1, 9))
                invalidating.extend([row.qp] * row.invalidate)
            elif undecided:
                undecided[0] -= 1
                if not undecided[0]:
                    undecided.popleft()
            if not undecided:
                invalidating.clear()
            ctx.set(dut.decided, not undecided)

    invalidating: list[int] = []
    sides = [
        lambda ctx, side=side: play(ctx, dut, side, works[side], random.Random(f"{seed} {side}"))
        for side in SIDES
    ]
    simulate(dut, *sides, background=(look,))
    jobs = [number for what, number in order if what == "job"]
    records = [number for what, number in order if what == "record"]
    assert [n for n in records if kinds[n] != ALONE] == jobs
    assert sorted(records) == list(range(300))
    for number in jobs:
        places = order.index(("job", number)), order.index(("record", number))
        assert abs(places[0] - places[1]) == 1, "nothing comes between a job and its record"
