"""Fence against plain counts, and the frames' adapter, in Amaranth's simulator."""

import random

import pytest

from hdl.axi.frames import AxiStreamIn
from hdl.axi.host import AxiHost
from hdl.axi.order import Fence
from hdl.axi.writes import AxiWrites
from hdl.config import NicConfig
from tests.simulate import simulate

BURSTS = 6


@pytest.mark.parametrize("stall", [0, 0.5])
@pytest.mark.parametrize("late", [1, 30])
def test_fence(stall, late):
    """Beats leave in order, none before the bursts that were taken before it."""
    dut, count = Fence(shape=8, depth=4, bursts=BURSTS), 300
    before: list[int] = []  # bursts taken before each beat
    taken, done = 0, 0

    async def bench(ctx):
        nonlocal taken, done
        rng, left, due = random.Random(1), 0, []
        while left < count:
            ctx.set(dut.i.valid, len(before) < count and rng.random() < 0.5)
            ctx.set(dut.i.payload, len(before) % 256)
            ctx.set(dut.o.ready, rng.random() >= stall)
            take = taken - done < BURSTS and rng.random() < 0.3
            finish = bool(due) and due[0] <= 0
            ctx.set(dut.taken, take)
            ctx.set(dut.done, finish)
            if ctx.get(dut.o.valid):
                assert done >= before[left], left
                assert ctx.get(dut.o.payload) == left % 256
                left += ctx.get(dut.o.ready)
            if ctx.get(dut.i.valid) and ctx.get(dut.i.ready):
                before.append(taken)
            due = [one - 1 for one in due[finish:]] + [rng.randint(1, late)] * take
            taken, done = taken + take, done + finish
            await ctx.tick()

    simulate(dut, bench, deadline=30_000)


def test_one_burst_at_a_time():
    """With one burst no address follows before the response of the one before it."""
    dut = AxiWrites(config=NicConfig(width=64, read_tags=32), bursts=1, cache=2, wires=0, window=0)
    seen: list[int] = []
    due: list[int] = []

    async def offer(ctx):
        for n in range(30):
            beats = 1 + n % 3
            for at in range(beats):
                ctx.set(dut.wr.payload.addr, 4096 * n + 8 * at)
                ctx.set(dut.wr.payload.length, 8 * beats)
                ctx.set(dut.wr.payload.strb, 0xFF)
                ctx.set(dut.wr.payload.first, at == 0)
                ctx.set(dut.wr.payload.last, at == beats - 1)
                ctx.set(dut.wr.valid, 1)
                await ctx.tick().until(dut.wr.ready)
            ctx.set(dut.wr.valid, 0)

    async def memory(ctx):
        rng = random.Random(3)
        while len(seen) < 30 or due:
            answer = bool(due) and due[0] <= 0 and len(seen) > responses[0]
            ctx.set(dut.axi.bvalid, answer)
            due[:] = [one - 1 for one in due[answer:]]
            ctx.set(dut.axi.awready, rng.random() < 0.5)
            ctx.set(dut.axi.wready, rng.random() < 0.5)
            if ctx.get(dut.axi.awvalid) and ctx.get(dut.axi.awready):
                number = ctx.get(dut.axi.awaddr) // 4096
                assert number == len(seen) and ctx.get(dut.axi.awlen) == number % 3
                assert responses[0] == number, "a burst before the last response"
                seen.append(number)
            if ctx.get(dut.axi.wvalid) and ctx.get(dut.axi.wready) and ctx.get(dut.axi.wlast):
                due.append(rng.randint(1, 20))
            responses[0] += answer
            await ctx.tick()

    responses = [0]
    simulate(dut, offer, memory)


def test_first_beats():
    """A packet stream says where frames begin; errors count with the last beat only."""
    dut = AxiStreamIn(width=64)

    async def bench(ctx):
        rng = random.Random(4)
        ctx.set(dut.i.tvalid, 1)
        for size in [1, 2, 1, 5, 3, 1]:
            for n in range(size):
                last = n == size - 1
                ctx.set(dut.i.tlast, last)
                ctx.set(dut.i.tuser, 1)
                for ready in (0, 0, 1) if rng.random() < 0.5 else (1,):
                    ctx.set(dut.o.ready, ready)
                    assert ctx.get(dut.o.payload.first) == (n == 0)
                    assert ctx.get(dut.o.payload.last) == ctx.get(dut.o.payload.error) == last
                    assert ctx.get(dut.i.tready) == ready
                    await ctx.tick()

    simulate(dut, bench)


def test_bad_parameters():
    config = NicConfig(width=64)
    for settings, message in (
        ({"bursts": 0}, "Write bursts must be 1 to 256, not 0"),
        ({"wires": 2000}, "Interrupt wires must be 0 to 1024, not 2000"),
        ({"window": 5}, "must be at a page's address, not 5"),
        ({"cache": 16}, "Cache must be 0 to 15, not 16"),
    ):
        with pytest.raises(ValueError, match=message):
            AxiHost(config=config, **settings)
    with pytest.raises(ValueError, match="Bursts must be at least 1, not 0"):
        Fence(shape=1, depth=4, bursts=0)
