"""Two reads of one avail index, for a notification and for a request, ending in either order."""

import pytest
from amaranth.hdl import Elaboratable, Module
from amaranth.lib.wiring import connect

from hdl.config import NicConfig
from hdl.ports.sources import queue_of
from hdl.queues.receive.answers import RecvAnswers
from hdl.queues.receive.prefetch import RecvPrefetch
from hdl.queues.receive.sources import RecvSources
from tests.simulate import simulate

CONFIG = NicConfig(width=64, qps=32, cqs=4, mrs=2, gids=1, vectors=8, recv_lines=32)
SIZE_LOG2, LINE, FREE = 4, 3, 8


class Bench(Elaboratable):
    """The rows of sources with the machines that answer and prefetch."""

    def __init__(self):
        self.sources = RecvSources(config=CONFIG)
        self.answers = RecvAnswers(config=CONFIG)
        self.prefetch = RecvPrefetch(config=CONFIG)

    def elaborate(self, platform):
        m = Module()
        sources, answers, prefetch = self.sources, self.answers, self.prefetch
        m.submodules.sources, m.submodules.answers = sources, answers
        m.submodules.prefetch = prefetch
        for one, other in (
            (answers.access, sources.answers),
            (prefetch.access, sources.prefetch),
            (answers.linked, sources.linked0),
            (prefetch.link, sources.link),
            (prefetch.own, sources.own),
            (answers.answered, prefetch.more),
            (answers.demand, prefetch.demand),
        ):
            connect(m, one, other)
        m.d.comb += [
            answers.starved.eq(prefetch.starved),
            # Every line holds the WQE that is asked for; there are always lines.
            answers.good_line.eq(1),
            answers.room.eq(1),
            answers.tag.row.queue.eq(queue_of(CONFIG, answers.waiting_source)),
            prefetch.room.eq(1),
            prefetch.spare.eq(LINE),
            prefetch.spare_valid.eq(1),
            prefetch.free.eq(FREE),
            prefetch.job.ready.eq(1),
            sources.queue_read.row.enabled.eq(1),
            sources.queue_read.row.size_log2.eq(SIZE_LOG2),
        ]
        return m

    async def asked(self, ctx, client) -> None:
        """Take the read that is asked for."""
        ctx.set(client.req.ready, 1)
        await ctx.tick().until(client.req.valid)
        ctx.set(client.req.ready, 0)

    async def answer(self, ctx, client, index: int) -> None:
        beat = {"data": index, "keep": 3, "first": 1, "last": 1}
        ctx.set(client.rsp.payload, beat)
        ctx.set(client.rsp.valid, 1)
        await ctx.tick()
        ctx.set(client.rsp.valid, 0)


@pytest.mark.parametrize("first", ["notification", "request"])
def test_what_is_fetched_for_a_request_is_there(first):
    """The request's index was read later, so what it says stays true, whenever the other comes."""
    bench = Bench()
    answers, prefetch = bench.answers, bench.prefetch
    jobs = []

    async def note_jobs(ctx):
        job = prefetch.job
        async for *_, valid, payload in ctx.tick().sample(job.valid, job.payload):
            if valid:
                request = payload.request
                jobs.append((request.qp, request.position, request.known))

    async def testbench(ctx):
        await ctx.tick().repeat(2 * CONFIG.qps)  # the rows are cleared
        ctx.set(answers.rsp.ready, 1)
        for source in range(1, CONFIG.qps):
            gap = source
            ctx.set(prefetch.doorbell.payload.qp, source)
            ctx.set(prefetch.doorbell.valid, 1)
            await ctx.tick().until(prefetch.doorbell.ready)
            ctx.set(prefetch.doorbell.valid, 0)
            await bench.asked(ctx, prefetch.read_client)  # before anything was available
            ctx.set(answers.req.payload, {"qp": source, "source": {"kind": 0, "number": source}})
            ctx.set(answers.req.payload.last, 1)
            ctx.set(answers.req.valid, 1)
            await ctx.tick().until(answers.req.ready)
            ctx.set(answers.req.valid, 0)
            await bench.asked(ctx, answers.read_client)  # a WQE is available by now
            reads = [(prefetch.read_client, 0), (answers.read_client, 1)]
            (one, its), (other, others) = reads if first == "notification" else reversed(reads)
            await bench.answer(ctx, one, its)
            await ctx.tick().repeat(gap)
            await bench.answer(ctx, other, others)
            for _ in range(40):
                if ctx.get(prefetch.read_client.req.valid):  # for what comes behind it
                    await bench.asked(ctx, prefetch.read_client)
                    await bench.answer(ctx, prefetch.read_client, 1)
                await ctx.tick()
            assert jobs == [(source, 0, 1)], gap
            jobs.clear()

    simulate(bench, testbench, background=[note_jobs])
