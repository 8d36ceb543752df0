"""CompletionEngine in Verilator: order of writes, splits, interrupts, throughput."""

from __future__ import annotations

import struct

import cocotb

from hdl.ports.rows import CqRow
from tests.queues.completion_bench import (
    CONFIG,
    CQE,
    NEXT,
    SOLICITED,
    CompletionBench,
    cqe_bytes,
)
from tests.queues.drive import number, unpack


def expected_writes(bench, c, cq, index, head, parts, wqe=None, wqe_index=0):
    """The writes of one completion, in order."""
    out = []

    def used(queue, at, element):
        slot = queue.device + 4 + 8 * (at % queue.size)
        out.append((slot, struct.pack("<II", *element)))
        out.append((queue.device + 2, struct.pack("<H", (at + 1) & 0xFFFF)))

    if wqe is not None:
        used(wqe, wqe_index, (c["head"], 0))
    if c["emit"]:
        data = cqe_bytes(c)
        for addr, length in parts:
            if data:
                out.append((addr, data[:length]))
                data = data[length:]
        used(cq, index, (head, CQE))
    return out


@cocotb.test()
async def order_of_writes(dut):
    """Used element before used index before CQE before its element before its index; all splits."""
    for event_idx, stall in ((0, 0.0), (1, 0.3)):
        bench = CompletionBench(dut, seed=1 + event_idx, stall=stall, event_idx=event_idx)
        await bench.start(again=bool(event_idx))
        cq, rq = bench.queue(1, 256), bench.queue(CONFIG.rq_queue(1), 64)
        splits = [(CQE,), (64,), (CQE + 1,), *[(k, CQE - k) for k in range(1, CQE)]]
        splits += [(k, 1, 60) for k in (7, 8, 15, 16, 31, 32, 37)] + [(1,) * CQE, (5,) * 8]
        wanted, used = [], 0
        for n, split in enumerate(splits):
            indirect = 0 if len(split) > 3 else bench.rng.choice([None, 0, len(split) - 1])
            parts = bench.fill(cq, split, indirect)
            ring = rq if n % 3 else None
            c = bench.completion(wqe=ring)
            head = cq.heads[-1][0]
            wanted += expected_writes(bench, c, cq, n, head, parts, ring, used)
            used += ring is not None
        await bench.settle()
        assert [(a, d) for a, d, _ in bench.memory.log] == wanted
        assert {stream for *_, stream in bench.memory.log} == {0}
        assert number(dut.completion__completions) == len(splits)
        assert not bench.interrupts.items and not bench.errors.items
        bench.ports.clear()


@cocotb.test()
async def several_queues(dut):
    """Interleaved CQs of several sizes, far around their rings; only returns; only CQEs."""
    bench = CompletionBench(dut, seed=3, stall=0.1, latency=30)
    await bench.start()
    rng = bench.rng
    cqs = [bench.queue(1 + n, size) for n, size in enumerate((2, 16, 64, 4096))]
    rings = [bench.queue(CONFIG.sq_queue(1), 4), bench.queue(CONFIG.rq_queue(2), 256)]
    counts, returned = [0] * 4, [0, 0]
    free = bench.memory.free
    for _ in range(12):
        bench.memory.free = free
        wanted = []
        for queue in cqs:
            queue.heads = []
            queue.spare = list(range(queue.size))
        for _ in range(12):
            n, k = rng.randrange(4), rng.choice([None, 0, 1])
            emit = int(k is None or rng.random() < 0.8)
            cq, ring = cqs[n], None if k is None else rings[k]
            if emit and len(cq.heads) >= cq.size:
                emit = 0
            parts = bench.fill(cq, (40,)) if emit else []
            c = bench.completion(cq=n, emit=emit, wqe=ring)
            head = cq.heads[-1][0] if emit else 0
            index = returned[k] if k is not None else 0
            wanted += expected_writes(bench, c, cq, counts[n], head, parts, ring, index)
            counts[n] += emit
            if k is not None:
                returned[k] += 1
        bench.memory.log.clear()
        await bench.settle()
        assert [(a, d) for a, d, _ in bench.memory.log] == wanted
    assert [queue.used_index() for queue in cqs] == counts
    for n, queue in enumerate(cqs):
        row = unpack(CqRow, await bench.program("cq", n))
        assert (row["position"], row["error"]) == (counts[n], 0)
        assert await bench.program("used", queue.number) == counts[n]


