"""ReadMerge: requests in turn, each as it was offered; completions to the engine of their tag."""

import random

import pytest

from hdl.config import NicConfig
from hdl.host.read_merge import ReadMerge
from tests.simulate import simulate

COUNT = 200


@pytest.mark.parametrize("idle,stall", [(0, 0), (0.5, 0), (0, 0.5), (0.6, 0.6)])
def test_requests_arrive_as_offered(idle, stall):
    """None is lost, none changes while the host has it wait, and neither engine waits for long."""
    config = NicConfig(width=64)
    dut, upper = ReadMerge(config=config), config.read_tags // 2

    def engine(number):
        async def source(ctx):
            rng, req = random.Random(number), getattr(dut, f"req{number}")
            for addr in range(COUNT):
                while rng.random() < idle:
                    await ctx.tick()
                ctx.set(req.payload, {"tag": number * upper, "addr": addr})
                ctx.set(req.valid, 1)
                await ctx.tick().until(req.ready)
                ctx.set(req.valid, 0)

        return source

    async def host(ctx):
        rng, addrs, seen, turns = random.Random(3), [0, 0], None, []
        while sum(addrs) < 2 * COUNT:
            ready = rng.random() >= stall
            ctx.set(dut.rd_req.ready, ready)
            *_, valid, payload = await ctx.tick().sample(dut.rd_req.valid, dut.rd_req.payload)
            if not valid:
                assert seen is None, "a request was taken back"
                continue
            now = (payload.tag, payload.addr)
            assert seen in (None, now), "a request changed"
            seen = None if ready else now
            if ready:
                number = payload.tag // upper
                assert payload.addr == addrs[number]
                addrs[number] += 1
                turns.append(number)
        if not idle:
            assert turns[: 2 * COUNT - 4].count(0) == COUNT - 2, "not in turn"

    simulate(dut, engine(0), engine(1), host)


def test_completions_find_their_engine():
    config = NicConfig(width=64)
    dut = ReadMerge(config=config)

    async def bench(ctx):
        ctx.set(dut.rd_rsp.valid, 1)
        for tag in range(config.read_tags):
            ctx.set(dut.rd_rsp.payload, {"tag": tag, "data": tag, "last": 1})
            await ctx.delay(1e-9)
            upper = tag >= config.read_tags // 2
            assert (ctx.get(dut.rsp0.valid), ctx.get(dut.rsp1.valid)) == (not upper, upper)
            assert ctx.get(getattr(dut, f"rsp{int(upper)}").payload.data) == tag

    simulate(dut, bench)
