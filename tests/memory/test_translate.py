"""Translate against the models, in Amaranth's simulator: conflicts, misses in flight, faults."""

from __future__ import annotations

import random
from collections import deque

import pytest
from amaranth.sim import Simulator

from hdl.config import NicConfig
from hdl.memory.translate import Translate
from hdl.ports.host import ReadRequest
from hdl.ports.rows import MrRow
from tests.fields import pack, unpack
from tests.memory.cases import FUNCTION, PD, World
from tests.memory.model import PAGE
from tests.simulate import Pin

DEADLINE = 12_000
LATENCY = 40


class Bench:
    """One Translate, its table, host memory, and the chunks it gave."""

    def __init__(self, *, lines=8, mrs=64, seed=1, stall=0.0, **config):
        sizes = {"width": 64, "mrs": mrs, "translation_lines": lines, "gather_bytes": 8192}
        if not lines:
            config |= {"two_level": False}
        self.config = NicConfig(**sizes, **config)
        self.dut = Translate(config=self.config)
        self.world = World(seed, mrs, self.config.address_bits, two_level=lines > 0)
        self.rng, self.stall = random.Random(seed), stall
        self.requests: deque[dict] = deque()
        self.wanted: list[list] = []
        self.chunks: list[list] = [[]]
        self.times: list[tuple[int, int]] = []  # accepted, first chunk
        self.accepted: list[int] = []
        self.first: list[int] = []
        self.chunk_times: list[int] = []
        self.now = 0
        self.reads = self.misses = 0
        self.read_times: list[tuple[int, int, int]] = []  # with address and bytes

    def ask(self, key, va, length, access=1, remote=0, check_only=0, pd=PD, qp=0):
        request = {"function": FUNCTION, "pd": pd, "key": key, "va": va, "length": length}
        self.requests.append(
            request | {"access": access, "remote": remote, "check_only": check_only, "qp": qp}
        )
        bad = 10 if remote else 4
        whose = qp if remote else None
        if not self.world.model.allowed(FUNCTION, pd, key, va, length, access, qp=whose):
            self.wanted.append([(bad, 0)])
        elif length == 0 or check_only:
            self.wanted.append([(0, 0)])
        else:
            pieces = self.world.model.pieces(key, va, length)
            self.wanted.append(bad if pieces is None else [(0, *piece) for piece in pieces])

    async def run(self, ctx, until=None):
        """Step until all requests are answered (or ``until``), then compare."""
        dut, memory, model = self.dut, self.world.memory, self.world.model
        beats: deque[tuple[int, int, int]] = deque()
        row, driving, holding = None, False, False
        mine, asked, answers = dut.o, dut.read_client.req, dut.read_client.rsp
        offered, taken = Pin(ctx, dut.i.valid), Pin(ctx, mine.ready)
        reads, answered = Pin(ctx, asked.ready), Pin(ctx, answers.valid)
        # An iteration of the clock costs less than another await.
        ticks = aiter(ctx.tick())
        while True:
            if until() if until else len(self.chunks) > len(self.wanted):
                break
            # drive
            if not driving and self.requests:
                ctx.set(dut.i.payload, self.requests[0])
                driving = True
            offered.drive(driving)
            taken.drive(self.rng.random() >= self.stall)
            reads.drive(self.rng.random() >= self.stall)
            if row is not None:
                ctx.set(dut.mr.row.as_value(), row)
                row = None
            answering = bool(beats) and beats[0][0] <= self.now
            answered.drive(answering)
            if answering:
                _, value, flags = beats.popleft()
                ctx.set(
                    answers.payload,
                    {"data": value, "keep": 255, "last": flags & 1, "error": flags >> 1},
                )
            # sample
            if driving and ctx.get(dut.i.ready):
                self.requests.popleft()
                self.accepted.append(self.now)
                driving = False
            if ctx.get(dut.mr.enable):
                region = model.regions.get(ctx.get(dut.mr.index) % self.config.mrs)
                row = pack(MrRow, region.row()) if region else 0
            if ctx.get(asked.valid) and ctx.get(asked.ready):
                request = unpack(ReadRequest, ctx.get(asked.payload.as_value()))
                addr, size = request["addr"], request["length"]
                assert size in (8, 64) and addr % size == 0
                self.reads += 1
                self.read_times.append((self.now, addr, size))
                content, bad = memory.read(addr, size), memory.fails(addr, size)
                for n in range(0, size, 8):
                    word = int.from_bytes(content[n : n + 8], "little")
                    beats.append((self.now + LATENCY, word, (n == size - 8) * (1 + 2 * bad)))
            valid = ctx.get(mine.valid)
            assert valid or not holding, "valid taken back"
            holding = valid and not ctx.get(mine.ready)
            if valid and not holding:
                chunk = ctx.get(mine.payload)
                if not self.chunks[-1]:
                    self.first.append(self.now)
                self.chunk_times.append(self.now)
                self.chunks[-1].append((chunk.status, chunk.addr, chunk.length))
                if chunk.last:
                    self.chunks.append([])
            await anext(ticks)
            self.now += 1
            assert self.now < DEADLINE, f"{len(self.chunks) - 1} of {len(self.wanted)} requests"
        self.misses = ctx.get(dut.misses)
        if not until:
            self.compare()

    def compare(self):
        for n, (got, wanted) in enumerate(zip(self.chunks, self.wanted, strict=False)):
            if isinstance(wanted, int):
                assert any(chunk[0] == wanted for chunk in got), f"request {n}: {got}"
            elif wanted[0][0] or wanted[0][-1] == 0:
                assert [(status, size) for status, _, size in got] == wanted, f"request {n}"
            else:
                assert got == wanted, f"request {n}"

    def simulate(self, process):
        sim = Simulator(self.dut)
        sim.add_clock(4e-9)

        async def testbench(ctx):
            await process(ctx)

        sim.add_testbench(testbench)
        sim.run()


