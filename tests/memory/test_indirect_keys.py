"""An imaginary indirect key: what a packet's bytes are, and what protects them at each use."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from functools import cache

import pytest

from hdl.config import NicConfig
from hdl.memory import check, resolve
from hdl.memory.scatter import Scatter
from hdl.ports.jobs import ScatterKind
from hdl.ports.rows import MrRow
from tests.fields import pack
from tests.memory.model import BOUND_1, DMA, LOC_PROT_ERR, OK, PAGE, PAGES, REM_ACCESS_ERR
from tests.memory.pair_key import PAIR, TABLE, declare, entries, pair_row
from tests.simulate import Prepared, simulate

LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, ATOMIC = 1, 2, 4, 8
FUNCTION, PD, TAG, LATENCY = 1, 7, 0x5A, 20
PAIR_KEY, LEFT, RIGHT, READ_ONLY, OTHER_PD, WINDOW, OTHER_PAIR, SHORT = (
    n << 8 | TAG for n in range(1, 9)
)
OWN = {"function": FUNCTION, "pd": PD, "tag": TAG, "access": LOCAL_WRITE}
FIRST, SECOND = (0x10000, 100, LEFT), (0x20004, 60, RIGHT)
TOTAL = FIRST[1] + SECOND[1]


def regions(total: int = TOTAL) -> dict[int, dict]:
    """Rows by key. All but the pair's grant no remote right, as the pair's key does that."""
    direct = OWN | {"type": DMA, "length": (1 << 47) - 1}
    granted = OWN | {"access": 15}
    return {
        PAIR_KEY: pair_row(total, **granted),
        OTHER_PAIR: pair_row(total, **granted),
        LEFT: direct,
        RIGHT: direct,
        READ_ONLY: direct | {"access": 0},
        OTHER_PD: direct | {"pd": PD + 1},
        WINDOW: direct | {"type": BOUND_1, "access": 15},
        SHORT: direct | {"type": PAGES, "va": SECOND[0], "length": SECOND[1] - 1},
    }


def scatter() -> Prepared:
    """A scatter of the kinds that are declared."""
    sizes = {"mrs": 16, "translation_lines": 8, "gather_bytes": 8192, "max_sge": 4}
    return Prepared(Scatter(config=NicConfig(width=64, **sizes)))


scatter_with_pairs = cache(scatter)


@dataclass
class Bench:
    """A scatter, its table of regions, and host memory: what was written, at which addresses."""

    rows: dict[int, dict]
    table: bytes
    jobs: list[dict] = field(default_factory=list)
    stall: random.Random | None = None  # when others are not always ready
    failing: bool = False  # the host does not answer reads
    sge: tuple[int, int, int] = (0, 0, 0)
    statuses: list[int] = field(default_factory=list)
    checked_at: list[int] = field(default_factory=list)
    written: dict[int, int] = field(default_factory=dict)
    words: list[tuple[int, int]] = field(default_factory=list)
    now: int = 0
    replies: int = 0
    lists: dict[int, bytes] = field(default_factory=dict)  # lines of page lists, by address

    def ask(self, va: int, length: int, key: int = PAIR_KEY, **job) -> None:
        place = {"kind": ScatterKind.KEY, "function": FUNCTION, "pd": PD, "offset": length}
        self.jobs.append(place | {"va": va, "length": length, "key": key} | job)

    def ask_line(self, va: int, length: int, key: int = PAIR_KEY) -> None:
        self.sge = (va, length, key)
        place = {"kind": ScatterKind.LINE, "function": FUNCTION, "pd": PD, "num_sge": 1}
        self.jobs.append(place | {"length": length})

    async def _offer(self, ctx, port, payload) -> None:
        ctx.set(port.payload, payload)
        ctx.set(port.valid, 1)
        await ctx.tick().until(port.ready)
        ctx.set(port.valid, 0)

    async def _jobs(self, ctx) -> None:
        for job in self.jobs:
            await self._offer(ctx, self.dut.job, job)

    async def _payload(self, ctx) -> None:
        for number, job in enumerate(self.jobs):
            if job["kind"] in (ScatterKind.ATOMIC, ScatterKind.CHECK_READ):
                continue
            data = sent(number, job["length"])
            for at in range(0, len(data), 8):
                part = data[at : at + 8]
                beat = {"data": int.from_bytes(part, "little"), "keep": (1 << len(part)) - 1}
                ends = {"first": at == 0, "last": at + 8 >= len(data)}
                await self._offer(ctx, self.dut.payload, beat | ends)

    async def _effects(self, ctx) -> None:
        for number in range(len(self.jobs)):
            while len(self.statuses) <= number:
                await ctx.tick()
            await self._offer(ctx, self.dut.effects, {"reply": 1, "qp": 1})

    async def _regions(self, ctx) -> None:
        """As ``TableRead`` says: the row comes a cycle later and stays."""
        rows, port = {key >> 8: row for key, row in self.rows.items()}, self.dut.mr
        while True:
            *_, enable, index = await ctx.tick().sample(port.enable, port.index)
            if enable:
                ctx.set(port.row.as_value(), pack(MrRow, rows.get(index, {})))

    async def _host(self, ctx) -> None:
        reads, writes, word = self.dut.table_client, self.dut.write_client.beat, self.dut.word
        for port in (reads.req, writes, word, self.dut.reply, self.dut.checked):
            ctx.set(port.ready, 1)
        answers: list[tuple[int, dict]] = []
        told = self.dut.checked
        place = before = 0
        stalled = (reads.req, writes, told)
        while True:
            for port in stalled if self.stall else ():
                ctx.set(port.ready, self.stall.random() < 0.6)
            due = bool(answers) and answers[0][0] <= self.now
            ctx.set(reads.rsp.valid, due)
            if due:
                ctx.set(reads.rsp.payload, answers.pop(0)[1])
            (
                *_,
                asked,
                read,
                wrote,
                beat,
                changed,
                target,
                checked,
                status,
                replied,
            ) = await ctx.tick().sample(
                *(reads.req.valid & reads.req.ready, reads.req.payload),
                *(writes.valid & writes.ready, writes.payload),
                *(word.valid, word.payload),
                *(told.valid & told.ready, told.p.status, self.dut.reply.valid),
            )
            self.now += 1
            self.replies += replied
            if asked:
                assert read.length == 64
                line = self.table if read.addr == TABLE else self.lists[read.addr]
                for n in range(8):
                    data = int.from_bytes(line[8 * n : 8 * n + 8], "little")
                    last = {"last": n == 7, "error": self.failing and n == 7}
                    answers.append((self.now + LATENCY, {"data": data} | last))
            if wrote:
                place = beat.addr - beat.start if beat.first else place + 8
                for lane in range(beat.start, beat.stop):
                    n = lane - beat.up
                    value = beat.data >> 8 * n if n >= 0 else before >> 8 * (8 + n)
                    self.written[place + lane] = value & 0xFF
                before = beat.data
            for pulse in (self.dut.word_done, self.dut.word_changed):
                ctx.set(pulse, bool(changed) and not target.drop)
            if changed:
                self.words.append((target.addr, target.drop))
            if checked:
                self.statuses.append(status)
                self.checked_at.append(self.now)

    async def _slots(self, ctx) -> None:
        addr, length, key = self.sge
        ctx.set(self.dut.slot_data, addr | length << 64 | key << 96)

    def run(self, prepared: Prepared | None = None) -> list[int]:
        """Return the statuses of all jobs, when what they write has been written."""
        prepared = prepared or scatter_with_pairs()
        self.dut = prepared.component

        async def until_the_end(ctx):
            while self.replies < len(self.jobs):
                await ctx.tick()

        background = (
            *(self._slots, self._jobs, self._payload, self._effects),
            *(self._regions, self._host),
        )
        simulate(prepared, until_the_end, deadline=20_000, background=background)
        return self.statuses


def sent(number: int, length: int) -> bytes:
    """The payload of a job."""
    return bytes((37 * number + 11 * n + 1) & 0xFF for n in range(length))


def places(va: int, length: int) -> list[int]:
    """Where the bytes of a range under the pair's key are."""
    (first, count, _), (second, _, _) = FIRST, SECOND
    return [first + n if n < count else second + n - count for n in range(va, va + length)]


