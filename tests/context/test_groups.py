"""The table of multicast groups: its addresses in registers follow its rows."""

from hdl.config import NicConfig
from hdl.context.groups import GroupTable
from tests.simulate import simulate

CONFIG = NicConfig(groups=4)


def test_addresses_follow_the_rows():
    """Of the row written and of no other; a row of 0 is no group; ``any`` follows a cycle later."""
    dut = GroupTable(config=CONFIG)

    async def write(ctx, index: int, **row: int) -> None:
        ctx.set(dut.program.index, index)
        ctx.set(dut.program.row, dict.fromkeys(("valid", "gid", "member0", "member7"), 0) | row)
        ctx.set(dut.program.write, 1)
        await ctx.tick().until(dut.program.done)
        ctx.set(dut.program.write, 0)
        await ctx.tick().repeat(2)

    async def bench(ctx):
        await ctx.tick().until(dut.ready)
        assert not ctx.get(dut.any)
        rows = {3: {"gid": 1 << 127 | 9, "member7": 0xABCDE}, 1: {"gid": 0xFF, "member0": 2}}
        for index, row in rows.items():
            await write(ctx, index, valid=1, **row)
            assert ctx.get(dut.any)
        for index in range(CONFIG.groups):
            address, row = dut.addresses[index], rows.get(index, {})
            assert ctx.get(address.valid) == bool(row)
            assert ctx.get(address.gid) == row.get("gid", 0)
            ctx.set(dut.read.index, index)
            ctx.set(dut.read.enable, 1)
            await ctx.tick()
            assert ctx.get(dut.read.row.member7) == row.get("member7", 0)
            assert ctx.get(dut.read.row.member0) == row.get("member0", 0)
        await write(ctx, 3)
        assert ctx.get(dut.any) and not ctx.get(dut.addresses[3].valid)
        await write(ctx, 1)
        assert not ctx.get(dut.any)

    simulate(dut, bench)
