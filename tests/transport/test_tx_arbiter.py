"""TxArbiter: answers to whose job it was, turns, and no answers for the replier's ACKs."""

import random
from collections import deque

import pytest

from hdl.ports.jobs import TxSource
from hdl.transport.send.tx_arbiter import TxArbiter
from tests.simulate import simulate


async def gather(ctx, arbiter, taken, *, latency, every=1):
    """Takes a job every so many cycles, answers in order with the job's line as status."""
    waiting, cycle, free_from = deque(), 0, 0
    while True:
        ctx.set(arbiter.job.ready, cycle >= free_from)
        due = bool(waiting) and waiting[0][0] <= cycle
        ctx.set(arbiter.checked.valid, due)
        if due:
            ctx.set(arbiter.checked.payload.status, waiting[0][1])
        *_, valid, ready, job, answered = await ctx.tick().sample(
            arbiter.job.valid, arbiter.job.ready, arbiter.job.payload, arbiter.checked.ready
        )
        cycle += 1
        if due and answered:
            waiting.popleft()
        if valid and ready:
            taken.append((job.pd, job.source))
            waiting.append((cycle + latency, job.line))
            free_from = cycle + every - 1


async def requester(ctx, arbiter, count, answers, rng=None):
    """``count`` jobs of side 0, ahead of their answers."""
    ctx.set(arbiter.checked0.ready, 1)
    sent = 0
    payload = {"pd": 0, "source": TxSource.LINE}
    offered = False
    while sent < count or len(answers) < count:
        if not offered and sent < count and (rng is None or rng.random() < 0.5):
            offered = True
            ctx.set(arbiter.job0.payload, payload | {"line": sent % 100})
        ctx.set(arbiter.job0.valid, offered)
        if rng:
            ctx.set(arbiter.checked0.ready, rng.random() < 0.6)
        *_, ready, valid, takes, answer = await ctx.tick().sample(
            arbiter.job0.ready,
            arbiter.checked0.valid,
            arbiter.checked0.ready,
            arbiter.checked0.payload,
        )
        if offered and ready:
            sent, offered = sent + 1, False
        if valid and takes:
            answers.append(answer.status)


async def replier(ctx, arbiter, sources, answers):
    """Side 1: ahead of its answers, of which those of jobs without payload never come."""
    wanted, sent = sum(source == TxSource.KEY for source in sources), 0
    ctx.set(arbiter.checked1.ready, 1)
    while sent < len(sources) or len(answers) < wanted:
        ctx.set(arbiter.job1.valid, sent < len(sources))
        if sent < len(sources):
            fields = {"pd": 1, "source": sources[sent], "line": 100 + sent % 100}
            ctx.set(arbiter.job1.payload, fields)
        *_, taken, answered, answer = await ctx.tick().sample(
            arbiter.job1.ready, arbiter.checked1.valid, arbiter.checked1.payload
        )
        sent += bool(taken and sent < len(sources))
        if answered:
            answers.append(answer.status)


@pytest.mark.parametrize("seed", range(3))
def test_answers_go_to_their_side(seed):
    rng, arbiter = random.Random(seed), TxArbiter()
    sources = [rng.choice((TxSource.KEY, TxSource.NONE)) for _ in range(60)]
    taken, answers = [], ([], [])

    async def bench(ctx):
        await requester(ctx, arbiter, 150, answers[0], rng)

    async def other(ctx):
        await replier(ctx, arbiter, sources, answers[1])

    async def model(ctx):
        await gather(ctx, arbiter, taken, latency=rng.choice((1, 12)))

    simulate(arbiter, bench, other, deadline=5000, background=(model,))
    assert answers[0] == [n % 100 for n in range(150)]
    assert answers[1] == [100 + n for n, one in enumerate(sources) if one == TxSource.KEY]
    assert [source for side, source in taken if side == 1] == sources


def test_both_sides_have_half_of_the_wire():
    arbiter, taken, answers = TxArbiter(), [], ([], [])

    async def bench(ctx):
        await replier(ctx, arbiter, [TxSource.KEY] * 60, answers[1])

    async def other(ctx):
        await requester(ctx, arbiter, 10_000, answers[0])

    async def model(ctx):
        await gather(ctx, arbiter, taken, latency=12, every=20)  # the wire's time of a packet

    simulate(arbiter, bench, deadline=5000, background=(model, other))
    sides = [side for side, _ in taken]
    while_both = sides[sides.index(1) : len(sides) - sides[::-1].index(1)]
    assert 0.4 < sum(while_both) / len(while_both) < 0.6, while_both


def test_an_offered_job_stays():
    """The other side's job waits, although it would be its turn. A contract looks at each cycle."""
    arbiter, taken = TxArbiter(), []

    async def bench(ctx):
        for port, side in ((arbiter.job0, 0), (arbiter.job1, 1)):
            ctx.set(port.payload, {"pd": side, "source": TxSource.LINE})
            ctx.set(port.valid, 1)
            await ctx.tick()
            ctx.set(port.valid, 0)
            await ctx.tick().repeat(3)
        ctx.set(arbiter.job.ready, 1)
        async for *_, valid, job in ctx.tick().sample(arbiter.job.valid, arbiter.job.payload):
            taken.extend([job.pd] * valid)
            if len(taken) == 2:
                break

    simulate(arbiter, bench, deadline=50)
    assert taken == [0, 1]


def test_requester_alone_has_every_other_cycle():
    arbiter, taken, answers, spent = TxArbiter(), [], [], []

    async def bench(ctx):
        await requester(ctx, arbiter, 100, answers)
        spent.append(1)

    async def model(ctx):
        await gather(ctx, arbiter, taken, latency=12)

    simulate(arbiter, bench, deadline=225, background=(model,))
    assert spent
