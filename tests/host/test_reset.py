"""The sequence of a device reset, and of a card that breaks."""

from __future__ import annotations

import pytest

from hdl.config import NicConfig
from hdl.host.host_side import HostSide
from hdl.host.reset import ResetSequence
from hdl.ports.jobs import QueueErrorCause
from tests.simulate import simulate

#: Outputs: the rooms are in reset, the engines take nothing new, the card has broken.
RUNS, STOPS, BREAKS, HALTS = (0, 0, 0), (1, 1, 0), (1, 1, 1), (1, 0, 1)


class Bench:
    def __init__(self, *, breaks: bool = True):
        self.dut = ResetSequence(breaks=breaks)

    def state(self, ctx):
        dut = self.dut
        assert ctx.get(dut.abort) == ctx.get(dut.hold)
        return ctx.get(dut.room_reset), ctx.get(dut.hold), ctx.get(dut.halted)

    async def quiet(self, ctx, expected, reads: bool) -> None:
        """The host port becomes quiet, one side before the other."""
        dut = self.dut
        first, second = (dut.reads_idle, dut.writes_idle)[:: 1 if reads else -1]
        for port in (first, second):
            await ctx.tick().repeat(3)
            assert self.state(ctx) == expected
            ctx.set(port, 1)
        await ctx.tick()

    async def reset(self, ctx, reads: bool) -> None:
        """From the request's first cycle in STOP to the end."""
        dut = self.dut
        await self.quiet(ctx, STOPS, reads)
        assert self.state(ctx)[0] == 0
        ctx.set(dut.tables_ready, 0)
        await ctx.tick().repeat(5)
        assert self.state(ctx) == RUNS and not ctx.get(dut.done)
        ctx.set(dut.tables_ready, 1)
        await ctx.tick().until(dut.done)
        ctx.set(dut.request, 0)
        await ctx.tick().repeat(2)
        assert self.state(ctx) == RUNS
        for port in (dut.reads_idle, dut.writes_idle):
            ctx.set(port, 0)


@pytest.mark.parametrize("reads", [True, False])
def test_broken_and_reset(reads):
    """The rooms stop at once, the host gets what it was promised, interrupts leave, and a reset
    makes the card run again; a second time too."""
    bench = Bench()
    dut = bench.dut

    async def run(ctx):
        ctx.set(dut.tables_ready, 1)
        for _ in range(2):
            await ctx.tick().repeat(3)
            assert bench.state(ctx) == RUNS
            ctx.set(dut.broken, 1)
            await ctx.tick()
            ctx.set(dut.broken, 0)
            assert bench.state(ctx) == BREAKS
            await bench.quiet(ctx, BREAKS, reads)
            for port in (dut.reads_idle, dut.writes_idle):
                ctx.set(port, 0)  # an interrupt is on its way
            await ctx.tick().repeat(20)
            assert bench.state(ctx) == HALTS
            ctx.set(dut.request, 1)
            await ctx.tick()
            assert bench.state(ctx) == STOPS
            await bench.reset(ctx, reads)

    simulate(dut, run)


def test_reset_alone():
    """A reset that is under way is no other because the card breaks."""
    bench = Bench()
    dut = bench.dut

    async def run(ctx):
        await ctx.tick()
        ctx.set(dut.request, 1)
        ctx.set(dut.broken, 1)
        await ctx.tick()
        ctx.set(dut.broken, 0)
        assert bench.state(ctx) == STOPS
        await bench.reset(ctx, True)

    simulate(dut, run)


def test_each_function_is_told():
    """Once, however long the row is read."""
    config = NicConfig(width=64, qps=16, cqs=8, mrs=16, gids=4, functions=3, parity=True)
    dut = HostSide(config=config)

    async def run(ctx):
        await ctx.tick().repeat(5)
        ctx.set(dut.broken, 1)
        await ctx.tick().repeat(12)
        assert ctx.get(dut.halted) and ctx.get(dut.room_reset)
        for n in range(config.functions):
            status = getattr(dut, f"status{n}")
            assert ctx.get(status.needs_reset)
            assert ctx.get(status.needs_reset_cause) == QueueErrorCause.PARITY

    simulate(dut, run)


def test_reset_of_one_ends_behind_its_writes():
    """With several functions the firmware ends a device reset. The driver does not see the end
    before all writes that the rooms made until then are with the host."""
    config = NicConfig(width=64, qps=16, cqs=8, mrs=16, gids=4, functions=2)
    dut = HostSide(config=config)
    mmio, client, status = dut.host.mmio, dut.completion.write_client.beat, dut.status0

    async def run(ctx):
        await ctx.tick().repeat(100)
        ctx.set(client.payload, {"function": 1, "addr": 0x1000, "data": 7, "keep": 1})
        ctx.set(client.p.first, 1)
        ctx.set(client.p.last, 1)
        ctx.set(client.valid, 1)
        await ctx.tick().until(client.ready)
        ctx.set(client.valid, 0)
        ctx.set(mmio.req.payload, {"function": 1, "addr": 0x14, "write": 1, "strb": 1})
        ctx.set(mmio.req.valid, 1)
        await ctx.tick().until(mmio.req.ready)
        ctx.set(mmio.req.valid, 0)
        await ctx.tick().until(status.reset_request)
        ctx.set(status.reset_done, 1)
        await ctx.tick()
        ctx.set(status.reset_done, 0)
        for _ in range(200):
            await ctx.tick()
            assert ctx.get(status.resetting) and ctx.get(dut.host.wr.valid)
        ctx.set(dut.host.wr.ready, 1)
        await ctx.tick().repeat(100)
        assert not ctx.get(status.resetting)

    simulate(dut, run)
