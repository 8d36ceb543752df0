"""The walk of a layout against the formulas: every vector, random layouts, entries of another
layout, and how long it takes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cache

import pytest

from hdl.config import NicConfig
from hdl.memory.layout import LayoutWalk
from hdl.ports.keys import LAYOUT
from hdl.ports.rows import MrRow
from tests.fields import pack
from tests.layouts import Layout, Piece
from tests.simulate import Prepared, simulate

CONFIG = NicConfig(width=64, mkeys=True, mrs=8, max_sge=32)
SLOTS, TAG, GENERATION = 32, 0x5A, 7
#: The vectors of the specification: offset -> entry, address and contiguous bytes; ranges.
K1 = Layout(
    [Piece(0x10000, 100), Piece(0x20000, 0), Piece(0x30000, 28), Piece(0x40000, 4096)],
)
K2 = Layout([Piece(0x10000, 512, skip=4), Piece(0x20000, 8)], repeat=2)
K3 = Layout([Piece(0x50000, 8, skip=2), Piece(0x50040, 8, skip=2)], repeat=3)
POINTS = [
    (K1, {0: (0x10000, 100), 99: (0x10063, 1), 100: (0x30000, 28), 127: (0x3001B, 1)}),
    (K1, {128: (0x40000, 4096), 4223: (0x40FFF, 1)}),
    (K2, {0: (0x10000, 512), 512: (0x20000, 8), 520: (0x10204, 512), 1032: (0x20008, 8)}),
    (K3, {0: (0x50000, 8), 8: (0x50040, 8), 16: (0x5000A, 8), 24: (0x5004A, 8)}),
    (K3, {32: (0x50014, 8), 40: (0x50054, 8), 47: (0x5005B, 1)}),
]
RANGES = [
    (K1, 90, [(0x1005A, 10), (0x30000, 28), (0x40000, 22)]),
    (K2, 500, [(0x101F4, 12), (0x20000, 8), (0x10204, 512), (0x20008, 8)]),
    (K3, 4, [(0x50004, 4), (0x50040, 8), (0x5000A, 4)]),
]


@cache
def walk() -> Prepared:
    return Prepared(LayoutWalk(config=CONFIG))


@dataclass
class Asked:
    """A request and what came of it: ranges {address, length}, with the keys of their entries."""

    number: int
    layout: Layout
    offset: int
    length: int
    generation: int = GENERATION
    ranges: list[tuple[int, int, int]] = field(default_factory=list)
    refused: bool = False
    cycles: int = 0

    def row(self) -> int:
        repeats = self.layout.repeat > 1 or any(piece.skip for piece in self.layout.pieces)
        layout = {
            "row_bytes": self.layout.row if repeats else 0,
            "entries": len(self.layout.pieces),
            "generation": self.generation,
        }
        block = LAYOUT.const(layout).as_value().value
        return pack(MrRow, {"type": 7, "length": self.layout.total, "block": block})


def run(entries: dict[int, Layout], asked: list[Asked], *, stall: int | None = None) -> None:
    """Walk the requests; ``entries``: of each of the four keys."""
    prepared = walk()
    dut, rng = prepared.component, random.Random(stall)
    first = CONFIG.mrs - CONFIG.layouts

    async def drive(ctx):
        for number, layout in entries.items():
            for nth, piece in enumerate(layout.pieces):
                entry = {"addr": piece.addr, "count": piece.count, "key": piece.key}
                entry |= {"stride": piece.count + piece.skip, "generation": GENERATION}
                write = {"valid": 1, "place": number * SLOTS + nth, "entry": entry}
                ctx.set(dut.layout, write)
                await ctx.tick()
        ctx.set(dut.layout, {"valid": 0})
        for one in asked:
            request = {"key": (first + one.number) << 8 | TAG, "function": 1}
            request |= {"va": one.offset, "length": one.length}
            ctx.set(dut.i.p.request, request)
            ctx.set(dut.i.p.row.as_value(), one.row())
            ctx.set(dut.i.valid, 1)
            await ctx.tick().until(dut.i.ready)
            ctx.set(dut.i.valid, 0)
            last = False
            while not last:
                ctx.set(dut.o.ready, stall is None or rng.random() < 0.5)
                _, _, taken, found = await ctx.tick().sample(
                    dut.o.valid & dut.o.ready, dut.o.payload
                )
                one.cycles += 1
                if taken:
                    last = bool(found.last)
                    one.refused |= bool(found.refused)
                    if not found.refused:
                        one.ranges.append((found.va, found.length, found.key))
            ctx.set(dut.o.ready, 0)

    simulate(prepared, drive, deadline=200_000)


def expected(layout: Layout, offset: int, length: int) -> list[tuple[int, int, int]]:
    return [
        (one.addr, one.length, layout.pieces[one.entry].key) for one in layout.runs(offset, length)
    ]


@pytest.mark.parametrize("layout, points", POINTS)
def test_points(layout, points):
    asked = [Asked(1, layout, offset, count) for offset, (_, count) in points.items()]
    run({1: layout}, asked)
    assert [one.ranges for one in asked] == [[(*found, 0)] for found in points.values()]


@pytest.mark.parametrize("layout, offset, wanted", RANGES)
def test_ranges(layout, offset, wanted):
    one = Asked(2, layout, offset, sum(length for _, length in wanted))
    run({2: layout}, [one])
    assert one.ranges == [(*found, 0) for found in wanted]
    assert one.ranges == expected(layout, offset, one.length)


def drawn(rng: random.Random, number: int) -> Layout:
    """Any layout of some thousand bytes."""
    counts = [rng.choice((0, 1, 7, 8, 64, rng.randrange(300))) for _ in range(rng.randint(1, 32))]
    counts[rng.randrange(len(counts))] = rng.randint(1, 300)
    interleaved = rng.random() < 0.5
    pieces = [
        Piece(
            rng.randrange(1 << 40), count, number << 16 | n, rng.choice((0, 1, 100)) * interleaved
        )
        for n, count in enumerate(counts)
    ]
    return Layout(pieces, rng.randint(1, 40) if interleaved else 1)


@pytest.mark.parametrize("seed", range(6))
def test_any_layout(seed):
    """T-K15: random layouts of several keys against the model, with and without stalls."""
    rng = random.Random(seed)
    layouts = {number: drawn(rng, number) for number in range(4)}
    asked = []
    for _ in range(40):
        number = rng.randrange(4)
        total = layouts[number].total
        offset = rng.choice((0, total - 1, rng.randrange(total)))
        length = rng.randint(1, min(total - offset, 4096))
        asked.append(Asked(number, layouts[number], offset, length))
    run(layouts, asked, stall=seed if seed % 2 else None)
    for one in asked:
        assert not one.refused
        assert one.ranges == expected(one.layout, one.offset, one.length), one


def test_large_counts():
    """Entries of 2**31 bytes, and a row whose number has 31 bits: no sum is cut off."""
    wide = Layout([Piece(n << 40, 1 << 31, n) for n in range(32)])
    far = Layout([Piece(0x1000, 3, 1, 13)], repeat=1 << 31)
    asked = [
        Asked(0, wide, 31 * (1 << 31) + 5, 100),
        Asked(0, wide, (1 << 31) - 10, 20),
        Asked(1, far, 3 * ((1 << 31) - 2) + 1, 4),
    ]
    run({0: wide, 1: far}, asked)
    assert asked[0].ranges == [((31 << 40) + 5, 100, 31)]
    assert asked[1].ranges == [((1 << 31) - 10, 10, 0), (1 << 40, 10, 1)]
    near = 0x1000 + 16 * ((1 << 31) - 2)
    assert asked[2].ranges == [(near + 1, 2, 1), (near + 16, 2, 1)]


def test_entries_of_another_layout():
    """An access with the row of before finds entries of a new layout, or the other way round."""
    asked = [Asked(0, K1, 0, 100, generation=GENERATION - 1), Asked(0, K1, 0, 100)]
    run({0: K1}, asked)
    assert asked[0].refused and not asked[0].ranges
    assert not asked[1].refused


def test_entries_without_bytes():
    """A row whose entries have no byte does not keep the walk for ever."""
    empty = Layout([Piece(0x1000, 0)] * 3)
    one = Asked(0, empty, 0, 8)
    run({0: empty}, [one])
    assert one.refused and one.cycles < 200


def test_how_long_it_takes():
    """16 entries of 256 bytes, a packet of 4096: in less than the packet takes at 512 bits."""
    layout = Layout([Piece(0x1000 * n, 256) for n in range(16)])
    one = Asked(0, layout, 0, 4096)
    run({0: layout}, [one])
    assert len(one.ranges) == 16
    assert one.cycles <= 16 * 3 + 6
