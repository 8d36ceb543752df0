"""FailedQps against a list in plain Python."""

import random

import pytest

from hdl.transport.receive.failed_qps import FailedQps
from tests.simulate import simulate

DEPTH = 5


async def looked(ctx, dut, **what):
    """Start a look; return found and the cycles that it took."""
    for name, value in what.items():
        ctx.set(getattr(dut, name), value)
    *_, done, found = await ctx.tick().sample(dut.done, dut.found)
    ctx.set(dut.search, 0)
    ctx.set(dut.newest, 0)
    cycles = 0
    while not done:
        *_, done, found = await ctx.tick().sample(dut.done, dut.found)
        cycles += 1
        assert cycles <= 3 * DEPTH
    return found, cycles


async def pulse(ctx, dut, name):
    ctx.set(getattr(dut, name), 1)
    await ctx.tick()
    ctx.set(getattr(dut, name), 0)


@pytest.mark.parametrize("seed", range(3))
def test_list_of_failed_qps(seed):
    dut, rng, rows = FailedQps(depth=DEPTH), random.Random(seed), []

    async def bench(ctx):
        for _ in range(200):
            assert ctx.get(dut.any) == bool(rows)
            choices = ["search"] if rows else []
            choices += ["add"] if len(rows) < DEPTH else []
            choices += ["remove"] if rows else []
            what = rng.choice(choices)
            if what == "add":
                free = [qp for qp in range(1, 12) if qp not in [row["qp"] for row in rows]]
                row = {"qp": rng.choice(free), "status": rng.randrange(1, 20)}
                row |= {"requester": rng.randrange(2), "unreported": rng.randrange(2)}
                ctx.set(dut.added, row)
                await pulse(ctx, dut, "add")
                rows.append(row)
            elif what == "search":
                qp = rng.choice([row["qp"] for row in rows] + [15])
                place = next((n for n, row in enumerate(rows) if row["qp"] == qp), None)
                found, cycles = await looked(ctx, dut, search=1, qp=qp)
                assert found == (place is not None)
                assert cycles == 3 * (len(rows) if place is None else place + 1)
                if place is not None:
                    assert_row(ctx.get(dut.row), rows[place])
                    if rng.random() < 0.5:
                        await pulse(ctx, dut, "report")
                        rows[place]["unreported"] = 0
            else:
                found, cycles = await looked(ctx, dut, newest=1)
                assert cycles == 2
                assert_row(ctx.get(dut.row), rows.pop())
                await pulse(ctx, dut, "remove")

    def assert_row(got, wanted):
        assert {name: getattr(got, name) for name in wanted} == wanted

    simulate(dut, bench)
