"""Write engine against the compiled host model."""

import os
import random

import cocotb
import numpy as np

from sim.bench.testbench import Testbench
from tests.host.dma import NARROW, PLACED
from tests.host.dma_clients import Writer, make_writer
from tests.host.test_read import WRITERS, config

SIZE = 1 << 20


async def start(dut, cycles):
    conf = config(int(os.environ["WIDTH"]))
    bench = Testbench(dut, config=conf, memory=SIZE)
    dut.nic0_hold.value = 0
    dut.nic0_abort.value = 0
    log = []
    writers = [make_writer(dut, i, conf.width, log) for i in range(WRITERS)]
    await bench.start()
    bench.hosts[0].memory.bytes[:] = 0xEE
    bench.deadline(cycles)
    return bench, bench.hosts[0], writers, log


async def finish(bench, dut, writers):
    while any(writer.waiting or writer.busy for writer in writers):
        await bench.cycles(20)
    await bench.cycles(3)
    while dut.nic0_write_idle.value == 0:
        await bench.cycles(1)
    while bench.hosts[0].stats.writes_pending:
        await bench.cycles(1)


def agree(host, log):
    """Memory holds what the issued bursts put there, the last one where they overlap."""
    image = np.full(SIZE, 0xEE, np.uint8)
    for addr, data, _ in log:
        image[addr : addr + len(data)] = np.frombuffer(data, np.uint8)
    different = np.flatnonzero(image != host.memory.bytes)
    assert not different.size, f"{different.size} bytes differ, the first at {different[0]:#x}"


HOSTS = {
    "quick": {"write_delay_ns": 0},
    "stalls": {"stall_write": 0.6, "write_jitter_ns": 300},
    "slow": {"write_gbps": 8, "write_delay_ns": 1000},
}


@cocotb.test()
async def random_writes(dut):
    """Bursts of any length at any address from all clients; gaps and backpressure.

    All on one stream and overlapping: the host sees them in the order in which they were issued.
    The host model checks each burst's form at the edge.
    """
    bench, host, writers, log = await start(dut, 600_000)
    rng = random.Random(cocotb.RANDOM_SEED)
    beat = bench.config.bytes_per_beat
    for settings in HOSTS.values():
        host.set(**settings, seed=rng.getrandbits(32))
        for writer in writers:
            for _ in range(60):
                corners = [1, beat - 1, beat, beat + 1, 255, 256, 257, 4095, 4096]
                length = rng.choice([*corners, rng.randint(1, 64), rng.randint(1, 4096)])
                addr = rng.randrange(16384 - length)
                writer.write(addr, rng.randbytes(length), idle=rng.choice([0, 0, 0.5]))
        await finish(bench, dut, writers)
        agree(host, log)
    assert not host.faults


@cocotb.test()
async def every_offset(dut):
    """Each lane offset with the lengths around one, two and three beats; nothing beside them."""
    bench, host, writers, log = await start(dut, 100_000)
    rng = random.Random(1)
    beat = bench.config.bytes_per_beat
    around = sorted({beats * beat + d for beats in range(4) for d in (-1, 0, 1)} - {-1, 0})
    place = 0
    for offset in range(beat):
        for i, length in enumerate(around):
            writers[(offset + i) % WRITERS].write(place + offset, rng.randbytes(length), i % 3)
            place += 5 * beat
    await finish(bench, dut, writers)
    agree(host, log)


@cocotb.test()
async def kinds_of_clients(dut):
    """Bytes that a client places itself, from any lane to any lane, between others' and few."""
    bench, host, writers, log = await start(dut, 200_000)
    narrow = Writer(dut, NARROW, bench.config.width, log)
    writers.append(narrow)
    rng = random.Random(4)
    beat = bench.config.bytes_per_beat
    host.set(stall_write=0.3, write_delay_ns=0)
    for _ in range(600):
        length = rng.choice([rng.randint(2, beat), rng.randint(2, 3 * beat)])
        writers[PLACED].write(rng.randrange(8192), rng.randbytes(length))
        writers[0].write(rng.randrange(8192), rng.randbytes(rng.randint(1, 2 * beat)))
        narrow.write(rng.randrange(8192), rng.randbytes(rng.randint(1, 8)))
    await finish(bench, dut, writers)
    assert len(log) == 1800
    agree(host, log)


