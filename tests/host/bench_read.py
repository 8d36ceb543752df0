"""Read engine against the compiled host model."""

import os
import random

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge

from sim.bench.testbench import Testbench
from tests.host.dma_clients import Reader, make_writer
from tests.host.test_read import CLIENTS, WRITERS, config

SIZE = 1 << 20
ADDRESS_LANES = bool(os.environ.get("ADDRESS_LANES"))


async def start(dut, cycles):
    conf = config(int(os.environ["WIDTH"]))
    bench = Testbench(dut, config=conf, memory=SIZE)
    dut.nic0_hold.value = 0
    dut.nic0_abort.value = 0
    readers = [Reader(dut, i, conf.width, ADDRESS_LANES) for i in range(CLIENTS)]
    await bench.start()
    rng = np.random.default_rng(7)
    bench.hosts[0].memory.bytes[:] = rng.integers(0, 256, SIZE, dtype=np.uint8)
    bench.deadline(cycles)
    return bench, bench.hosts[0], readers


def expected(host, request):
    return host.memory.bytes[request.addr : request.addr + request.length].tobytes()


async def finish(bench, dut, readers):
    while any(reader.waiting or reader.pending for reader in readers):
        await bench.cycles(20)
    await bench.cycles(20)
    assert dut.nic0_read_idle.value == 1
    assert bench.hosts[0].stats.reads_outstanding == 0


def lengths(rng, beat):
    corners = [1, beat - 1, beat, beat + 1, 2 * beat, 512, 513, 4095, 4096]
    return rng.choice([*corners, rng.randint(1, 64), rng.randint(1, 4096)])


HOSTS = {
    "in_order": {"reorder": False, "read_latency_ns": 100},
    "shuffled": {"read_latency_ns": 200, "read_jitter_ns": 800},
    "chunks": {"read_latency_ns": 50, "read_jitter_ns": 100, "chunk_bytes": 128},
    "stalls": {"read_jitter_ns": 300, "stall_read": 0.6, "stall_completion": 0.5},
    "immediate": {"read_latency_ns": 0},
}


@cocotb.test()
async def random_reads(dut):
    """Every byte of every request, in any weather; errors where the memory ends."""
    bench, host, readers = await start(dut, 400_000)
    rng = random.Random(cocotb.RANDOM_SEED)
    beat = bench.config.bytes_per_beat
    for name, settings in HOSTS.items():
        host.set(**settings, seed=rng.getrandbits(32))
        faults = 0
        for reader in readers:
            for _ in range(60):
                length = lengths(rng, beat)
                if rng.random() < 0.1:  # somewhere across, or beyond, the end
                    addr = SIZE - rng.randint(0, length)
                else:
                    addr = rng.randrange(SIZE - length)
                gap = rng.choice([0, 0, 0, rng.randint(0, 30)])
                reader.read(addr, length, gap)
        await finish(bench, dut, readers)
        for reader in readers:
            assert len(reader.done) == 60
            for request in reader.done:
                bad = request.addr + request.length > SIZE
                faults += bad
                assert request.error == bad, (name, request.addr, request.length)
                if not bad:
                    assert bytes(request.data) == expected(host, request), (name, request)
            reader.done.clear()
        assert faults and len(host.faults) >= faults
        host.faults.clear()


@cocotb.test()
async def every_offset(dut):
    """Each lane offset with the lengths around one, two and three beats."""
    bench, host, readers = await start(dut, 200_000)
    beat = bench.config.bytes_per_beat
    host.set(read_latency_ns=20, read_jitter_ns=50)
    around = sorted({beats * beat + d for beats in range(4) for d in (-1, 0, 1)} - {-1, 0})
    for offset in range(beat):
        for i, length in enumerate(around):
            readers[(offset + i) % CLIENTS].read(8192 + 512 * i + offset, length)
    await finish(bench, dut, readers)
    for reader in readers:
        for request in reader.done:
            assert not request.error and bytes(request.data) == expected(host, request)


@cocotb.test()
async def rates(dut):
    """Cycles per beat and per request once the first has come."""
    bench, host, readers = await start(dut, 100_000)
    beat = bench.config.bytes_per_beat
    # Shuffled completions leave gaps at the oldest slot; only then can the ring of tags run full.
    for offset, reorder, share in ((0, False, 1.0), (1, False, 1.02), (0, True, 1.15)):
        host.set(read_latency_ns=500, reorder=reorder)
        for _ in range(12 if beat < 16 else 60):
            readers[0].read(8192 + offset, 4096)
        await finish(bench, dut, readers)
        cycles = [cycle for request in readers[0].done for cycle in request.cycles]
        took = (cycles[-1] - cycles[0]) / (len(cycles) - 1)
        dut._log.info("offset %d, reorder %d: %.4f cycles a beat", offset, reorder, took)
        assert took <= share, took
        readers[0].done.clear()
    # Small requests: one a cycle over all clients, one a cycle for a single one.
    host.set(read_latency_ns=20, reorder=False)
    for count in (1, CLIENTS):
        for i in range(200):
            readers[i % count].read(4096 + 64 * i, min(beat, 16))
        await finish(bench, dut, readers)
        cycles = sorted(c for reader in readers for request in reader.done for c in request.cycles)
        took = (cycles[-1] - cycles[0]) / (len(cycles) - 1)
        dut._log.info("%d clients: %.3f cycles a small request", count, took)
        assert took == 1, took
        for reader in readers:
            reader.done.clear()


