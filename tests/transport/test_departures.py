"""What is noted of each request that leaves the card, and when its QP begins to wait."""

import random

from amaranth.hdl import Elaboratable, Module
from amaranth.lib import wiring

from hdl.common.ram import Ram
from hdl.config import NicConfig
from hdl.ports.headers import PACKET_GENERATION
from hdl.transport.recovery.qp_timers import TimerKind
from hdl.transport.send.departures import WAITING, Departures
from tests.context.late import Window, context_of, seed, slower
from tests.simulate import simulate

QPS = 4
CONFIG = NicConfig(width=64, qps=QPS, cqs=4, mrs=16, gids=2)
PSN = 1 << 24


class Bench(Elaboratable):
    """The component with its table, and the generations of the QPs."""

    def __init__(self):
        self.dut = Departures()
        self.context = context_of(CONFIG, seed())
        self.table = Window(self.context, "qp_sent")
        self.generations = Ram(shape=PACKET_GENERATION, depth=QPS, earlier=(0,))

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut, m.submodules.context = self.dut, self.context
        m.submodules.generations = self.generations
        wiring.connect(m, self.dut.context, self.context.departures)
        wiring.connect(m, self.dut.write, self.table.write)
        m.d.comb += [
            self.generations.read0.index.eq(self.dut.generation.index),
            self.generations.read0.enable.eq(self.dut.generation.enable),
            self.dut.generation.row.eq(self.generations.read0.row),
        ]
        return m

    async def start(self, ctx):
        await ctx.tick().until(self.table.ready)

    async def leave(self, ctx, qp, psn, *, asks=1, generation=0, timeout=7):
        departure = {
            "counts": 1,
            "asks": asks,
            "qp": qp,
            "psn": psn % PSN,
            "generation": generation,
        }
        ctx.set(self.dut.departed.payload, departure | {"timeout": timeout})
        ctx.set(self.dut.departed.valid, 1)
        await ctx.tick()
        ctx.set(self.dut.departed.valid, 0)

    async def go_back(self, ctx, qp, generation):
        """The requester takes a restart: a new generation, and a cycle later the word of it."""
        write = self.generations.write
        ctx.set(write.index, qp)
        ctx.set(write.row, generation)
        ctx.set(write.enable, 1)
        await ctx.tick()
        ctx.set(write.enable, 0)
        ctx.set(self.dut.restart.payload, qp)
        ctx.set(self.dut.restart.valid, 1)
        await ctx.tick()
        ctx.set(self.dut.restart.valid, 0)

    async def row(self, ctx, qp):
        program = self.table.program
        ctx.set(program.index, qp)
        ctx.set(program.read, 1)
        *_, row = await ctx.tick().sample(program.read_row).until(program.done)
        ctx.set(program.read, 0)
        return row.psn, row.asked, row.waits


def run(scenario):
    bench, timers = Bench(), []

    async def testbench(ctx):
        await bench.start(ctx)
        await scenario(ctx, bench, timers)

    async def take(ctx):
        rng = random.Random(1)
        port = bench.dut.timer
        while True:
            ctx.set(port.ready, rng.random() < 0.5)
            *_, valid, ready, timer = await ctx.tick().sample(port.valid, port.ready, port.payload)
            if valid and ready:
                assert timer.kind == TimerKind.ANSWER
                timers.append((timer.qp, timer.code))

    simulate(bench, testbench, deadline=5_000, background=(take,))


def test_the_newest_counts_and_the_last_that_asks():
    async def scenario(ctx, bench, timers):
        await bench.leave(ctx, 1, 3)
        await bench.leave(ctx, 1, 4, asks=0)
        await bench.leave(ctx, 2, 9, timeout=0)  # it waits for ever
        await ctx.tick().repeat(20 * slower() ** 2)
        assert await bench.row(ctx, 1) == (4, 3, 1)
        assert await bench.row(ctx, 2) == (9, 9, 1)
        assert timers == [(1, 7)]
        # Sent again from the first one on: what has been sent is not forgotten.
        await bench.go_back(ctx, 1, generation=1)
        await ctx.tick().repeat(10 * slower() ** 2)
        assert await bench.row(ctx, 1) == (4, 3, 0), "nothing is waited for"
        await bench.leave(ctx, 1, 2, generation=1)
        await ctx.tick().repeat(10 * slower() ** 2)
        assert await bench.row(ctx, 1) == (4, 2, 1)
        assert timers == [(1, 7), (1, 7)]

    run(scenario)


def test_what_was_handed_over_before_the_qp_went_back():
    """It may be answered, and nobody waits for that."""

    async def scenario(ctx, bench, timers):
        await bench.leave(ctx, 3, 5)
        await ctx.tick().repeat(10 * slower() ** 2)
        await bench.go_back(ctx, 3, generation=1)
        for psn in (6, 7):
            await bench.leave(ctx, 3, psn)
        await ctx.tick().repeat(20 * slower() ** 2)
        assert await bench.row(ctx, 3) == (7, 5, 0)
        assert timers == [(3, 7)]

    run(scenario)


def test_psns_wrap():
    async def scenario(ctx, bench, timers):
        program = bench.table.program
        ctx.set(program.index, 1)
        ctx.set(program.row, {"psn": PSN - 2})
        ctx.set(program.write, 1)
        await ctx.tick().until(program.done)
        ctx.set(program.write, 0)
        for psn in (PSN - 1, PSN, PSN + 5, PSN + 2):
            await bench.leave(ctx, 1, psn)
            await ctx.tick()
        await ctx.tick().repeat(20 * slower() ** 2)
        assert await bench.row(ctx, 1) == (5, 2, 1)

    run(scenario)


def test_a_burst_is_noted_to_the_last():
    """As many as there may be at once, while QPs go back and nobody takes timers at times."""

    async def scenario(ctx, bench, timers):
        for n in range(WAITING):
            await bench.leave(ctx, n % QPS, n // QPS + 1)
        await bench.go_back(ctx, 0, generation=1)
        await ctx.tick().repeat(8 * WAITING * slower() ** 2)
        last = WAITING // QPS
        assert [await bench.row(ctx, qp) for qp in range(1, QPS)] == [(last, last, 1)] * (QPS - 1)
        assert (await bench.row(ctx, 0))[0] == last
        assert sum(qp != 0 for qp, _ in timers) == WAITING - last  # of QP 0 those before it went

    run(scenario)
