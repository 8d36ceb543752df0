"""CompletionEngine in Verilator: overflow, broken rings, garbage, the firmware's windows, reset."""

from __future__ import annotations

import struct

import cocotb

from hdl.ports.jobs import QueueErrorCause
from hdl.ports.rows import CqRow
from sim.bench.pins import number
from tests.fields import pack, unpack
from tests.queues.completion_bench import CONFIG, CQE, NEXT, CompletionBench, cqe_bytes
from tests.queues.host import OUTSIDE


@cocotb.test()
async def overflow(dut):
    """No buffer: CQ in error, its CQEs are lost and reported; buffers of WQEs go back."""
    bench = CompletionBench(dut, seed=5)
    await bench.start()
    cq, other = bench.queue(1, 16), bench.queue(2, 16)
    ring = bench.queue(CONFIG.rq_queue(1), 16)
    for _ in range(3):
        bench.fill(cq)
    done = [bench.completion(wqe=ring) for _ in range(6)]
    await bench.settle()
    assert cq.used_index() == 3 and ring.used_index() == 6
    lost = [{"cq": 0, "qp": c["qp_num"] % CONFIG.qps} for c in done[3:]]
    assert bench.cq_errors.items == lost
    # Buffers that come later do not help; the other CQ is not concerned.
    bench.fill(cq)
    c = bench.completion()
    parts = bench.fill(other)
    d = bench.completion(cq=1)
    await bench.settle()
    assert cq.used_index() == 3 and other.used_index() == 1
    assert bench.joined(parts) == cqe_bytes(d)
    assert bench.cq_errors.items == [*lost, {"cq": 0, "qp": c["qp_num"] % CONFIG.qps}]
    assert number(dut.completion__overflows) == 4
    row = unpack(CqRow, await bench.program("cq", 0))
    assert row["error"] == 1
    assert not bench.errors.items
    # The firmware makes the CQ anew.
    cq = bench.queue(1, 16)
    bench.reset.queue.append(1)
    await bench.until(lambda: bench.reset.taken, 500, "reset")
    await bench.program("cq", 0, pack(CqRow, {"armed": NEXT}))
    assert unpack(CqRow, await bench.program("cq", 0))["armed"] == NEXT
    parts = bench.fill(cq)
    d = bench.completion()
    await bench.settle()
    assert bench.joined(parts) == cqe_bytes(d) and cq.used_index() == 1


@cocotb.test()
async def programmed_indices(dut):
    """The firmware may set position and used index: both wrap at 65536."""
    bench = CompletionBench(dut, seed=6)
    await bench.start()
    cq = bench.queue(3, 8)
    cq.avail = 0xFFFE
    await bench.program("cq", 2, pack(CqRow, {"position": 0xFFFE, "available": 0xFFFE}))
    await bench.program("used", 3, 0xFFFE)
    for n in range(5):
        parts = bench.fill(cq)
        c = bench.completion(cq=2)
        await bench.settle()
        assert bench.joined(parts) == cqe_bytes(c)
        assert cq.used_index() == (0xFFFF + n) & 0xFFFF
        assert cq.used(0xFFFE + n) == (cq.heads[-1][0], CQE)


