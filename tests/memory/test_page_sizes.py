"""Translate with pages of 2 MiB and 1 GiB: where the bytes are, and entries that are refused."""

import pytest

from tests.memory.cases import FUNCTION, PD
from tests.memory.model import PAGE, SIZES
from tests.memory.test_translate import Bench

MIB_2, GIB_1 = SIZES[1:]


def bench_with(page, length, *, lines=8, seed=1, stall=0.0):
    """A bench, and in it a region of pages of one size."""
    bench = Bench(lines=lines, seed=seed, stall=stall)
    index = next(n for n in range(64) if n not in bench.world.model.regions)
    region = bench.world.model.add_pages(
        bench.rng, index, length, page=page, function=FUNCTION, pd=PD, access=15
    )
    return bench, region


@pytest.mark.parametrize(("lines", "stall"), [(8, 0.0), (8, 0.4), (0, 0.4)])
@pytest.mark.parametrize("page", SIZES)
def test_where_the_bytes_are(page, lines, stall):
    """Ranges anywhere, at both ends, across each page's end, and a byte beyond; regions with pages
    of other sizes take the same lines of the cache in between."""
    seed = page.bit_length()
    bench, region = bench_with(page, 37 * page + 12345, lines=lines, stall=stall, seed=seed)
    rng, world = bench.rng, bench.world
    end = region.va + region.length
    for _ in range(150 if lines else 60):
        length = rng.choice([1, 2, 4095, 4096, 9000])
        border = region.va - region.first_offset + rng.randrange(1, 38) * page
        va = rng.choice(
            [
                region.va + rng.randrange(region.length - length),
                border - rng.randrange(1, length + 1),
                region.va,
                end - length,
                region.va - 1,
                end - length + 1,
            ]
        )
        bench.ask(region.key, va, length, remote=rng.randrange(2))
        other, size, key = world.sge(rng.choice([1, 5000]))
        bench.ask(key, other, size)
    bench.simulate(bench.run)


@pytest.mark.parametrize("lines", [8, 0])
@pytest.mark.parametrize(("page", "odd"), [(MIB_2, PAGE), (MIB_2, MIB_2 // 2), (GIB_1, MIB_2)])
def test_a_page_that_is_not_aligned_is_refused(page, odd, lines):
    """An entry that names no page of the region's size gives an error, not memory below it."""
    bench, region = bench_with(page, 4 * page, lines=lines)
    memory, second = bench.world.memory, region.table + 8
    entry = int.from_bytes(memory.read(second, 8), "little")
    memory.write(second, (entry + odd).to_bytes(8, "little"))
    border = region.va - region.first_offset + page
    for va in (border - 1, border, border + page - 1, border + page):
        bench.ask(region.key, va, 1, remote=1)
    assert [wanted == 10 for wanted in bench.wanted] == [False, True, True, False]
    bench.simulate(bench.run)