@cocotb.test()
async def streams(dut):
    """Bursts of different streams to different places, all arrive; outside memory: a fault each."""
    bench, host, writers, log = await start(dut, 100_000)
    host.set(write_jitter_ns=2000)
    rng = random.Random(2)
    for i in range(90):
        writers[i % WRITERS].write(4096 * i + i, rng.randbytes(300), stream=i % 16)
    await finish(bench, dut, writers)
    agree(host, log)
    assert not host.faults
    writers[0].write(SIZE - 8, bytes(8))
    writers[0].write(SIZE, bytes(8))
    writers[1].write(1 << 40, bytes(8))
    await finish(bench, dut, writers)
    assert sorted(fault.addr for fault in host.faults) == [SIZE, 1 << 40]


@cocotb.test()
async def order(dut):
    """The host never sees a stream go backwards; but it sees streams overtake each other."""
    bench, host, writers, log = await start(dut, 100_000)
    host.set(write_delay_ns=100, write_jitter_ns=3000)
    for i in range(1, 200):
        for stream in (0, 1):
            writers[0].write(64 * stream, i.to_bytes(8, "little"), stream)
    cells = host.memory.bytes[:128].view(np.uint64)
    cells[[0, 8]] = 0
    before, overtaken = [0, 0], 0
    while len(log) < 2 * 199 or host.stats.writes_pending:
        now = [int(cells[0]), int(cells[8])]
        assert now[0] >= before[0] and now[1] >= before[1], (before, now)
        overtaken += now[1] > now[0]  # the second was issued after the first
        before = now
        await bench.cycles(1)
    assert overtaken
    await finish(bench, dut, writers)
    assert [int(cells[0]), int(cells[8])] == [199, 199]


@cocotb.test()
async def rates(dut):
    """Cycles per edge beat of long bursts, one client and all of them, and of small bursts."""
    bench, host, writers, _ = await start(dut, 100_000)
    beat = bench.config.bytes_per_beat
    host.set(write_delay_ns=0)
    stats = host.stats

    async def measure(what, limit):
        begun, stats.first_write_ps = stats.write_beats, 0
        await finish(bench, dut, writers)
        beats = stats.write_beats - begun
        took = (stats.last_write_ps - stats.first_write_ps) / bench.period_ps / (beats - 1)
        dut._log.info("%s: %.4f cycles an edge beat, %d beats", what, took, beats)
        assert took <= limit, took

    for offset in (0, 3):
        for count in (1, WRITERS):
            for i in range(12):
                writers[i % count].write(8192 * i + offset, bytes(4096))
            await measure(f"offset {offset}, {count} clients, 4096 bytes", 1.0 + 0.001)
    for count in (1, WRITERS):
        for i in range(200):
            writers[i % count].write(64 * i, bytes(min(beat, 32)))
        await measure(f"{count} clients, one beat each", 1.0)


@cocotb.test()
async def abort(dut):
    """A client reset in mid-burst: whole chunks are written, the rest is not, the port is free."""
    bench, host, writers, log = await start(dut, 100_000)
    chunk, beat = bench.config.write_bytes, bench.config.bytes_per_beat
    host.set(stall_write=0.5, write_delay_ns=0)
    rng = random.Random(3)
    place = 0
    for cut in (1, 2, chunk // beat, chunk // beat + 1, 2 * chunk // beat + 3, 3 * chunk // beat):
        for offset in (0, 5):
            log.clear()
            host.memory.bytes[:] = 0xEE
            before, data = rng.randbytes(100), rng.randbytes(4096)
            where = place + 4096 + offset
            writers[0].write(place, before)
            writers[0].write(where, data, cut=cut)
            while writers[0].waiting or writers[0].busy:
                await bench.cycles(1)
            dut.nic0_abort.value = 1
            writers[1].write(place + 16384, before)  # must wait
            await bench.cycles(2)
            while dut.nic0_write_idle.value == 0:
                await bench.cycles(1)
            await bench.cycles(20)
            assert len(log) == 1
            whole = cut * beat // chunk * chunk  # each beat taken completes an aligned beat
            if whole > offset:
                log.append((where, data[: whole - offset], 0))
            agree(host, log)
            dut.nic0_abort.value = 0
            await finish(bench, dut, writers)
            agree(host, log)