@cocotb.test()
async def broken_rings(dut):
    """A broken CQ ring: QueueError, CQ in error; completions of others, and later ones, go on."""
    C = QueueErrorCause
    bench = CompletionBench(dut, seed=7, latency=40)
    await bench.start()
    buf = bench.memory.alloc(64)

    def chain(q, *entries):
        for k, entry in enumerate(entries):
            q.set_desc(q.desc, k, *entry)
        q.offer(0)

    def unreadable(q, what):
        bench.fill(q)
        bench.memory.unreadable.add(q.read_for(q.heads[0][0])[what])

    breaks = [
        (C.AVAIL_INDEX, lambda q: q.set_index(17)),
        (C.DESC_INDEX, lambda q: q.offer(16)),
        (C.DESC_LENGTH, lambda q: chain(q, (buf, 37, 2, 0))),
        (C.DESC_LENGTH, lambda q: chain(q, (buf, 30, 3, 1), (buf, 7, 2, 0))),
        (C.DESC_LENGTH, lambda q: chain(q, (buf, 65537, 2, 0))),
        (C.DESC_LOOP, lambda q: chain(q, (buf, 1, 3, 1), (buf, 1, 3, 0))),
        (C.DESC_LOOP, lambda q: chain(q, (buf, 64, 3, 1), (buf, 64, 3, 0))),
        (C.DIRECTION, lambda q: chain(q, (buf, 38, 0, 0))),
        (C.DIRECTION, lambda q: chain(q, (buf, 64, 3, 1), (buf, 64, 0, 0))),
        (C.INDIRECT, lambda q: chain(q, (buf, 17, 4, 0))),
        (C.HOST_READ, lambda q: setattr(q, "driver", OUTSIDE)),
        (C.HOST_READ, lambda q: (q.offer(0), setattr(q, "desc", OUTSIDE))),
        (C.HOST_READ, lambda q: unreadable(q, "index")),
        (C.HOST_READ, lambda q: unreadable(q, "entries")),
        (C.HOST_READ, lambda q: unreadable(q, "descriptor")),
    ]
    other = bench.queue(2, 64)
    counted = 0
    for n, (cause, break_) in enumerate(breaks):
        queue = bench.queue(1, 16)
        bench.reset.queue.append(1)
        await bench.until(lambda n=n: bench.reset.taken == n + 1, 500, "reset")
        await bench.program("cq", 0, 0)
        break_(queue)
        lost = []
        for _ in range(3):
            lost.append(bench.completion())
            bench.fill(other)
            bench.completion(cq=1)
            counted += 1
        await bench.settle()
        assert other.used_index() == counted, n
        assert bench.errors.items.pop(0) == {"queue": 1, "cause": cause.value}, n
        assert bench.cq_errors.items[0] == {"cq": 0, "qp": lost[0]["qp_num"] % CONFIG.qps}
        assert queue.used_index() == 0
        assert unpack(CqRow, await bench.program("cq", 0))["error"] == 1
        bench.errors.items.clear()
        bench.cq_errors.items.clear()


@cocotb.test()
async def garbage(dut):
    """Random CQ rings: never a hang, and the other CQ gets all of its CQEs."""
    bench = CompletionBench(dut, seed=8, latency=5, stall=0.1)
    await bench.start()
    bench.memory.wild = True
    rng = bench.rng
    other = bench.queue(2, 256)
    buf = bench.memory.alloc(4096)
    free, good = bench.memory.free, 0
    for n in range(40):
        bench.memory.free = free
        size = 1 << rng.randrange(1, 6)
        queue = bench.queue(1, size)
        for k in range(size):
            length = rng.choice([0, 1, 16, 37, 38, 64, 70000, 16 * size, rng.getrandbits(32)])
            flags = rng.choice([0, 2, 2, 2, 3, 3, 4, 6, rng.getrandbits(16)])
            addr = rng.choice([buf, buf, 0, queue.desc, (1 << 64) - 8])
            queue.set_desc(queue.desc, k, addr, length, flags, rng.randrange(size + 1))
            bench.memory.put(queue.driver + 4 + 2 * k, struct.pack("<H", rng.randrange(size + 1)))
        queue.set_index(rng.choice([1, size, size, size + 1, rng.getrandbits(16)]))
        bench.reset.queue.append(1)
        await bench.until(lambda n=n: bench.reset.taken == n + 1, 500, "reset")
        await bench.program("cq", 0, 0)
        for _ in range(4):
            bench.completion()
            parts = bench.fill(other)
            d = bench.completion(cq=1)
            good += 1
        await bench.settle()
        assert other.used_index() == good
        assert bench.joined(parts) == cqe_bytes(d)


@cocotb.test()
async def reset_in_the_middle(dut):
    """Reset at many moments: afterwards indices and rows are 0 and it works as at power-on."""
    for moment in range(2, 120, 9):
        bench = CompletionBench(dut, seed=moment)
        await bench.start(again=moment != 2)
        cq, ring = bench.queue(1, 16, vector=1), bench.queue(CONFIG.rq_queue(1), 16)
        for _ in range(4):
            bench.fill(cq)
            bench.completion(wqe=ring)
        await bench.cycles(moment)
        bench.ports.clear()
        bench = CompletionBench(dut, seed=moment)
        await bench.start(again=True)
        cq, ring = bench.queue(1, 16, vector=1), bench.queue(CONFIG.rq_queue(1), 16)
        parts = bench.fill(cq, (20, 30))
        c = bench.completion(wqe=ring)
        await bench.settle()
        assert bench.joined(parts)[:CQE] == cqe_bytes(c)
        assert (cq.used_index(), ring.used_index()) == (1, 1)
        bench.ports.clear()
