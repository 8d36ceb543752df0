"""ReadShare: who asked gets the answer, in turn, and an offered request stays."""

import random
from collections import deque
from itertools import pairwise

import pytest

from hdl.queues.ring.read import ReadShare
from tests.simulate import simulate

COUNT = 60


@pytest.mark.parametrize("register", [True, False])
@pytest.mark.parametrize("clients", [1, 2, 5])
@pytest.mark.parametrize("idle,stall", [(0, 0), (0.7, 0), (0, 0.5), (0.7, 0.3)])
def test_answers_find_who_asked(clients, idle, stall, register):
    dut = ReadShare(width=64, clients=clients, depth=8, register=register)
    answered, asked = [0] * clients, deque()

    def user(number):
        async def source(ctx):
            rng, req = random.Random(number), getattr(dut, f"client{number}").req
            for n in range(COUNT):
                while rng.random() < idle:
                    await ctx.tick()
                ctx.set(req.payload, {"addr": n << 8 | number, "length": 1 + n % 16})
                ctx.set(req.valid, 1)
                await ctx.tick().until(req.ready)
                ctx.set(req.valid, 0)

        return source

    async def requests(ctx):
        rng, req, seen, turns = random.Random(7), dut.read_client.req, None, []
        for _ in range(COUNT * clients):
            while True:
                ready = rng.random() >= stall
                ctx.set(req.ready, ready)
                *_, valid, payload = await ctx.tick().sample(req.valid, req.payload)
                if valid:
                    assert seen in (None, payload.addr), "a request changed"
                    seen = None if ready else payload.addr
                    if ready:
                        break
                else:
                    assert seen is None, "a request was taken back"
            asked.append((payload.addr, payload.length))
            turns.append(payload.addr & 0xFF)
        if not idle:
            # Nobody is served twice while another one waits.
            steady = turns[clients : -2 * clients]
            assert all(a != b for a, b in pairwise(steady)) or clients == 1

    async def responses(ctx):
        rng, rsp = random.Random(8), dut.read_client.rsp
        for _ in range(COUNT * clients):
            while not asked or rng.random() < stall:
                await ctx.tick()
            addr, length = asked.popleft()
            number, beats = addr & 0xFF, 1 if length <= 8 else 2
            for beat in range(beats):
                ctx.set(rsp.payload, {"data": addr, "last": beat == beats - 1})
                ctx.set(rsp.valid, 1)
                valids = [getattr(dut, f"client{i}").rsp.valid for i in range(clients)]
                _, _, *given = await ctx.tick().sample(*valids)
                assert given == [i == number for i in range(clients)]
                ctx.set(rsp.valid, 0)
            assert addr >> 8 == answered[number]
            answered[number] += 1

    simulate(dut, *(user(number) for number in range(clients)), requests, responses)
