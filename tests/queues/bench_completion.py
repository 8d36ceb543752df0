"""CompletionEngine in Verilator: order of writes, splits, interrupts."""

from __future__ import annotations

import cocotb

from hdl.ports.rows import CqRow
from sim.bench.pins import number
from tests.fields import pack, unpack
from tests.queues.completion_bench import CONFIG, CQE, NEXT, SOLICITED, CompletionBench
from tests.queues.completion_order import Order


@cocotb.test()
async def order_of_writes(dut):
    """Used element before used index before CQE before its element before its index; all splits."""
    for event_idx, stall in ((0, 0.0), (1, 0.3)):
        bench = CompletionBench(dut, seed=1 + event_idx, stall=stall, event_idx=event_idx)
        await bench.start(again=bool(event_idx))
        cq, rq = bench.queue(1, 256), bench.queue(CONFIG.rq_queue(1), 64)
        splits = [(CQE,), (64,), (CQE + 1,), *[(k, CQE - k) for k in range(1, CQE)]]
        splits += [(k, 1, 60) for k in (7, 8, 15, 16, 31, 32, 37)] + [(1,) * CQE, (5,) * 8]
        order = Order(bench)
        for n, split in enumerate(splits):
            indirect = 0 if len(split) > 3 else bench.rng.choice([None, 0, len(split) - 1])
            parts = bench.fill(cq, split, indirect)
            ring = rq if n % 3 else None
            c = bench.completion(wqe=ring)
            order.expect(c, cq, parts, ring)
        await bench.settle()
        order.check()
        assert number(dut.completion__completions) == len(splits)
        assert not bench.interrupts.items and not bench.errors.items
        bench.ports.clear()


@cocotb.test()
async def several_queues(dut):
    """Interleaved CQs of several sizes, far around their rings; only returns; only CQEs."""
    bench = CompletionBench(dut, seed=3, stall=0.25, latency=30)
    await bench.start()
    rng = bench.rng
    cqs = [bench.queue(1 + n, size) for n, size in enumerate((2, 16, 64, 4096))]
    rings = [bench.queue(CONFIG.sq_queue(1), 4), bench.queue(CONFIG.rq_queue(2), 256)]
    counts, order = [rng.getrandbits(16) for _ in cqs], Order(bench)
    for n, queue in enumerate(cqs):
        queue.avail = counts[n]
        await bench.program("cq", n, pack(CqRow, {"position": counts[n], "available": counts[n]}))
        await bench.program("used", queue.number, counts[n])
        order.ring(queue, counts[n])
    free = bench.memory.free

    def complete(n, ring, parts):
        c = bench.completion(cq=n, emit=int(parts is not None), wqe=ring)
        order.expect(c, cqs[n] if parts else None, parts, ring)
        counts[n] = (counts[n] + (parts is not None)) & 0xFFFF

    for _ in range(12):
        bench.memory.free = free
        for queue in cqs:
            queue.heads = []
            queue.spare = list(range(queue.size))
        for _ in range(12):
            n, k = rng.randrange(4), rng.choice([None, 0, 1])
            emit = k is None or rng.random() < 0.8
            cq, ring = cqs[n], None if k is None else rings[k]
            # Chains among the single descriptors that most drivers use.
            split = rng.choice([(40,), (40,), (64,), (5, 40), (20, 30)])
            split = split if len(cq.spare) >= len(split) else (CQE,)
            complete(n, ring, bench.fill(cq, split) if emit and cq.spare else None)
        await bench.settle()
        order.check()
    # Behind one whose CQ's index has to be read wait those of a CQ that has buffers.
    bench.reads.latency, bench.i.gap = 250, 0.0
    for first in (0, 2):
        cqs[first].spare = list(range(cqs[first].size))
        stock = [bench.fill(cqs[3]) for _ in range(45)]
        complete(3, None, stock[0])
        await bench.settle()
        complete(first, rings[1], bench.fill(cqs[first]))
        for parts in stock[1:]:
            complete(3, rings[1], parts)
        await bench.settle()
        order.check()
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
    count, order = 0, Order(bench)

    async def one(flags: int, expected: int, **fields):
        nonlocal count
        if flags:
            bench.arm.queue.append({"cq": 1, "flags": flags})
            await bench.cycles(6)
        parts = bench.fill(cq)
        order.expect(bench.completion(cq=1, **fields), cq, parts)
        before = len(bench.interrupts.items)
        await bench.settle()
        order.check()
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
    bench.rules["event_idx"] = 1
    cq.set_used_event(count + 1)
    await one(NEXT, 1)
    await one(0, 0)
    assert number(dut.completion__interrupts) == len(bench.interrupts.items)
    # A WQE's ring: whenever it has a vector, armed or not.
    bench.rules["event_idx"] = 0
    ring = bench.queue(CONFIG.sq_queue(1), 16, vector=5)
    before = len(bench.interrupts.items)
    bench.completion(emit=0, wqe=ring)
    await bench.settle()
    ring.set_flags(1)
    bench.completion(emit=0, wqe=ring)
    await bench.settle()
    assert bench.interrupts.items[before:] == [{"function": bench.function, "vector": 5}]


@cocotb.test()
async def armed_at_any_time(dut):
    """Whoever arms a CQ and then finds no CQE is woken by the next: none is missed in between."""
    for seed in range(4):
        bench = CompletionBench(dut, seed=seed, stall=(0.0, 0.2)[seed & 1], latency=20)
        await bench.start(again=bool(seed))
        cq, ring = bench.queue(1, 256, vector=3), bench.queue(CONFIG.rq_queue(1), 256)
        order = Order(bench)
        taken = []
        for _ in range(200):
            parts = bench.fill(cq)
            order.expect(bench.completion(wqe=ring), cq, parts, ring)
        for _ in range(12):
            await bench.cycles(bench.rng.randrange(60))
            await bench.arm_cq(0, NEXT)
            taken.append(bench.now)
        await bench.settle()
        order.check()
        seen = [t for t, what, addr, _ in bench.events if addr == cq.device + 2]
        assert len(bench.interrupts.items) > 3
        for time in taken:
            later = [t for t in seen if t > time]
            if later:
                until = later[1] if len(later) > 1 else bench.now
                assert any(time < t <= until for t in bench.interrupts.times), (seed, time)
        bench.ports.clear()