@cocotb.test()
async def latency(dut):
    """Alone: cycles from acceptance to the edge and from the edge to the client."""
    bench, host, readers = await start(dut, 2_000)
    host.set(read_latency_ns=0)
    await bench.cycles(bench.config.read_tags + 2)
    request = readers[1].read(4096, 16)
    edges = {}
    for cycle in range(60):
        await bench.cycles(1)
        for name, signal in (
            ("req", dut.nic0_reader1__req__valid),
            ("rsp", dut.nic0_reader1__rsp__valid),
        ):
            if signal.value == 1:
                edges.setdefault(name, cycle)
    assert bytes(request.data) == expected(host, request)
    dut._log.info("request to response without a host: %d cycles", edges["rsp"] - edges["req"])
    assert edges["rsp"] - edges["req"] <= 12


@cocotb.test()
async def hold(dut):
    """While held nothing new is accepted, what was accepted returns, then the engine is idle."""
    bench, host, readers = await start(dut, 20_000)
    for i in range(20):
        readers[i % CLIENTS].read(100 * i, 2000)
    await bench.cycles(30)
    dut.nic0_hold.value = 1
    await bench.cycles(2)
    accepted = sum(len(reader.pending) for reader in readers)
    assert dut.nic0_read_idle.value == 0
    while dut.nic0_read_idle.value == 0:
        await bench.cycles(1)
    done = sum(len(reader.done) for reader in readers)
    assert host.stats.reads_outstanding == 0
    assert 0 < done <= accepted
    await bench.cycles(100)
    assert dut.nic0_read_idle.value == 1
    dut.nic0_hold.value = 0
    await finish(bench, dut, readers)
    for reader in readers:
        for request in reader.done:
            assert bytes(request.data) == expected(host, request)


@cocotb.test()
async def reads_stay_behind_writes(dut):
    """What was accepted for writing before a read was is what the read returns, from any client.

    The host answers from memory as it is when a read arrives, with all writes that arrived before.
    More than 256 bursts: the counters between the engines wrap.
    """
    bench, host, readers = await start(dut, 400_000)
    log = []
    writers = [make_writer(dut, i, bench.config.width, log) for i in range(WRITERS)]
    rng = random.Random(cocotb.RANDOM_SEED)
    stale = 0
    for round_ in range(300):
        if round_ % 50 == 0:
            host.set(read_latency_ns=0, stall_write=rng.choice([0, 0.5, 0.9]))
        # The cell that is read again lies at the end of the burst, the last byte to be handed over.
        length = rng.choice([8, 16, 100, 1000])
        addr = rng.randrange(1 << 16)
        before = host.memory.bytes[addr + length - 8 : addr + length].tobytes()
        data = rng.randbytes(length)
        writers[round_ % WRITERS].write(addr, data)
        if round_ % 7 == 0:  # bursts behind it must not matter
            writers[(round_ + 1) % WRITERS].write(1 << 17, rng.randbytes(64))
        while not any(entry[:2] == (addr, data) for entry in log[-3:]):
            await RisingEdge(dut.clk)
        stale += host.memory.bytes[addr + length - 8 : addr + length].tobytes() == before
        request = readers[rng.randrange(CLIENTS)].read(addr + length - 8, 8)
        while len(request.data) < 8:
            await RisingEdge(dut.clk)
        assert bytes(request.data) == data[-8:], (round_, length)
    assert stale > 200  # the writes were on their way when the reads were asked for
    await finish(bench, dut, readers)


@cocotb.test()
async def reads_go_on_under_writes(dut):
    """Writes that never end hold no read back for longer than those accepted before it."""
    bench, host, readers = await start(dut, 200_000)
    writers = [make_writer(dut, i, bench.config.width, []) for i in range(WRITERS)]
    host.set(read_latency_ns=0, stall_write=0.5)
    for i in range(600):
        writers[i % WRITERS].write(1 << 17, bytes(256))
    for i in range(60):
        readers[i % CLIENTS].read(64 * i, 64)
    while any(reader.waiting or reader.pending for reader in readers):
        await bench.cycles(1)
    assert sum(len(writer.waiting) for writer in writers) > 100
    for reader in readers:
        for request in reader.done:
            assert bytes(request.data) == expected(host, request)
    while any(writer.busy for writer in writers) or dut.nic0_write_idle.value == 0:
        await bench.cycles(20)


@cocotb.test()
async def small_reads_under_small_writes(dut):
    """Reads wait for the writes accepted before them side by side, not one after the other."""
    bench, host, readers = await start(dut, 100_000)
    writers = [make_writer(dut, i, bench.config.width, []) for i in range(WRITERS)]
    host.set(read_latency_ns=20, reorder=False)
    for i in range(1500):
        writers[i % WRITERS].write((1 << 17) + 8 * i, bytes(8))
    await bench.cycles(50)
    for i in range(200):
        readers[0].read(64 * i, 16)
    await finish(bench, dut, readers)
    assert sum(len(writer.waiting) for writer in writers) > 100, "writes to the end"
    cycles = [cycle for request in readers[0].done for cycle in request.cycles]
    took = (cycles[-1] - cycles[0]) / (len(cycles) - 1)
    dut._log.info("%.2f cycles a small read under writes", took)
    assert took <= 1.5, took
    while any(writer.busy for writer in writers) or dut.nic0_write_idle.value == 0:
        await bench.cycles(20)


@cocotb.test()
async def a_read_outlives_many_writes(dut):
    """Reads that find no tag while 200 bursts go by are issued when the writes have ended."""
    bench, host, readers = await start(dut, 100_000)
    writers = [make_writer(dut, i, bench.config.width, []) for i in range(WRITERS)]
    host.set(read_latency_ns=10_000)
    for i in range(60):
        readers[i % CLIENTS].read(64 * i, 64)
    await bench.cycles(200)
    for i in range(200):
        writers[i % WRITERS].write((1 << 17) + 8 * i, bytes(8))
    await finish(bench, dut, readers)
