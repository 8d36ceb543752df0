"""The receive buffer by itself: payload that is read once, several times or not at all."""

from __future__ import annotations

import random

import pytest

from hdl.ingress.buffer import ReceiveBuffer
from hdl.ingress.rows import KEPT
from tests.simulate import simulate

WIDTH, DEPTH = 64, 64


@pytest.mark.parametrize("stalls", [(0.0, 0.0, 0.0), (0.4, 0.3, 0.6), (0.0, 0.7, 0.0)])
def test_payload_is_read_as_often_as_is_said(stalls):
    """Through the ring several times over; room is free again when a packet is released."""
    rng = random.Random(3)
    dut = ReceiveBuffer(width=WIDTH, depth=DEPTH, packets=64, reserve=20, multicast=True)
    sizes = [rng.choice([1, 7, 8, 9, 30, 64, 120]) for _ in range(60)]
    copies = [rng.choice([None, None, 0, 1, 2, 5]) for _ in sizes]
    copies[:4] = [3, None, 0, 2]
    words = [[rng.getrandbits(WIDTH) for _ in range(-(-size // 8))] for size in sizes]
    got: list[list[int]] = [[]]
    waited = 0

    async def source(ctx):
        nonlocal waited
        for number, size in enumerate(sizes):
            while not ctx.get(dut.room) or rng.random() < stalls[0]:
                waited += not ctx.get(dut.room)
                await ctx.tick()
            for beat in words[number]:
                last = beat is words[number][-1]
                row = {"length": size, "multicast": copies[number] is not None}
                ctx.set(dut.row, KEPT.const(row))
                ctx.set(dut.data, beat)
                ctx.set(dut.write, 1)
                ctx.set(dut.finish, last)
                ctx.set(dut.keep, last)
                *_, lost = await ctx.tick().sample(dut.full)
                assert not lost or not last
            ctx.set(dut.write, 0)
            ctx.set(dut.finish, 0)
            await ctx.tick().repeat(20)  # ``room`` counts what has been written
        await ctx.tick().repeat(3000)

    async def again(ctx):
        ctx.set(dut.header.ready, 1)
        for times in copies:
            if times is None:
                continue
            for word in [1] * times + [0]:
                while rng.random() < stalls[2]:
                    await ctx.tick()
                ctx.set(dut.again.payload, word)
                ctx.set(dut.again.valid, 1)
                await ctx.tick().until(dut.again.ready)
                ctx.set(dut.again.valid, 0)

    async def sink(ctx):
        while True:
            ready = rng.random() >= stalls[1]
            ctx.set(dut.payload.ready, ready)
            *_, valid, beat = await ctx.tick().sample(dut.payload.valid, dut.payload.payload)
            if valid and ready:
                assert beat.first == (not got[-1])
                got[-1].append(beat.data)
                if beat.last:
                    got.append([])

    simulate(dut, source, deadline=40_000, background=(again, sink))
    wanted = []
    for each, times in zip(words, copies, strict=True):
        wanted += [each] * (1 if times is None else times)
    assert got == [*wanted, []]
    assert waited > 0 or not stalls[2]
