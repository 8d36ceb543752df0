"""The bank of counters: nothing that a room counts is lost, and no answer is old."""

import random

import pytest
from amaranth.hdl import ResetInserter, Signal

from hdl.common.count import BYTES, COUNT
from hdl.context.counter_bank import BEAT, EIGHTH, CounterBank
from hdl.context.tables import NAMES as ALL
from tests.simulate import simulate

NAMES = ("packets", "bytes_low", "bytes_high", "drops", "idle")
#: Cycles that a tour takes at most.
ROUND = 12 * (len(NAMES) + 1)
#: Of a word that wraps soon.
BITS = 20


class Rooms:
    """What the rooms have counted, and what of it their registers show."""

    def __init__(self, ctx, dut, bits=32):
        self.ctx, self.dut, self.bits = ctx, dut, bits
        self.counts = dict.fromkeys(NAMES, 0)

    def show(self):
        for place, name in enumerate(NAMES):
            if not name.endswith("_high"):
                bits = BYTES if name.endswith("_low") else COUNT
                self.ctx.set(self.dut.values[place], self.counts[name] % (1 << bits))

    def word(self, name):
        if name == "bytes_high":
            return self.counts["bytes_low"] >> self.bits
        return self.counts[name] % (1 << self.bits)


async def read(ctx, reader, name, least=None):
    """The word of ``name``; ``least``: says what it was when the read began."""
    began = least() if least else 0
    ctx.set(reader.index, NAMES.index(name))
    ctx.set(reader.read, 1)
    cycles = 0
    while not ctx.get(reader.done):
        await ctx.tick()
        cycles += 1
    value = ctx.get(reader.read_row)
    await ctx.tick()
    ctx.set(reader.read, 0)
    assert cycles <= 24
    assert not least or began <= value <= least()
    return value


async def ready(ctx, dut):
    while not ctx.get(dut.ready):
        await ctx.tick()


def test_nothing_is_lost_at_the_fastest_pace():
    """An event and a full beat in every cycle, both readers asking all the time."""
    dut = CounterBank(names=NAMES)
    rng = random.Random(7)
    rooms, ended = [], []

    async def count(ctx):
        rooms.append(Rooms(ctx, dut))
        await ready(ctx, dut)
        for _ in range(6000):
            rooms[0].counts["packets"] += 1
            rooms[0].counts["drops"] += rng.random() < 0.3
            rooms[0].counts["bytes_low"] += BEAT
            rooms[0].show()
            await ctx.tick()
        ended.append(True)
        await ctx.tick().repeat(2 * ROUND)
        for name in NAMES:
            for reader in (dut.guest, dut.program):
                assert await read(ctx, reader, name) == rooms[0].word(name), name

    async def ask(ctx, reader):
        await ready(ctx, dut)
        while not ended:
            name = rng.choice(("packets", "drops", "bytes_low", "idle"))
            await read(ctx, reader, name, lambda name=name: rooms[0].word(name))

    simulate(
        dut,
        count,
        lambda ctx: ask(ctx, dut.guest),
        lambda ctx: ask(ctx, dut.program),
        deadline=20_000,
    )


@pytest.mark.parametrize("asked", [False, True])
def test_a_word_wraps_into_the_next(asked):
    """Bytes beyond what a word holds, whoever notices: the tour or a reader."""
    dut = CounterBank(names=NAMES, bits=BITS)

    async def bench(ctx):
        rooms = Rooms(ctx, dut, bits=BITS)
        await ready(ctx, dut)
        for _ in range(140):
            rooms.counts["bytes_low"] += (1 << BYTES - EIGHTH) + 77
            rooms.counts["packets"] += 1
            rooms.show()
            if asked:
                for name in ("bytes_low", "bytes_high"):
                    assert await read(ctx, dut.guest, name) == rooms.word(name)
            else:
                await ctx.tick().repeat(2 * ROUND)
        assert rooms.word("bytes_high") > 3
        for name in NAMES:
            assert await read(ctx, dut.program, name) == rooms.word(name), name

    simulate(dut, bench, deadline=30_000)


def test_reset():
    """Words begin at 0 again, as the rooms' counts do."""
    dut = CounterBank(names=NAMES)
    reset = Signal()

    async def bench(ctx):
        rooms = Rooms(ctx, dut)
        await ready(ctx, dut)
        for again in (False, True):
            for count in (5, 700, 900):
                rooms.counts |= {"packets": count, "bytes_low": 64 * count}
                rooms.show()
                await ctx.tick().repeat(2 * ROUND)
            for name in NAMES:
                assert await read(ctx, dut.guest, name) == rooms.word(name), (again, name)
            rooms.counts = dict.fromkeys(NAMES, 0)
            rooms.show()
            ctx.set(reset, 1)
            await ctx.tick()
            ctx.set(reset, 0)
            assert not ctx.get(dut.ready)
            await ready(ctx, dut)

    simulate(ResetInserter(reset)(dut), bench)


def test_bad_parameters():
    CounterBank(names=ALL)
    many = tuple(f"counter_{i}" for i in range(200))
    with pytest.raises(ValueError, match="200 counters are too many"):
        CounterBank(names=many)
