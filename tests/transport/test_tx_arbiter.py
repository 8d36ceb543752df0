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
    rng, arbiter = random.Random(seed), TxArbiter(qps=16)
    sources = [rng.choice((TxSource.KEY, TxSource.NONE)) for _ in range(60)]
    taken, answers = [], ([], [])

    async def bench(ctx):
        await requester(ctx, arbiter, 150, answers[0], rng)

    async def other(ctx):
        await replier(ctx, arbiter, sources, answers[1])

    async def model(ctx):
        await gather(ctx, arbiter, taken, latency=rng.choice((1, 12)))

    async def line(ctx):
        ctx.set(arbiter.answer.ready, 1)

    simulate(arbiter, bench, other, deadline=5000, background=(model, line))
    assert answers[0] == [n % 100 for n in range(150)]
    assert answers[1] == [100 + n for n, one in enumerate(sources) if one == TxSource.KEY]


@pytest.mark.parametrize("seed", range(3))
def test_order_of_a_qp_stays(seed):
    """Packets without payload pass others, but none of their own QP, whether those leave or are
    refused; and few wait that need not."""
    rng, arbiter = random.Random(seed), TxArbiter(qps=16)
    jobs = [(rng.randrange(16), rng.random() < 0.5) for _ in range(1500)]
    checks, way, told, direct = deque(), deque(), [], []

    async def replier(ctx):
        for psn, (qp, reads) in enumerate(jobs):
            source = TxSource.KEY if reads else TxSource.NONE
            ctx.set(arbiter.job1.payload, {"qp": qp, "source": source, "header": {"psn": psn}})
            ctx.set(arbiter.job1.valid, 1)
            await ctx.tick().until(arbiter.job1.ready)
            ctx.set(arbiter.job1.valid, 0)
            await ctx.tick().repeat(rng.choice((1, 1, 8, 40)))
        await ctx.tick().repeat(200)

    async def long_way(ctx):
        """Checks each job, and lets it leave much later, or refuses it."""
        ctx.set(arbiter.checked1.ready, 1)
        cycle = 0
        while True:
            ctx.set(arbiter.job.ready, rng.random() < 0.7)
            due = bool(checks) and checks[0][0] <= cycle
            refused = due and checks[0][2]
            ctx.set(arbiter.checked.valid, due)
            ctx.set(arbiter.checked.payload.status, 10 * refused)
            leaves = bool(way) and way[0][0] <= cycle
            ctx.set(arbiter.left, leaves)
            if leaves:
                psn, qp, number = way.popleft()[1]
                ctx.set(arbiter.left_number, number)
                told.append((qp, psn))
            *_, valid, ready, job, taken = await ctx.tick().sample(
                arbiter.job.valid, arbiter.job.ready, arbiter.job.payload, arbiter.checked.ready
            )
            cycle += 1
            if due and taken:
                _, packet, refused = checks.popleft()
                if not refused:
                    way.append((cycle + 60, packet))
            if valid and ready:
                departure = job.header.departure
                assert departure.answer
                refuses = job.source == TxSource.KEY and rng.random() < 0.2
                packet = job.header.psn, job.qp, departure.psn
                checks.append((cycle + 12, packet, refuses))

    async def short_way(ctx):
        while True:
            ctx.set(arbiter.answer.ready, rng.random() < 0.7)
            *_, valid, ready, header = await ctx.tick().sample(
                arbiter.answer.valid, arbiter.answer.ready, arbiter.answer.payload
            )
            if valid and ready:
                assert not header.departure.answer
                direct.append(header.psn)
                told.append((jobs[header.psn][0], header.psn))

    simulate(arbiter, replier, deadline=60_000, background=(long_way, short_way))
    for qp in range(16):
        psns = [psn for one, psn in told if one == qp]
        assert psns == sorted(psns), (qp, psns)
    assert not way and not checks
    assert len(direct) > 250, len(direct)
    assert {psn for _, psn in told} >= {n for n, (_, reads) in enumerate(jobs) if not reads}


def test_both_sides_have_half_of_the_wire():
    arbiter, taken, answers = TxArbiter(qps=16), [], ([], [])

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
    arbiter, taken = TxArbiter(qps=16), []

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
    arbiter, taken, answers, spent = TxArbiter(qps=16), [], [], []

    async def bench(ctx):
        await requester(ctx, arbiter, 100, answers)
        spent.append(1)

    async def model(ctx):
        await gather(ctx, arbiter, taken, latency=12)

    simulate(arbiter, bench, deadline=225, background=(model,))
    assert spent
