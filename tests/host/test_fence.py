"""Fence: nothing of a fenced function leaves, nobody waits for it, others do not notice."""

import random

import pytest

from hdl.config import FUNCTION_NET, FUNCTION_RDMA, NicConfig
from hdl.host.fence import Fence
from tests.simulate import simulate

#: Cards, with their functions in the order of their bits: the first is fenced, or the last.
CARDS = {
    "two guests": (NicConfig(width=64, functions=2), (FUNCTION_RDMA, FUNCTION_RDMA + 1)),
    "network": (NicConfig(width=64, network=1), (FUNCTION_RDMA, FUNCTION_NET)),
}
COUNT = 600


class Bench:
    """Reads and bursts of both functions; number ``fenced`` of them is fenced now and then."""

    def __init__(self, card, fenced, idle, stall):
        config, self.functions = CARDS[card]
        self.mask = 1 << fenced
        self.dut, self.idle, self.stall = Fence(config=config), idle, stall
        self.rng = random.Random(5)
        self.asked, self.bursts = [], []  # (function, tag) of reads; beats of writes
        self.failed, self.answers = [], []
        self.taken, self.written = [], []
        self.fences = 0
        self.done = 0

    async def reads(self, ctx):
        dut, rng = self.dut.reads, random.Random(1)
        for n in range(COUNT):
            while rng.random() < self.idle:
                await ctx.tick()
            one = rng.choice(self.functions), n % 256
            ctx.set(dut.payload, {"function": one[0], "tag": one[1], "addr": n, "length": 8})
            ctx.set(dut.valid, 1)
            await ctx.tick().until(dut.ready)
            ctx.set(dut.valid, 0)
            self.asked.append((*one, n))
        self.done += 1

    async def writes(self, ctx):
        dut, rng = self.dut.writes, random.Random(2)
        for n in range(COUNT // 2):
            function, length = rng.choice(self.functions), rng.randint(1, 4)
            for beat in range(length):
                while rng.random() < self.idle:
                    await ctx.tick()
                flags = {"first": beat == 0, "last": beat == length - 1}
                ctx.set(dut.payload, {"function": function, "addr": n, "data": beat, **flags})
                ctx.set(dut.valid, 1)
                await ctx.tick().until(dut.ready)
                ctx.set(dut.valid, 0)
            self.bursts.append((function, n, length))
        self.done += 1

    async def host(self, ctx):
        """Takes requests and bursts, answers each read by a beat or two, in any cycle."""
        dut, rng, waiting = self.dut, random.Random(3), []
        offered = [None, None]
        while True:
            beat = None
            ctx.set(dut.rd_rsp.valid, 0)
            if waiting and rng.random() < 0.8:
                beat = waiting.pop(0)
                ctx.set(dut.rd_rsp.payload, {"tag": beat[0], "data": beat[1], "last": 1})
                ctx.set(dut.rd_rsp.valid, 1)
            ready = [rng.random() >= self.stall for _ in range(2)]
            ctx.set(dut.rd_req.ready, ready[0])
            ctx.set(dut.wr.ready, ready[1])
            sampled = ctx.tick().sample(
                dut.rd_req.valid, dut.rd_req.payload, dut.wr.valid, dut.wr.payload, dut.settled,
                dut.fenced,
            )  # fmt: skip
            *_, reads, read, writes, write, settled, fenced = await sampled
            for n, (valid, payload) in enumerate(((reads, read), (writes, write))):
                bits = payload.as_bits() if valid else None
                assert offered[n] in (None, bits), "an offer was changed or taken back"
                offered[n] = None if ready[n] else bits
                if valid:
                    assert not settled & fenced & 1 << self.functions.index(payload.function)
            if reads and ready[0]:
                self.taken.append((read.function, read.tag, read.addr))
                waiting.append((read.tag, read.addr))
            if writes and ready[1]:
                self.written.append((write.function, write.addr, write.data, write.last))

    async def answers_of(self, ctx):
        while True:
            sampled = ctx.tick().sample(self.dut.beats.valid, self.dut.beats.payload)
            *_, valid, beat = await sampled
            if valid:
                assert beat.last
                (self.failed if beat.error else self.answers).append((beat.tag, beat.data))

    async def fences_up(self, ctx):
        dut, rng = self.dut, random.Random(4)
        while self.done < 2:
            await ctx.tick().repeat(rng.randint(1, 60))
            ctx.set(dut.fenced, self.mask)
            # The host takes what it has been offered, and some cycles without a burst come.
            await ctx.tick().until(dut.settled == self.mask)
            await ctx.tick().repeat(rng.randint(1, 60))
            ctx.set(dut.fenced, 0)
            self.fences += 1
            await ctx.tick()
            assert not ctx.get(dut.settled)
        await ctx.tick().repeat(3000)


@pytest.mark.parametrize("idle,stall", [(0, 0), (0.5, 0), (0, 0.5), (0.6, 0.6)])
@pytest.mark.parametrize(
    "card,fenced", [("two guests", 0), ("network", 0), ("network", 1)], ids=str
)
def test_fence(card, fenced, idle, stall):
    bench = Bench(card, fenced, idle, stall)
    gone = bench.functions[fenced]
    simulate(
        bench.dut, bench.reads, bench.writes, bench.fences_up,
        background=(bench.host, bench.answers_of), deadline=60_000,
    )  # fmt: skip
    assert bench.fences > 5
    # Each read is either taken by the host or fails; the other function's are all taken.
    taken = set(bench.taken)
    lost = [one for one in bench.asked if one not in taken]
    assert len(taken) == len(bench.taken) and [*taken] and lost
    assert all(function == gone for function, _, _ in lost)
    assert [one for one in bench.asked if one in taken] == bench.taken
    assert [tag for tag, _ in bench.failed] == [tag for _, tag, _ in lost]
    assert bench.answers == [(tag, addr) for _, tag, addr in bench.taken]
    # Each burst is written whole or not at all.
    written = {one[1] for one in bench.written}
    assert {function for function, n, _ in bench.bursts if n not in written} == {gone}
    expected = [
        (function, n, beat, beat == length - 1)
        for function, n, length in bench.bursts
        if n in written
        for beat in range(length)
    ]
    assert bench.written == expected
