"""Ram and Table: forwarding, holding, the firmware's turn."""

import random
import re

import pytest
from amaranth.back import rtlil
from amaranth.lib import data

from hdl.common.fifo import StreamFifo
from hdl.common.ram import SPLIT_ROWS, Ram
from hdl.config import NicConfig
from hdl.context.gid import GidTable
from hdl.context.table import Table
from hdl.egress.seal import Seal
from tests.simulate import simulate


def block_rams(component) -> list[int]:
    """Bits of a row of each memory that is to be block RAM however few rows it has."""
    text = rtlil.convert(component, platform="verilog", ports=[])
    rams = re.findall(r"(?s)cell \\rocinante_ram .*?end\n", text)
    few = [ram for ram in rams if '\\STYLE "block"' in ram]
    return sorted(int(re.search(r"\\WIDTH (\d+)", ram)[1]) for ram in few)


def test_read_while_write_returns_the_new_row_and_holds():
    ram = Ram(shape=8, depth=16, reads=2)

    async def bench(ctx):
        rng, model = random.Random(1), [0] * 16
        for _ in range(500):
            write, index, row = rng.random() < 0.5, rng.randrange(16), rng.randrange(256)
            ctx.set(ram.write.enable, write)
            ctx.set(ram.write.index, index)
            ctx.set(ram.write.row, row)
            if write:
                model[index] = row
            reads = [rng.randrange(16) if rng.random() < 0.7 else None for _ in range(2)]
            for port, read in zip((ram.read0, ram.read1), reads, strict=True):
                ctx.set(port.enable, read is not None)
                ctx.set(port.index, rng.randrange(16) if read is None else read)
            held = [ctx.get(ram.read0.row), ctx.get(ram.read1.row)]
            await ctx.tick()
            for port, read, old in zip((ram.read0, ram.read1), reads, held, strict=True):
                assert ctx.get(port.row) == (old if read is None else model[read])

    simulate(ram, bench)


def test_rows_above_a_power_of_two_are_rows_like_others():
    """They lie in a memory of their own: neither is written for the other, or read."""
    depth = SPLIT_ROWS + 5
    rows = [0, 1, 4, SPLIT_ROWS - 1, SPLIT_ROWS, SPLIT_ROWS + 1, SPLIT_ROWS + 4]
    ram = Ram(shape=8, depth=depth, reads=2, earlier=(1,))

    async def bench(ctx):
        rng, model, held = random.Random(4), dict.fromkeys(rows, 0), [0, 0]
        for _ in range(500):
            index, row = rng.choice(rows), rng.randrange(256)
            write = rng.random() < 0.5
            ctx.set(ram.write.enable, write)
            ctx.set(ram.write.index, index)
            ctx.set(ram.write.row, row)
            before = dict(model)
            if write:
                model[index] = row
            for n, port in enumerate((ram.read0, ram.read1)):
                read, enable = rng.choice(rows), rng.random() < 0.7
                ctx.set(port.enable, enable)
                ctx.set(port.index, read)
                if enable:
                    held[n] = (model, before)[n][read]
            await ctx.tick()
            assert [ctx.get(ram.read0.row), ctx.get(ram.read1.row)] == held

    simulate(ram, bench)


def test_without_forwarding_other_rows_are_read_and_held():
    ram = Ram(shape=8, depth=16, forward=False)

    async def bench(ctx):
        rng, model, held = random.Random(2), [0] * 16, 0
        for _ in range(300):
            index, row = rng.randrange(16), rng.randrange(256)
            read = rng.choice([other for other in range(16) if other != index])
            enable = rng.random() < 0.7
            ctx.set(ram.write.enable, 1)
            ctx.set(ram.write.index, index)
            ctx.set(ram.write.row, row)
            ctx.set(ram.read0.enable, enable)
            ctx.set(ram.read0.index, read if enable else index)
            await ctx.tick()
            model[index] = row
            held = model[read] if enable else held
            assert ctx.get(ram.read0.row) == held

    simulate(ram, bench)


def test_an_earlier_port_returns_the_row_as_it_was():
    ram = Ram(shape=8, depth=4, reads=2, earlier=(1,))

    async def bench(ctx):
        rng, model = random.Random(3), [0] * 4
        for _ in range(300):
            write, index, row = rng.random() < 0.7, rng.randrange(4), rng.randrange(256)
            ctx.set(ram.write.enable, write)
            ctx.set(ram.write.index, index)
            ctx.set(ram.write.row, row)
            before = list(model)
            if write:
                model[index] = row
            reads = [rng.randrange(4) for _ in range(2)]
            for port, read in zip((ram.read0, ram.read1), reads, strict=True):
                ctx.set(port.enable, 1)
                ctx.set(port.index, read)
            await ctx.tick()
            assert ctx.get(ram.read0.row) == model[reads[0]]
            assert ctx.get(ram.read1.row) == before[reads[1]]

    simulate(ram, bench)