@pytest.fixture(autouse=True)
def imaginary(monkeypatch):
    declare(monkeypatch)


def bench(first=FIRST, second=SECOND, total=TOTAL, **fields) -> Bench:
    return Bench(regions(total), entries(first, second), **fields)


@pytest.mark.parametrize("line", [False, True])
@pytest.mark.parametrize(
    "va, length",
    [(0, 1), (0, 100), (0, TOTAL), (99, 1), (99, 2), (100, 1), (90, 40), (TOTAL - 1, 1)],
)
def test_a_range_is_resolved(va, length, line):
    """The bytes of a peer's range, and of an SGE's, are those of the entries, in order."""
    dut = bench()
    (dut.ask_line if line else dut.ask)(va, length)
    assert dut.run() == [OK]
    assert dut.written == dict(zip(places(va, length), sent(0, length), strict=True))


def test_entries_in_several_pages():
    """A packet of 4096 bytes in two entries that each lie in two pages."""
    first, second = (0x10000 - 1000, 2000, LEFT), (0x20000 - 96, 3000, RIGHT)
    dut = bench(first, second, 5000)
    dut.ask(100, 4096)
    assert dut.run() == [OK]
    where = [first[0] + n if n < 2000 else second[0] + n - 2000 for n in range(100, 4196)]
    assert dut.written == dict(zip(where, sent(0, 4096), strict=True))