@pytest.mark.parametrize("lines", [8, 0])
@pytest.mark.parametrize("stall", [0.0, 0.5])
def test_random_requests(stall, lines):
    """Eight lines for regions of many pages: conflicts, with misses and hits interleaved. Without
    lines each page is read when it is needed."""
    bench = Bench(lines=lines, seed=3, stall=stall)
    world, rng = bench.world, bench.rng
    for _ in range(300 if lines else 200):
        addr, length, key = world.sge(rng.choice([0, 1, 8, 4096, 4097, 9000]))
        if rng.random() < 0.15:
            addr, length, key = world.spoil(addr, max(length, 1), key)
        bench.ask(key, addr, length, remote=rng.randrange(2), check_only=rng.random() < 0.1)
    bench.simulate(bench.run)


@pytest.mark.parametrize(("bits", "lines"), [(24, 8), (32, 8), (33, 8), (48, 8), (24, 0)])
def test_few_address_bits(bits, lines):
    """Regions up to the last address of a card that keeps few bits, and accesses beyond it."""
    bench = Bench(lines=lines, seed=bits, address_bits=bits, page_sizes=False, two_level=False)
    world, rng = bench.world, bench.rng
    for _ in range(300 if lines else 200):
        addr, length, key = world.sge(rng.choice([0, 1, 8, 4096, 4097, 9000]))
        if rng.random() < 0.3:
            addr, length, key = world.spoil(addr, max(length, 1), key)
        bench.ask(key, addr, length, remote=rng.randrange(2), check_only=rng.random() < 0.1)
    bench.simulate(bench.run)


@pytest.mark.parametrize("seed", range(4))
def test_lines_that_share_an_index(seed):
    """Few lines, all of one index or its neighbour, in every order and back to back."""
    bench = Bench(seed=seed)
    world, rng = bench.world, bench.rng
    region = next(one for one in world.large if one.length == 40 * PAGE)
    other = world.model.add_pages(
        rng, region.index ^ 8, 1 << 21, function=FUNCTION, pd=PD, access=15
    )
    third = world.model.add_pages(
        rng, region.index ^ 16, 1 << 21, function=FUNCTION, pd=PD, access=15
    )
    for _ in range(300):
        one = rng.choice([region, other, third])
        line = rng.choice([0, 0, 8, 16]) if one is not region else 0
        va = one.va + line * 8 * PAGE + rng.randrange(2) * 8 * PAGE + rng.randrange(100)
        bench.ask(one.key, va, rng.choice([1, 1, 5000]))
    bench.simulate(bench.run)


