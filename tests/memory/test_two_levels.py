"""Translate with page lists of two levels: where the bytes are, entries that name nothing, what it
costs, and that lists of one level notice nothing of it."""

import pytest

from tests.memory.cases import FUNCTION, PD
from tests.memory.model import PAGE, SIZES
from tests.memory.test_translate import LATENCY, Bench

ENTRIES = PAGE // 8  # of a page of the list
LINE = 8 * PAGE  # bytes that a line of the list stands for
OWN = {"function": FUNCTION, "pd": PD, "access": 15}


def region_in(bench, length, **fields):
    """A region with a list of two levels, unless told otherwise."""
    index = next(n for n in range(64) if n not in bench.world.model.regions)
    return bench.world.model.add_pages(bench.rng, index, length, **OWN | {"levels": 2} | fields)


def word(memory, address):
    return int.from_bytes(memory.read(address, 8), "little")


def put(memory, address, entry):
    memory.write(address, entry.to_bytes(8, "little"))


@pytest.mark.parametrize("stall", [0.0, 0.4])
@pytest.mark.parametrize("page", SIZES)
def test_where_the_bytes_are(page, stall):
    """Ranges anywhere in a list of three pages: in its first and last entry, across the end of each
    of its pages, and a byte beyond. Regions with one level take the same cache lines in between."""
    bench = Bench(seed=page.bit_length(), stall=stall)
    rng, world = bench.rng, bench.world
    region = region_in(bench, (2 * ENTRIES + 37) * page + 12345, page=page)
    first, end = region.va - region.first_offset, region.va + region.length
    for _ in range(150):
        length = rng.choice([1, 2, 4095, 4096, 9000])
        border = first + rng.choice([1, ENTRIES, 2 * ENTRIES, rng.randrange(1, 1061)]) * page
        va = rng.choice(
            [
                region.va + rng.randrange(region.length - length),
                border - rng.randrange(1, length + 1),
                border,
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


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("fault", ["odd", "unread"])
@pytest.mark.parametrize("stall", [0.0, 0.4])
def test_an_entry_that_names_nothing(level, fault, stall):
    """What it stands for is refused, and nothing else; nothing is read at the address that it has.
    A line that could not be had is not remembered."""
    bench = Bench(seed=9, stall=stall)
    world, memory = bench.world, bench.world.memory
    region = region_in(bench, 3 * ENTRIES * PAGE)
    flat = world.large[0]
    first = region.va - region.first_offset
    place = region.table + 8 if level == 1 else word(memory, region.table + 8)
    right, wrong = word(memory, place), memory.fresh() * PAGE + 8
    lost = ENTRIES * PAGE if level == 1 else PAGE
    if fault == "unread" and level == 2:
        lost = LINE * 64  # the page of the list
    begin = first + ENTRIES * PAGE
    places = [begin - 1, begin, begin + lost - 1, begin + lost, first + 3 * ENTRIES * PAGE - 1]
    inside = [False, True, True, False, False]
    if fault == "unread" and level == 1:
        # what is in the same page as the entry cannot be read either
        inside = [True] * 5

    async def process(ctx):
        if fault == "odd":
            put(memory, place, wrong)
        else:
            memory.bad.add(place // PAGE)
        for _ in range(3):
            for va in places:
                bench.ask(region.key, va, 1, remote=1)
                bench.ask(flat.key, flat.va, 1)
        await bench.run(ctx)
        assert [wanted == 10 for wanted in bench.wanted[::2]] == 3 * inside
        assert all(address // PAGE != wrong // PAGE for _, address, _ in bench.read_times)
        put(memory, place, right)
        memory.bad.clear()
        if fault == "odd" and level == 2:
            return  # the line was read, and is remembered
        for va in places:
            bench.ask(region.key, va, 1, remote=1)
        await bench.run(ctx)
        assert not any(isinstance(wanted, int) for wanted in bench.wanted[-5:])

    bench.simulate(process)


def test_what_a_miss_costs():
    """Two reads, the second at once behind the first one's answer; misses overlap; a hit costs
    none."""
    bench = Bench(lines=64, seed=5)
    region = region_in(bench, 2 * ENTRIES * PAGE)
    start = region.va - region.first_offset + 64 * LINE  # in the list's second page

    async def process(ctx):
        bench.ask(region.key, start, 1)
        await bench.run(ctx)
        (asked, first, _), (then, line, _) = bench.read_times
        assert first == region.table + 8
        assert line == word(bench.world.memory, first)
        assert then - asked == LATENCY + 3
        for n in range(1, 17):
            bench.ask(region.key, start + n * LINE, 1)
        await bench.run(ctx)
        assert bench.misses == 17 and bench.reads == 34
        # 16 entries, and 16 lines of 8 beats: two latencies for all
        assert bench.chunk_times[-1] - bench.accepted[1] <= 2 * LATENCY + 16 * 9 + 24
        for n in range(17):
            bench.ask(region.key, start + n * LINE + 5 * PAGE, 1)
        await bench.run(ctx)
        assert bench.reads == 34
        assert bench.first[-1] - bench.accepted[-1] == 9

    bench.simulate(process)


def test_one_level_is_as_fast_as_without():
    """Cycle by cycle the same as on a card that has no lists of two levels."""
    found = []
    for two_level in (False, True):
        bench = Bench(lines=16, seed=4, two_level=two_level)
        rng = bench.rng
        regions = [region for region in bench.world.good if region.levels == 1]
        large = region_in(bench, 256 * PAGE, levels=1)
        for _ in range(200):
            region = rng.choice([*regions, large, large])
            length = min(rng.choice([1, 4096, 9000]), region.length)
            bench.ask(region.key, bench.world.place(region, length), length)
        bench.simulate(bench.run)
        found.append((bench.read_times, bench.accepted, bench.chunk_times))
    assert found[0] == found[1] and len(found[0][0]) > 50


@pytest.mark.parametrize(
    ("page", "levels", "misses", "reads"),
    [(PAGE, 1, 512, 512), (PAGE, 2, 512, 1024), (SIZES[1], 1, 1, 1), (SIZES[1], 2, 1, 2)],
)
def test_misses_of_a_gibibyte(page, levels, misses, reads):
    """A walk over 16 MiB of a region of 1 GiB, by the card's counter and the host's."""
    bench = Bench()
    region = region_in(bench, 1 << 30, page=page, levels=levels)
    start = region.va - region.first_offset
    if levels == 1:
        start -= region.table % 64 // 8 * page
    start += -(-(region.va - start) // (8 * SIZES[1])) * 8 * SIZES[1]  # with a line of either
    for line in range(512):
        bench.ask(region.key, start + line * LINE, 1)
    bench.simulate(bench.run)
    assert (bench.misses, bench.reads) == (misses, reads)
