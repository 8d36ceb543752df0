"""Translate with memory windows: who may use them, for which bytes, and which page list it is."""

import pytest

from tests.memory.cases import FUNCTION, PD
from tests.memory.model import BOUND_1, BOUND_2, PAGE, SIZES
from tests.memory.test_translate import Bench

READ, WRITE = 4, 2
QP = 0x2A5A


def bench_with(kind, page=PAGE, *, seed=1, zero_based=False):
    """A bench, a region of 40 pages without any remote right, and a window of some of its bytes."""
    bench = Bench(lines=8, seed=seed)
    model, rng = bench.world.model, bench.rng
    region_number, number, *_ = (n for n in range(64) if n not in model.regions)
    region = model.add_pages(
        rng, region_number, 40 * page, page=page, function=FUNCTION, pd=PD, access=1
    )
    offset, length = 9 * page + 777, 20 * page + 5
    va = 0 if zero_based else region.va + offset
    window = model.add_window(
        rng, number, region, offset, type=kind, va=va, length=length, access=READ | WRITE, qp=QP
    )
    return bench, region, window


@pytest.mark.parametrize("zero_based", [False, True])
@pytest.mark.parametrize("page", SIZES)
@pytest.mark.parametrize("kind", [BOUND_1, BOUND_2])
def test_the_bytes_of_a_window(kind, page, zero_based):
    """All of them, and none beside them; the region's own key in between."""
    bench, region, window = bench_with(kind, page, seed=kind + page, zero_based=zero_based)
    rng, end = bench.rng, window.va + window.length
    for _ in range(80):
        length = rng.choice([1, 8, 4096, 9000])
        va = rng.choice(
            [
                window.va,
                window.va + rng.randrange(window.length - length),
                end - length,
                end - length + 1,
                end,
                (window.va - 1) & (1 << 64) - 1,
                (window.va - length) & (1 << 64) - 1,
            ]
        )
        bench.ask(window.key, va, length, rng.choice([READ, WRITE]), remote=1, qp=QP)
        bench.ask(region.key, region.va + rng.randrange(region.length - length), length)
    bench.simulate(bench.run)


@pytest.mark.parametrize("kind", [BOUND_1, BOUND_2])
def test_who_may_use_it(kind):
    """No SGE may; a window of type 2 serves one QP; nobody has a right that it does not grant."""
    bench, region, window = bench_with(kind)
    good = dict(va=window.va, length=8, access=READ, remote=1, qp=QP)
    asked = [
        (good, True),
        (good | {"qp": QP ^ 1}, kind == BOUND_1),
        (good | {"qp": QP ^ 1 << 13}, kind == BOUND_1),
        (good | {"remote": 0}, False),
        (good | {"remote": 0, "access": 0}, False),
        (good | {"access": 8}, False),
        (good | {"pd": PD + 1}, False),
    ]
    for fields, allowed in asked:
        bench.ask(window.key, **fields)
        assert isinstance(bench.wanted[-1], list) and (bench.wanted[-1][0][0] == 0) == allowed
    bench.ask(window.key ^ 1, **good)
    bench.ask(region.key, va=region.va, length=8, access=READ, remote=1, qp=QP)
    assert all(wanted[0][0] == 10 for wanted in bench.wanted[-2:])
    bench.simulate(bench.run)


def test_it_uses_the_pages_of_its_region():
    """The cache knows a window's pages as its region's, so what a window was bound to before cannot
    be found there, and forgetting a region forgets them too."""
    bench, region, window = bench_with(BOUND_1)
    model, rng, memory = bench.world.model, bench.rng, bench.world.memory
    access = dict(access=READ, remote=1)

    async def process(ctx):
        bench.ask(region.key, window.va, 1)
        await bench.run(ctx)
        reads = bench.reads
        bench.ask(window.key, window.va, 1, **access)
        await bench.run(ctx)
        assert bench.reads == reads
        # Bound again, to other bytes and to another region: the same addresses are others now.
        fields = dict(type=BOUND_1, va=window.va, length=PAGE, access=READ)
        other = model.add_pages(rng, 52, 40 * PAGE, function=FUNCTION, pd=PD, access=1)
        for parent, offset in ((region, 3 * PAGE), (other, 0), (region, 30 * PAGE)):
            again = model.add_window(rng, window.index, parent, offset, **fields)
            bench.ask(again.key, window.va, PAGE, **access)
            await bench.run(ctx)
        # The pages are replaced and the region's are forgotten.
        entry = region.table + 8 * ((region.first_offset + 30 * PAGE) // PAGE)
        for at in (entry, entry + 8):
            memory.write(at, (memory.fresh() * PAGE).to_bytes(8, "little"))
        ctx.set(bench.dut.invalidate_mr, region.index)
        ctx.set(bench.dut.invalidate_start, 1)
        await ctx.tick()
        ctx.set(bench.dut.invalidate_start, 0)
        await bench.run(ctx, until=lambda: bool(ctx.get(bench.dut.invalidate_done)))
        bench.ask(again.key, window.va, PAGE, **access)
        await bench.run(ctx)

    bench.simulate(process)