@pytest.mark.parametrize(
    "second",
    [
        (*SECOND[:2], READ_ONLY),  # needs local write
        (*SECOND[:2], OTHER_PD),
        (*SECOND[:2], WINDOW),  # is for peers alone
        (*SECOND[:2], RIGHT ^ 1),  # has been given back
        (*SECOND[:2], 0xF << 8 | TAG),  # is nobody's
        (*SECOND[:2], 0x10 << 8 | TAG),  # is beyond the table
        (*SECOND[:2], SHORT),  # ends in front of the entry's last byte
        ((1 << 64) - 8, SECOND[1], RIGHT),  # wraps
        (*SECOND[:2], PAIR_KEY),  # a chain that is too deep, to itself
        (*SECOND[:2], OTHER_PAIR),
        (SECOND[0], SECOND[1] - 1, RIGHT),  # has fewer bytes than the key
    ],
)
@pytest.mark.parametrize("line", [False, True])
def test_an_error_in_the_second_entry_leaves_no_byte(second, line):
    """It is found before anything is written; what comes behind is as it should be."""
    dut = bench(second=second)
    (dut.ask_line if line else dut.ask)(0, TOTAL)
    dut.ask(40, 60)
    refused = LOC_PROT_ERR if line else REM_ACCESS_ERR
    assert dut.run() == [refused, OK]
    assert dut.written == dict(zip(places(40, 60), sent(1, 60), strict=True))


