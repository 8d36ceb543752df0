"""Answers against a list of the writes that each of them waits for, in Amaranth's simulator."""

import random

import pytest

from hdl.pcie.answers import DEPTH, ENOUGH, Answers
from hdl.pcie.posted import IN_FLIGHT
from tests.simulate import simulate


@pytest.mark.parametrize("pace, stall", [(0.02, 0.2), (0.3, 0), (1, 0.5)])
def test_answers(pace, stall):
    """Each answer comes in its turn, not before the writes of its moment, and not much later."""
    dut = Answers()

    async def bench(ctx):
        rng = random.Random(1)
        taken = done = sent = got = idle = 0
        #: For each answer that waits: the writes that must be done before it.
        waits: list[int] = []
        for cycle in range(12_000):
            flows = cycle % 1000 > 300
            named = rng.randint(0, taken - done) if flows and rng.random() < pace else 0
            offers = rng.random() < 0.3
            ctx.set(dut.in_flight, taken - done)
            ctx.set(dut.done, named)
            ctx.set(dut.i.valid, offers)
            ctx.set(dut.i.payload, {"data": sent, "words": 4})
            ctx.set(dut.o.ready, rng.random() >= stall)
            await ctx.delay(1e-8)
            if ctx.get(dut.o.valid):
                assert waits[0] <= done
            idle = 0 if not waits or waits[0] > done or ctx.get(dut.o.valid) else idle + 1
            assert idle < 6
            if ctx.get(dut.o.valid & dut.o.ready):
                assert ctx.get(dut.o.payload.data) == got
                waits.pop(0)
                got += 1
            if ctx.get(dut.i.valid & dut.i.ready):
                waits.append(taken)
                sent += 1
            assert len(waits) <= DEPTH and (not ctx.get(dut.wants) or len(waits) <= ENOUGH + 2)
            done += named
            if taken - done < IN_FLIGHT and rng.random() < 0.7:
                taken += 1
            await ctx.tick()
        assert got > 300 and taken > 300

    simulate(dut, bench, deadline=20_000)
