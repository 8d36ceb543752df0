"""Parity of rows: a wrong bit is found wherever it is, and nothing else is."""

from __future__ import annotations

import random

import pytest

from hdl.context.parity import GROUP, RowParity
from hdl.context.table import Table
from sim.rtl.build import Rtl, lint
from tests.simulate import simulate

#: Cycles from a read to ``bad``: the row's own, and those of the parity.
LATENCY = 4


@pytest.mark.parametrize("width", [1, GROUP, GROUP + 1, 100])
def test_table(width):
    """Random writes of owner and firmware, reads of all ports, also of what is being written."""
    dut, rng = Table(row=width, depth=8, index_width=4, reads=2, parity=True), random.Random(width)

    async def run(ctx):
        while not ctx.get(dut.ready):
            await ctx.tick()
        for _ in range(800):
            for port in (dut.read0, dut.read1):
                ctx.set(port.enable, rng.random() < 0.7)
                ctx.set(port.index, rng.randrange(16))
            ctx.set(dut.write.enable, rng.random() < 0.3)
            ctx.set(dut.write.index, rng.randrange(16))
            ctx.set(dut.write.row, rng.getrandbits(width))
            if ctx.get(dut.program.done):
                ctx.set(dut.program.write, 0)
            elif rng.random() < 0.1:
                ctx.set(dut.program.write, 1)
                ctx.set(dut.program.index, rng.randrange(8))
                ctx.set(dut.program.row, rng.getrandbits(width))
            await ctx.tick()
            assert not ctx.get(dut.bad)

    simulate(dut, run)


async def program(ctx, dut, index, row, spoil):
    ctx.set(dut.spoil, spoil)
    ctx.set(dut.program.index, index)
    ctx.set(dut.program.row, row)
    ctx.set(dut.program.write, 1)
    while not ctx.get(dut.program.done):
        await ctx.tick()
    ctx.set(dut.program.write, 0)
    ctx.set(dut.spoil, 0)
    await ctx.tick()


@pytest.mark.parametrize("reader", ["read0", "read1", "program"])
def test_spoiled_row(reader):
    """It is wrong by a bit, and whoever reads it makes the table say so, once for each read."""
    dut = Table(row=70, depth=8, index_width=3, reads=2, parity=True)

    async def read(ctx, index):
        port = getattr(dut, reader)
        enable = port.read if reader == "program" else port.enable
        ctx.set(port.index, index)
        ctx.set(enable, 1)
        await ctx.tick()
        ctx.set(enable, 0)
        row = ctx.get(port.read_row if reader == "program" else port.row)
        told = []
        for _ in range(8):
            told.append(ctx.get(dut.bad))
            await ctx.tick()
        return row, told

    async def run(ctx):
        while not ctx.get(dut.ready):
            await ctx.tick()
        for index in range(8):
            await program(ctx, dut, index, 1 << 69 | index, spoil=index == 3)
        for index in range(8):
            row, told = await read(ctx, index)
            assert row == 1 << 69 | index ^ (index == 3)
            assert told == [int(index == 3 and n == LATENCY - 1) for n in range(8)]
        ctx.set(dut.write.index, 3)
        ctx.set(dut.write.row, 5)
        ctx.set(dut.write.enable, 1)
        await ctx.tick()
        ctx.set(dut.write.enable, 0)
        assert await read(ctx, 3) == (5, [0] * 8)

    simulate(dut, run)


@pytest.mark.parametrize("width", [1, 2, GROUP, GROUP + 1, 2 * GROUP + 5])
def test_each_bit(width):
    dut, rng = RowParity(width=width, depth=4, reads=1), random.Random(1)

    async def run(ctx):
        ctx.set(dut.ready, 1)
        row = rng.getrandbits(width)
        ctx.set(dut.write.index, 2)
        ctx.set(dut.write.row, row)
        ctx.set(dut.write.enable, 1)
        await ctx.tick()
        ctx.set(dut.write.enable, 0)
        for bit in [None, *range(width)]:
            ctx.set(dut.index0, 2)
            ctx.set(dut.enable0, 1)
            await ctx.tick()
            ctx.set(dut.enable0, 0)
            ctx.set(dut.row0, row if bit is None else row ^ 1 << bit)
            await ctx.tick().repeat(LATENCY - 1)
            assert ctx.get(dut.bad) == (bit is not None)
            await ctx.tick()
            assert not ctx.get(dut.bad)

    simulate(dut, run)


def test_lint():
    parameters = {"row": 70, "depth": 8, "index_width": 14, "reads": 2, "parity": True}
    lint(Rtl("hdl.context.table:Table", parameters, name="checked_table"))