def test_rates():
    """A chunk per cycle when all is cached; misses overlap."""
    bench = Bench(lines=64, seed=5)
    region = next(one for one in bench.world.large if one.length == 40 * PAGE)
    page = -region.first_offset % PAGE + region.va

    async def process(ctx):
        bench.ask(region.key, page, 38 * PAGE)
        await bench.run(ctx)
        cold = bench.chunk_times[-1] - bench.accepted[0]
        # six lines of 8 beats and a cycle each, one latency; the clearing after reset came before
        assert cold <= 64 + LATENCY + 6 * (8 + 1) + 32
        reads = bench.reads
        assert reads <= 6
        bench.ask(region.key, page, 1)
        await bench.run(ctx)
        assert bench.first[-1] - bench.accepted[-1] == 9
        start = len(bench.chunk_times)
        for n in range(40):
            bench.ask(region.key, page + n * 50, 100 if n % 2 else 3 * PAGE)
        await bench.run(ctx)
        times = bench.chunk_times[start:]
        assert len(times) >= 90 and times[-1] - times[0] == len(times) - 1
        assert bench.reads == reads

    bench.simulate(process)


def test_atomics_of_regions_that_begin_at_any_byte():
    """A word at a multiple of 8 of the region's addresses, but not of the bus, is refused: it may
    lie in two pages. Other accesses may."""
    bench = Bench(seed=8)
    rng, model = bench.rng, bench.world.model
    regions = {}
    for index in range(40, 48):
        region = model.add_pages(
            rng,
            index,
            2 * PAGE + 16,
            va=rng.getrandbits(30) * 8,
            function=FUNCTION,
            pd=PD,
            access=15,
        )
        regions[region.first_offset % 8] = region
    assert len(regions) > 3

    async def process(ctx):
        for region in regions.values():
            to_page_end = -region.first_offset % PAGE // 8 * 8
            for place in (0, 8, to_page_end, to_page_end + 8):
                for access in (1, 8):
                    bench.ask(region.key, region.va + place, 8, access, remote=1)
        await bench.run(ctx)

    bench.simulate(process)
    refused = [wanted for wanted in bench.wanted if wanted == [(10, 0)]]
    assert len(refused) == 4 * sum(1 for offset in regions if offset)


@pytest.mark.parametrize("lines", [8, 0])
def test_failed_lines_are_read_again(lines):
    bench = Bench(lines=lines, seed=6)
    world = bench.world
    region = world.large[0]

    async def process(ctx):
        world.memory.bad.add(region.table // PAGE)
        for _ in range(5):
            bench.ask(region.key, region.va, 8)
        await bench.run(ctx)
        assert all(chunk[0][0] == 4 for chunk in bench.chunks[:5])
        world.memory.bad.clear()
        bench.ask(region.key, region.va, 8)
        await bench.run(ctx)
        assert bench.chunks[5][0][0] == 0

    bench.simulate(process)


def test_pages_without_a_cache():
    """Each page is read, and so a list that has changed counts at once."""
    bench = Bench(lines=0, seed=7)
    region = bench.world.large[0]

    async def process(ctx):
        bench.ask(region.key, region.va, 8)
        bench.ask(region.key, region.va, 8)
        await bench.run(ctx)
        place = region.table
        bench.world.memory.write(place, (bench.world.memory.fresh() * PAGE).to_bytes(8, "little"))
        bench.ask(region.key, region.va, 8)
        await bench.run(ctx)
        assert ctx.get(bench.dut.invalidate_done)
        assert (bench.reads, bench.misses) == (3, 3)
        assert all(size == 8 for _, _, size in bench.read_times)

    bench.simulate(process)


def test_invalidation():
    """Only the region's own lines go; the one looked up last as well."""
    bench = Bench(lines=64, seed=7)
    world, memory, dut = bench.world, bench.world.memory, bench.dut
    changed, kept = world.large[0], world.large[1]

    async def process(ctx):
        for region in (kept, changed, changed):
            bench.ask(region.key, region.va, 8)
        await bench.run(ctx)
        memory.write(changed.table, (memory.fresh() * PAGE).to_bytes(8, "little"))
        ctx.set(dut.invalidate_mr, changed.index)
        ctx.set(dut.invalidate_start, 1)
        await ctx.tick()
        ctx.set(dut.invalidate_start, 0)
        assert not ctx.get(dut.invalidate_done)
        start = bench.now
        await bench.run(ctx, until=lambda: bool(ctx.get(dut.invalidate_done)))
        assert bench.now - start <= 64 + 4
        reads = bench.reads
        bench.ask(changed.key, changed.va, 8)
        await bench.run(ctx)
        assert bench.reads == reads + 1
        bench.ask(kept.key, kept.va, 8)
        await bench.run(ctx)
        assert bench.reads == reads + 1

    bench.simulate(process)
