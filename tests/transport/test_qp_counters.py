"""Counters of every QP, against a dictionary of Python."""

import random
from collections import Counter

from hdl.config import NicConfig
from hdl.ports.counter_names import QP_COUNTER_SLOTS, QP_COUNTERS
from hdl.transport.receive.commit import FAILED
from hdl.transport.receive.qp_counters import QpCounters
from hdl.transport.receive.types import COUNTERS
from tests.simulate import simulate

CONFIG = NicConfig(width=64, qps=8, cqs=2, mrs=2, gids=2)
#: What the receive side needs for its shortest packet, and the most events of one.
PACKET_CYCLES, MOST_EVENTS = 4, 3
CLEAR_CYCLES = 17


async def count(ctx, dut, qp, names):
    ctx.set(dut.counted.payload.qp, qp)
    for name in COUNTERS:
        ctx.set(dut.counted.payload.events[name], int(name in names))
    ctx.set(dut.counted.valid, 1)
    await ctx.tick()
    ctx.set(dut.counted.valid, 0)


async def read(ctx, reader, qp, name):
    ctx.set(reader.index, qp * QP_COUNTER_SLOTS + QP_COUNTERS.index(name))
    ctx.set(reader.read, 1)
    while not ctx.get(reader.done):
        await ctx.tick()
    value = ctx.get(reader.read_row)
    await ctx.tick()
    ctx.set(reader.read, 0)
    await ctx.tick()
    return value


async def clear(ctx, dut, qp):
    ctx.set(dut.clear.payload.qp, qp)
    ctx.set(dut.clear.valid, 1)
    while not ctx.get(dut.clear.ready):
        await ctx.tick()
    await ctx.tick()
    ctx.set(dut.clear.valid, 0)


async def ready(ctx, dut):
    while not ctx.get(dut.ready):
        await ctx.tick()


def test_nothing_is_lost_at_the_fastest_pace():
    """Packets as fast as they can come, the guest reading all the time."""
    dut = QpCounters(config=CONFIG)
    rng = random.Random(3)
    expected = {qp: Counter() for qp in range(CONFIG.qps)}
    done = []

    async def packets(ctx):
        await ready(ctx, dut)
        for qp in range(CONFIG.qps - 1):
            await clear(ctx, dut, qp)
        for i in range(1500):
            qp = rng.randrange(CONFIG.qps)
            names = rng.sample(sorted(COUNTERS), 1 if i % 8 else MOST_EVENTS)
            expected[qp].update(name for name in names if name in QP_COUNTERS)
            await count(ctx, dut, qp, names)
            for _ in range(PACKET_CYCLES - 1):
                await ctx.tick()
        for _ in range(100):
            await ctx.tick()
        expected[CONFIG.qps - 1].clear()  # it has never been cleared
        for qp, wanted in expected.items():
            for name in QP_COUNTERS:
                assert await read(ctx, dut.program, qp, name) == wanted[name], (qp, name)
        done.append(True)

    async def guest(ctx):
        while not done:
            await read(ctx, dut.guest, rng.randrange(CONFIG.qps), rng.choice(QP_COUNTERS))

    simulate(dut, packets, guest, deadline=100_000)


def test_nothing_is_lost_when_all_checks_come_at_once():
    """Each in two cycles with the most events, behind those that came while a QP was cleared."""
    dut = QpCounters(config=CONFIG)
    names = QP_COUNTERS[:MOST_EVENTS]

    async def packets(ctx):
        await ready(ctx, dut)
        await clear(ctx, dut, 1)
        await ctx.tick().repeat(40)
        for i in range(FAILED + CLEAR_CYCLES // PACKET_CYCLES):
            await count(ctx, dut, 1, names)
            await ctx.tick().repeat(PACKET_CYCLES - 1 if i < CLEAR_CYCLES // PACKET_CYCLES else 1)
        await ctx.tick().repeat(400)
        for name in names:
            assert await read(ctx, dut.program, 1, name) == FAILED + CLEAR_CYCLES // PACKET_CYCLES

    async def clears(ctx):
        await ready(ctx, dut)
        await ctx.tick().repeat(57)
        await clear(ctx, dut, 2)

    simulate(dut, packets, clears, deadline=20_000)


def test_clear_read_and_write():
    dut = QpCounters(config=CONFIG)

    async def bench(ctx):
        await ready(ctx, dut)
        await count(ctx, dut, 2, ["out_of_buffer"])
        assert await read(ctx, dut.guest, 2, "out_of_buffer") == 0  # before its first clear
        await clear(ctx, dut, 2)
        await count(ctx, dut, 2, ["out_of_buffer", "unknown_qp"])
        await count(ctx, dut, 2, ["out_of_buffer"])
        await ctx.tick().repeat(6)
        for reader in (dut.guest, dut.program):
            assert await read(ctx, reader, 2, "out_of_buffer") == 2
            assert await read(ctx, reader, 2, "bad_pkey") == 0
            assert await read(ctx, reader, 3, "out_of_buffer") == 0
        index = 2 * QP_COUNTER_SLOTS + QP_COUNTERS.index("bad_pkey")
        ctx.set(dut.program.index, index)
        ctx.set(dut.program.row, 0xFFFF_FFFF)
        ctx.set(dut.program.write, 1)
        while not ctx.get(dut.program.done):
            await ctx.tick()
        await ctx.tick()
        ctx.set(dut.program.write, 0)
        assert await read(ctx, dut.guest, 2, "bad_pkey") == 0xFFFF_FFFF
        await count(ctx, dut, 2, ["bad_pkey"])  # it wraps
        await ctx.tick().repeat(6)
        assert await read(ctx, dut.guest, 2, "bad_pkey") == 0
        await clear(ctx, dut, 2)
        assert await read(ctx, dut.guest, 2, "out_of_buffer") == 0

    simulate(dut, bench)


def test_a_clear_holds_nothing_up():
    """Counting goes on while the counters of other QPs are cleared, one after the other."""
    dut = QpCounters(config=CONFIG)
    done = []

    async def packets(ctx):
        await ready(ctx, dut)
        await clear(ctx, dut, 1)
        for _ in range(300):
            await count(ctx, dut, 1, QP_COUNTERS[:MOST_EVENTS])
            for _ in range(2 * MOST_EVENTS):
                await ctx.tick()
        done.append(True)
        for _ in range(200):
            await ctx.tick()
        for name in QP_COUNTERS[:MOST_EVENTS]:
            assert await read(ctx, dut.program, 1, name) == 300

    async def clears(ctx):
        await ready(ctx, dut)
        for _ in range(60):
            await ctx.tick()
        while not done:
            await clear(ctx, dut, 2)
            for _ in range(40):
                await ctx.tick()

    simulate(dut, packets, clears, deadline=20_000)
