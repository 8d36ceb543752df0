"""Skid, Register, Stage, StreamFifo and ActivationList against plain Python models."""

import random
from collections import Counter

import pytest
from amaranth.lib import data

from hdl.common.activation import ActivationList
from hdl.common.fifo import StreamFifo
from hdl.common.skid import Register, Skid, Stage
from tests.simulate import simulate


@pytest.mark.parametrize(
    "make,pace",
    [
        (lambda: Skid(shape=16), 1),
        (lambda: Register(shape=16), 2),
        (lambda: Stage(shape=16), 1),
        (lambda: StreamFifo(shape=16, depth=4), 1),
    ],
)
@pytest.mark.parametrize("idle,stall", [(0, 0), (0.5, 0), (0, 0.5), (0.3, 0.3)])
def test_order_is_kept(make, pace, idle, stall):
    """``pace``: cycles for each beat."""
    dut, count = make(), 200

    async def source(ctx):
        rng = random.Random(2)
        for value in range(count):
            while rng.random() < idle:
                await ctx.tick()
            ctx.set(dut.i.payload, value)
            ctx.set(dut.i.valid, 1)
            await ctx.tick().until(dut.i.ready)
            ctx.set(dut.i.valid, 0)

    async def sink(ctx):
        rng, cycles = random.Random(3), 0
        for value in range(count):
            while rng.random() < stall:
                cycles += 1
                await ctx.tick()
            ctx.set(dut.o.ready, 1)
            while True:
                _, _, valid, payload = await ctx.tick().sample(dut.o.valid, dut.o.payload)
                cycles += 1
                if valid:
                    break
            ctx.set(dut.o.ready, 0)
            assert payload == value
        if not idle and not stall:
            assert cycles <= pace * count + 3, f"{cycles} cycles for {count} beats"

    simulate(dut, source, sink)


@pytest.mark.parametrize("block", [False, "value", True])
@pytest.mark.parametrize("idle,stall", [(0, 0), (0.5, 0), (0, 0.5), (0.3, 0.3), (0.9, 0.05)])
def test_bypass(idle, stall, block):
    """Order is kept; what is waited for comes in the cycle in which it is given."""
    shape = data.StructLayout({"value": 16, "last": 1})
    dut, count = StreamFifo(shape=shape, depth=4, bypass="last", block=block), 300
    passed = Counter()

    async def source(ctx):
        rng = random.Random(4)
        for value in range(count):
            while rng.random() < idle:
                await ctx.tick()
            ctx.set(dut.i.payload, {"value": value, "last": value % 3 == 2})
            ctx.set(dut.i.valid, 1)
            await ctx.tick().until(dut.i.ready)
            ctx.set(dut.i.valid, 0)

    async def sink(ctx):
        rng, value, signals = random.Random(5), 0, (dut.i.valid, dut.level, dut.o.valid)
        while value < count:
            if rng.random() < stall:
                await ctx.tick()
                continue
            ctx.set(dut.o.ready, 1)
            waiting, ended = False, False
            while not ended:  # ready stays up to a last one
                *_, given, level, valid, payload = await ctx.tick().sample(*signals, dut.o.payload)
                if waiting and given:
                    assert valid, "a beat that was waited for did not pass"
                    passed[payload.last] += 1
                waiting = level == 0 and (valid or not given)
                if valid:
                    assert (payload.value, payload.last) == (value, value % 3 == 2)
                    value += 1
                    ended = payload.last
            ctx.set(dut.o.ready, 0)

    simulate(dut, source, sink)
    if idle:
        assert passed[0] > 10 and passed[1] > 10


def test_activations_merge_and_rotate():
    dut = ActivationList(qps=8, sets=2)

    async def bench(ctx):
        async def put(port, qp, flags):
            ctx.set(port.payload, {"qp": qp, "flags": flags})
            ctx.set(port.valid, 1)
            await ctx.tick().until(port.ready)
            ctx.set(port.valid, 0)

        async def take():
            ctx.set(dut.o.ready, 1)
            *_, payload = await ctx.tick().sample(dut.o.payload).until(dut.o.valid)
            ctx.set(dut.o.ready, 0)
            return payload.qp, payload.flags

        await put(dut.set0, 5, 1)
        for _ in range(8):
            await ctx.tick()  # 5 moves to the output
        await put(dut.set0, 3, 1)
        await put(dut.set1, 6, 2)
        await put(dut.set1, 3, 4)
        await put(dut.set0, 5, 8)
        await put(dut.set0, 2, 0)
        assert await take() == (5, 1)
        assert await take() == (3, 5)
        assert await take() == (6, 2)
        assert await take() == (5, 8)
        assert ctx.get(dut.level) == 0

    simulate(dut, bench)


def test_an_activation_when_nobody_waits():
    """Two cycles from a set to the output, each time, and its flags are not given again."""
    dut = ActivationList(qps=8, sets=1)

    async def bench(ctx):
        ctx.set(dut.o.ready, 1)
        while not ctx.get(dut.ready):
            await ctx.tick()
        for qp, flags in ((5, 1), (5, 2), (3, 4), (5, 4)):
            ctx.set(dut.set0.payload, {"qp": qp, "flags": flags})
            ctx.set(dut.set0.valid, 1)
            assert ctx.get(dut.set0.ready)
            await ctx.tick()
            ctx.set(dut.set0.valid, 0)
            assert not ctx.get(dut.o.valid)
            await ctx.tick()
            assert ctx.get(dut.o.valid) and ctx.get(dut.level) == 0
            assert (ctx.get(dut.o.payload.qp), ctx.get(dut.o.payload.flags)) == (qp, flags)
            await ctx.tick()
            assert not ctx.get(dut.o.valid)

    simulate(dut, bench)


def test_every_activation_is_served():
    dut, qps, rounds = ActivationList(qps=16, sets=2), 16, 300
    sets: Counter[tuple[int, int]] = Counter()
    takes: Counter[tuple[int, int]] = Counter()
    waiting: set[tuple[int, int]] = set()  # set and not seen at the output since

    def setter(port, seed):
        async def run(ctx):
            rng = random.Random(seed)
            for _ in range(rounds):
                qp, flag = rng.randrange(qps), rng.randrange(4)
                ctx.set(port.payload, {"qp": qp, "flags": 1 << flag})
                ctx.set(port.valid, 1)
                await ctx.tick().until(port.ready)
                sets[qp, flag] += 1
                waiting.add((qp, flag))
                ctx.set(port.valid, 0)

        return run

    async def taker(ctx):
        rng, quiet = random.Random(9), 0
        while quiet < 60:
            ctx.set(dut.o.ready, rng.random() < 0.3)
            _, _, valid, ready, payload = await ctx.tick().sample(
                dut.o.valid, dut.o.ready, dut.o.payload
            )
            quiet = 0 if valid else quiet + 1
            if valid and ready:
                for flag in range(4):
                    if payload.flags >> flag & 1:
                        takes[payload.qp, flag] += 1
                        waiting.discard((payload.qp, flag))
        assert not waiting
        assert takes and all(takes[key] <= sets[key] for key in takes)

    simulate(dut, setter(dut.set0, 1), setter(dut.set1, 2), taker)