@cocotb.test()
async def interrupts(dut):
    """Armed with NEXT or SOLICITED, one shot, after the index; WQE rings obey their flags."""
    bench = CompletionBench(dut, seed=4)
    await bench.start()
    cq = bench.queue(2, 64, vector=3)
    count = 0

    async def one(flags: int, expected: int, **fields):
        nonlocal count
        if flags:
            bench.arm.queue.append({"cq": 1, "flags": flags})
            await bench.cycles(6)
        bench.fill(cq)
        bench.completion(cq=1, **fields)
        before = len(bench.interrupts.items)
        await bench.settle()
        count += 1
        assert cq.used_index() == count
        got = bench.interrupts.items[before:]
        assert got == [{"function": bench.function, "vector": 3}] * expected, (flags, fields)
        if expected:
            index_written = [t for t, what, addr, _ in bench.events if addr == cq.device + 2][-1]
            assert bench.interrupts.times[-1] > index_written

    await one(0, 0)
    await one(NEXT, 1)
    await one(0, 0)
    await one(SOLICITED, 0)
    await one(0, 0, solicited=0)
    await one(0, 1, solicited=1)
    await one(0, 0, solicited=1)
    await one(SOLICITED, 1, status=5)
    await one(SOLICITED, 0)
    await one(NEXT, 1)  # added to SOLICITED; both are gone afterwards
    await one(0, 0, solicited=1)
    cq.set_flags(1)
    await one(NEXT, 1)  # arming decides, not the ring
    cq.set_flags(0)
    await one(0, 0)
    cq.vector = 0xFFFF
    await one(NEXT, 0)
    cq.vector = 3
    await one(0, 1)
    dut.completion__event_idx.value = 1
    cq.set_used_event(count + 1)
    await one(NEXT, 1)
    await one(0, 0)
    assert number(dut.completion__interrupts) == len(bench.interrupts.items)
    # A WQE's ring: whenever it has a vector, armed or not.
    dut.completion__event_idx.value = 0
    ring = bench.queue(CONFIG.sq_queue(1), 16, vector=5)
    before = len(bench.interrupts.items)
    bench.completion(emit=0, wqe=ring)
    await bench.settle()
    ring.set_flags(1)
    bench.completion(emit=0, wqe=ring)
    await bench.settle()
    assert bench.interrupts.items[before:] == [{"function": bench.function, "vector": 5}]


@cocotb.test()
async def throughput(dut):
    """Completions per second with 500 ns of read latency (125 cycles at 250 MHz), four lanes."""
    bench = CompletionBench(dut, seed=9, latency=125)
    await bench.start()
    cqs, ring = [bench.queue(1 + n, 256) for n in range(4)], bench.queue(CONFIG.rq_queue(1), 256)
    for n in range(256):
        bench.fill(cqs[0])
        if n % 4 == 0:
            for queue in cqs[1:]:
                bench.fill(queue)
    total = 0
    for used, name in ((1, "one CQ"), (4, "four CQs")):
        began = bench.now
        for n in range(200):
            bench.completion(cq=n % used, wqe=ring)
        total += 200
        await bench.until(lambda total=total: ring.used_index() == total, 40000, "200 CQEs")
        cycles = (bench.now - began) / 200
        dut._log.info("%s: %.1f cycles a completion, %.1f M/s", name, cycles, 250 / cycles)
        assert cycles < 60
        await bench.settle()
    assert sum(queue.used_index() for queue in cqs) == total
    assert not bench.cq_errors.items
    # Send WQEs that are not signalled: no CQE.
    began = bench.now
    for _ in range(200):
        bench.completion(emit=0, wqe=ring)
    total += 200
    await bench.until(lambda: ring.used_index() == total & 0xFFFF, 40000, "200 returns")
    cycles = (bench.now - began) / 200
    dut._log.info("returns only: %.1f cycles a WQE, %.1f M/s", cycles, 250 / cycles)
    assert cycles < 10