def test_earlier_names_ports_that_exist():
    with pytest.raises(ValueError, match="Earlier must name ports below 2"):
        Ram(shape=8, depth=4, reads=2, earlier=(2,))


def test_gids_and_none_beyond_the_table():
    count = 5
    table = GidTable(config=NicConfig(width=64, gids=count))

    async def bench(ctx):
        while not ctx.get(table.ready):
            await ctx.tick()
        rng = random.Random(4)
        rows = [
            {"valid": 1, "function": n, "gid": rng.getrandbits(128), "vlan_valid": 1, "vlan_id": n}
            for n in range(count)
        ]
        for index, row in enumerate(rows):
            ctx.set(table.program.index, index)
            ctx.set(table.program.row, row)
            ctx.set(table.program.write, 1)
            await ctx.tick().until(table.program.done)
        ctx.set(table.program.write, 0)
        for index in (*range(count), count, 8, 128 + 1, 255, 0):
            ctx.set(table.read.index, index)
            ctx.set(table.read.enable, 1)
            await ctx.tick()
            assert ctx.get(table.read.row.valid) == (index < count)
            if index < count:
                assert all(ctx.get(table.read.row[k]) == rows[index][k] for k in rows[index])
        for index, row in enumerate(rows):
            assert all(ctx.get(table.rows[index][k]) == row[k] for k in row)

    simulate(table, bench)


def test_table_clears_and_gives_the_owner_the_first_turn():
    row = data.StructLayout({"a": 8, "b": 4})
    table = Table(row=row, depth=8, index_width=14, reads=1)

    async def bench(ctx):
        while not ctx.get(table.ready):
            await ctx.tick()
        ctx.set(table.program.index, 3)
        ctx.set(table.program.row, {"a": 17, "b": 5})
        ctx.set(table.program.write, 1)
        ctx.set(table.write.enable, 1)
        ctx.set(table.write.index, 4)
        ctx.set(table.write.row, {"a": 1, "b": 1})
        for _ in range(3):
            await ctx.tick()
            assert not ctx.get(table.program.done)
        ctx.set(table.write.enable, 0)
        await ctx.tick()
        # It was written; the owner may change the row before the firmware has seen so.
        assert ctx.get(table.program.done)
        ctx.set(table.write.index, 3)
        ctx.set(table.write.row, {"a": 18, "b": 5})
        ctx.set(table.write.enable, 1)
        await ctx.tick()
        ctx.set(table.write.enable, 0)
        ctx.set(table.program.write, 0)
        ctx.set(table.program.read, 1)
        await ctx.tick()
        assert ctx.get(table.program.done)
        assert ctx.get(table.program.read_row.a) == 18
        ctx.set(table.program.read, 0)
        ctx.set(table.read0.enable, 1)
        ctx.set(table.read0.index, 4)
        await ctx.tick()
        assert ctx.get(table.read0.row.a) == 1 and ctx.get(table.read0.row.b) == 1

    simulate(table, bench)


def test_table_shows_a_write_in_the_next_cycle():
    """Who reads in the cycle of the write sees the row as it was, and later the new one."""
    table = Table(row=8, depth=8, index_width=14, reads=3)

    async def bench(ctx):
        while not ctx.get(table.ready):
            await ctx.tick()
        readers = (table.read0, table.read1, table.read2)
        for reader in readers:
            ctx.set(reader.index, 5)
            ctx.set(reader.enable, 1)
        ctx.set(table.write.index, 5)
        before = 0
        for value in (7, 9):
            ctx.set(table.write.row, value)
            ctx.set(table.write.enable, 1)
            await ctx.tick()
            ctx.set(table.write.enable, 0)
            assert [ctx.get(reader.row) for reader in readers] == [before] * 3
            await ctx.tick()
            assert [ctx.get(reader.row) for reader in readers] == [value] * 3
            before = value

    simulate(table, bench)


@pytest.mark.parametrize("block,blocks", [(False, []), ("wide", [500]), (True, [508])])
def test_a_fifo_or_a_field_of_it_lies_in_block_ram(block, blocks):
    """Of a field the others lie elsewhere, and take no block RAM."""
    shape = data.StructLayout({"first": 1, "wide": 500, "last": 7})
    assert block_rams(StreamFifo(shape=shape, depth=16, block=block)) == blocks


@pytest.mark.parametrize("width,blocks", [(64, []), (512, [512])])
def test_rows_as_wide_as_a_wide_data_path_lie_in_block_ram(width, blocks):
    """Cards with a narrow one have few block RAMs."""
    assert block_rams(Seal(width=width, depth=32)) == blocks
