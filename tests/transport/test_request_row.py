"""The working copy of a QP's row: every change, and a row that is read while it is written."""

import random

import pytest
from amaranth.hdl import Elaboratable, Module
from amaranth.lib import wiring

from hdl.context.table import Table
from hdl.ports.rows import QpTx
from hdl.transport.send.row import RequestRow
from tests.simulate import simulate

QPS = 4
FIELDS = ("position", "high", "offset", "psn", "entry", "reads", "unasked", "error")
#: Pulses that a bench gives, one at a time.
PULSES = ("read", "load", "move", "begin", "advance", "skip", "fail", "save")


class Bench(Elaboratable):
    """The component and its table."""

    def __init__(self):
        self.row = RequestRow()
        self.table = Table(row=QpTx, depth=QPS, index_width=14)

    def elaborate(self, platform):
        m = Module()
        m.submodules.row, m.submodules.table = self.row, self.table
        read = self.table.read0
        m.d.comb += [
            read.index.eq(self.row.index),
            read.enable.eq(self.row.read),
            self.row.table.eq(read.row),
        ]
        wiring.connect(m, self.row.write, self.table.write)
        return m

    async def pulse(self, ctx, *names, **values):
        """One cycle with these pulses, and with these values on other inputs."""
        for name, value in values.items():
            ctx.set(getattr(self.row, name), value)
        for name in PULSES:
            ctx.set(getattr(self.row, name), name in names)
        await ctx.tick()
        for name in names:
            ctx.set(getattr(self.row, name), 0)

    async def take(self, ctx, qp, *more):
        """Reads and loads the row of ``qp``; ``more``: pulses of the second cycle."""
        await self.pulse(ctx, "read", index=qp)
        await self.pulse(ctx, "load", *more)

    def shown(self, ctx) -> dict:
        row = ctx.get(self.row.row)
        return {name: getattr(row, name) for name in FIELDS}


def run(scenario):
    bench = Bench()

    async def testbench(ctx):
        await ctx.tick().until(bench.table.ready)
        await scenario(ctx, bench)

    simulate(bench, testbench, deadline=5_000)


def test_each_change():
    async def scenario(ctx, bench):
        want = dict.fromkeys(FIELDS, 0)
        await bench.take(ctx, 1)
        assert bench.shown(ctx) == want and not ctx.get(bench.row.begun)
        await bench.pulse(ctx, "begin", data=1, place=77, sink={"number": 9, "long": 1})
        want |= {"high": 1, "reads": 1, "entry": 77}
        assert bench.shown(ctx) == want
        assert ctx.get(bench.row.newest) and ctx.get(bench.row.row.sink.number) == 9
        await bench.pulse(ctx, "save")
        assert ctx.get(bench.row.begun), "a cycle after it has begun"
        await bench.take(ctx, 2)
        assert not ctx.get(bench.row.begun)
        await bench.take(ctx, 1)
        assert bench.shown(ctx) == want and ctx.get(bench.row.begun), "as soon as it is loaded"
        await bench.pulse(ctx, "advance", step={"payload": 1024, "packets": 1})
        await bench.pulse(ctx, "advance", step={"payload": 1024, "packets": 1})
        want |= {"offset": 2048, "psn": 2, "unasked": 2}
        assert bench.shown(ctx) == want
        await bench.pulse(ctx, "advance", step={"payload": 1024, "packets": 3, "asks": 1})
        want |= {"offset": 3072, "psn": 5, "unasked": 0}
        assert bench.shown(ctx) == want
        await bench.pulse(ctx, "skip", "fail")
        want |= {"position": 1, "offset": 0, "error": 1}
        assert bench.shown(ctx) == want
        await bench.pulse(ctx, "save")
        assert not ctx.get(bench.row.begun)
        await bench.take(ctx, 2)
        assert bench.shown(ctx) == dict.fromkeys(FIELDS, 0), "the row of another QP"
        await bench.take(ctx, 1)
        assert bench.shown(ctx) == want, "what was saved"
        await bench.pulse(ctx, "read", index=1)
        restart = {"position": 9, "offset": 512, "psn": 0xFFFFFF}
        await bench.pulse(ctx, "load")
        await bench.pulse(ctx, "move", origin=restart)
        assert bench.shown(ctx) == want | restart

    run(scenario)


def test_numbers_wrap():
    async def scenario(ctx, bench):
        await bench.pulse(ctx, "read", index=0)
        restart = {"position": 0xFFFF, "psn": 0xFFFFFE}
        await bench.pulse(ctx, "load")
        await bench.pulse(ctx, "move", origin=restart)
        await bench.pulse(ctx, "advance", step={"last": 1, "packets": 3})
        row = bench.shown(ctx)
        assert (row["position"], row["psn"], row["offset"]) == (0, 1, 0)

    run(scenario)


@pytest.mark.parametrize("pause", [0, 1, 2, 3])
@pytest.mark.parametrize("same", [True, False])
def test_a_last_packets_row_is_there_for_the_next_wqe(pause, same):
    """However soon it is read: in the cycle of the last packet, in that of the write, or later."""

    async def scenario(ctx, bench):
        rng, psns = random.Random(pause), [0] * QPS
        await bench.take(ctx, 0)
        qp = 0
        for _ in range(50):
            packets = rng.randrange(1, 9)
            psns[qp] += packets
            step = {"last": 1, "packets": packets}
            if pause == 0:  # the next WQE is taken with the last packet
                after = qp if same else rng.randrange(QPS)
                await bench.pulse(ctx, "advance", "read", step=step, index=after)
            else:
                await bench.pulse(ctx, "advance", step=step)
                for _ in range(pause - 1):
                    await ctx.tick()
                after = qp if same else rng.randrange(QPS)
                await bench.pulse(ctx, "read", index=after)
            await bench.pulse(ctx, "load")
            qp = after
            row = bench.shown(ctx)
            assert ctx.get(bench.row.qp) == qp and row["psn"] == psns[qp]

    run(scenario)