def test_entries_of_regions_with_pages():
    """Reads of page lists and of entries go to the host side by side, and each gets its own."""
    dut, lines = bench(), {LEFT: 0x9000, RIGHT: 0xA040}
    for key, (start, *_), pages in ((LEFT, FIRST, 0x50000), (RIGHT, SECOND, 0x60000)):
        row = {"type": PAGES, "va": start & -PAGE, "length": 8 * PAGE, "block": lines[key] // 64}
        dut.rows[key] = dut.rows[key] | row
        dut.lists[lines[key]] = struct.pack("<8Q", *(pages + PAGE * n for n in range(8)))
    dut.rows[WINDOW] = dut.rows[LEFT] | {"type": BOUND_1, "access": 15, "parent": LEFT >> 8}
    moved = {0x10000: 0x50000, 0x20000: 0x60000}
    expected: dict[int, int] = {}
    for n in range(9):
        va = 37 * n % (TOTAL - 40)
        if n % 3 == 1:
            dut.ask(0x10400 + PAGE * (n // 3), 8, WINDOW)
            where = [0x50400 + PAGE * (n // 3) + at for at in range(8)]
        else:
            dut.ask(va, 40)
            where = [moved[at & -PAGE] | at % PAGE for at in places(va, 40)]
        expected |= dict(zip(where, sent(n, len(where)), strict=True))
    assert dut.run() == [OK] * 9
    assert dut.written == expected


def test_entries_that_cannot_be_read():
    dut = bench(failing=True)
    dut.ask(0, 8)
    dut.ask(0x40000, 8, LEFT)
    assert dut.run() == [REM_ACCESS_ERR] * 2  # the region grants no remote right
    assert not dut.written


@pytest.mark.parametrize(
    "row",
    [
        {"tag": TAG ^ 1},
        {"pd": PD + 1},
        {"function": FUNCTION + 1},
        {"access": LOCAL_WRITE | REMOTE_READ},
        {"length": TOTAL - 1},
        {"va": 1},
    ],
)
def test_the_indirect_key_is_checked_too(row):
    """Though all entries would be good."""
    dut = bench()
    dut.rows[PAIR_KEY] |= row
    dut.ask(0, TOTAL)
    assert dut.run() == [REM_ACCESS_ERR]
    assert not dut.written


@pytest.mark.parametrize("offset, good", [(TOTAL, True), (TOTAL + 1, False)])
def test_a_message_is_checked_by_the_indirect_key(offset, good):
    """The range of a WRITE's whole message, and that of a READ: no entry is looked at for it."""
    dut = bench(second=(*SECOND[:2], OTHER_PD))
    dut.ask(0, 50, offset=offset)
    dut.ask(0, 0, kind=ScatterKind.CHECK_READ, offset=offset)
    assert dut.run() == [OK if good else REM_ACCESS_ERR] * 2
    assert len(dut.written) == 50 * good


@pytest.mark.parametrize(
    "first, va, good",
    [
        (FIRST, 96, False),  # in two entries
        (FIRST, 88, True),
        ((0x10004, 100, LEFT), 0, False),  # at a multiple of 8 of the layout, not of the bus
        ((0x10000, 100, READ_ONLY), 0, False),
    ],
)
def test_an_atomic_has_a_word_of_one_entry(first, va, good):
    dut = bench(first)
    dut.ask(va, 8, kind=ScatterKind.ATOMIC)
    assert dut.run() == [OK if good else REM_ACCESS_ERR]
    assert [addr for addr, drop in dut.words if not drop] == [first[0] + va] * good


def test_ranges_of_a_packet_are_limited(monkeypatch):
    """A packet with more of them than its chunks have room for is refused, and no other one is."""
    monkeypatch.setattr(resolve, "MOST_ENTRIES", 1)
    monkeypatch.setattr(check, "MOST_ENTRIES", 1)
    dut = bench()
    for va, length in ((0, 100), (0, 101), (100, 8), (99, 8), (20, 30)):
        dut.ask(va, length)
    assert dut.run(scatter()) == [OK, REM_ACCESS_ERR, OK, REM_ACCESS_ERR, OK]


def test_order_is_kept():
    """Direct and indirect keys in turn, without a gap: each packet has its own verdict."""
    dut = bench()
    dut.rows[LEFT] = dut.rows[LEFT] | {"access": 15}
    for n in range(12):
        if n % 3 == 1:
            dut.ask(90, 20 + n)
        else:
            dut.ask(0x40000 + 64 * n, 8, LEFT if n % 4 else OTHER_PD)
    assert dut.run() == [OK if n % 3 == 1 or n % 4 else REM_ACCESS_ERR for n in range(12)]
    expected: dict[int, int] = {}
    for n in range(12):
        if n % 3 == 1:
            expected |= dict(zip(places(90, 20 + n), sent(n, 20 + n), strict=True))
        elif n % 4:
            expected |= dict(
                zip(range(0x40000 + 64 * n, 0x40008 + 64 * n), sent(n, 8), strict=True)
            )
    assert dut.written == expected


@pytest.mark.parametrize("stall", [False, True])
def test_any_order(stall):
    """Good and bad ranges under all keys, one behind the other, against what the rows say."""
    rng = random.Random(stall)
    dut = bench(stall=rng if stall else None)
    dut.rows[LEFT] = dut.rows[LEFT] | {"access": 15}
    wanted, expected = [], {}
    for n in range(80):
        key = rng.choice((PAIR_KEY, PAIR_KEY, PAIR_KEY ^ 1, LEFT, OTHER_PD))
        va, length = rng.randrange(TOTAL), rng.randint(1, 70)
        dut.ask(va, length, key)
        good = key == LEFT or (key == PAIR_KEY and va + length <= TOTAL)
        wanted.append(OK if good else REM_ACCESS_ERR)
        where = places(va, length) if key == PAIR_KEY else range(va, va + length)
        if good:
            expected |= dict(zip(where, sent(n, length), strict=True))
    assert dut.run() == wanted
    assert dut.written == expected


def test_direct_keys_take_no_longer(monkeypatch):
    """On a card with the kind, requests of direct keys take the same cycles as on one without."""

    def times() -> list[int]:
        dut = bench()
        dut.rows[LEFT] = dut.rows[LEFT] | {"access": 15}
        for n in range(30):
            dut.ask(PAGE * n, 1, LEFT, offset=1 + n % 3)
        assert dut.run(scatter()) == [OK] * 30
        return dut.checked_at

    with_the_kind = times()
    monkeypatch.delitem(resolve.WALKS, PAIR)
    with pytest.raises(ValueError, match="Nothing walks"):
        times()
    monkeypatch.undo()
    assert times() == with_the_kind
