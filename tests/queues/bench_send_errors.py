"""SendFetch in Verilator: bad WQEs, broken rings, garbage, reset."""

from __future__ import annotations

import struct

import cocotb

from hdl.ports.jobs import QueueErrorCause
from tests.queues import wqes
from tests.queues.host import OUTSIDE
from tests.queues.send_bench import LINES, SendBench, buffers


@cocotb.test()
async def bad_wqes(dut):
    """Elements that are no WQE complete in error, and keep no line."""
    bench = SendBench(dut, seed=7, latency=4)
    await bench.start()
    queue, rng = bench.queue(1, 256), bench.rng
    sges = wqes.random_sges(rng, 2)
    big = [(0, 1 << 30, 0), (0, 1 << 30, 0)]
    cases = []

    def case(data, error):
        cases.append((data, error))

    good = wqes.send_wqe(rng, sges)[0]
    case(wqes.send_wqe(rng, sges, num_sge=1)[0], wqes.LOC_QP_OP_ERR)
    case(wqes.send_wqe(rng, sges, num_sge=3)[0], wqes.LOC_QP_OP_ERR)
    case(wqes.send_wqe(rng, sges, num_sge=0x8000_0002)[0], wqes.LOC_QP_OP_ERR)
    case(wqes.send_wqe(rng, sges, num_sge=0x42)[0], wqes.LOC_QP_OP_ERR)
    case(wqes.send_wqe(rng, wqes.random_sges(rng, 33))[0], wqes.LOC_QP_OP_ERR)
    case(wqes.send_wqe(rng, wqes.random_sges(rng, 200))[0], wqes.LOC_QP_OP_ERR)
    case(wqes.send_wqe(rng, sges, opcode=0x102)[0], wqes.LOC_QP_OP_ERR)
    case(wqes.send_wqe(rng, [], b"x" * 16, num_sge=1)[0], wqes.LOC_QP_OP_ERR)
    case(wqes.send_wqe(rng, [], b"x" * 513)[0], wqes.LOC_LEN_ERR)
    case(wqes.send_wqe(rng, [*big, (0, 1, 0)])[0], wqes.LOC_LEN_ERR)
    case(wqes.send_wqe(rng, [(0, 0xFFFF_FFFF, 0)] * 32)[0], wqes.LOC_LEN_ERR)
    for length in (1, 11, 12, 74, 75, 90, 92, len(good) - 1):
        case(good[:length], wqes.LOC_QP_OP_ERR)
    case(good + b"x", wqes.LOC_QP_OP_ERR)
    for data, error in cases:
        head = queue.chain(buffers(bench, data, [len(data) // 2]))
        bench.ask(queue, queue.offer(head))
        got = await bench.answer()
        assert (got["status"], got["error"]) == (wqes.WQE_ERROR, error), (len(data), got)
        assert got["head"] == head
        if len(data) >= 20:
            assert got["wqe"]["wr_id"] == struct.unpack_from("<Q", data, 12)[0]
    # 2 GiB exactly is a message; every line is still there.
    for n in range(LINES):
        data, expected = wqes.send_wqe(rng, big)
        head = queue.chain(buffers(bench, data, []))
        position = queue.offer(head)
        bench.ask(queue, position)
        got = await bench.answer()
        assert (got["status"], got["wqe"]) == (wqes.OK, expected), n
    assert not bench.errors.items


@cocotb.test()
async def broken_rings(dut):
    """Each way to break a ring gives its cause; another queue goes on."""
    C = QueueErrorCause
    bench = SendBench(dut, seed=8, latency=4)
    await bench.start()
    rng = bench.rng
    healthy = bench.queue(2, 64)

    def one(queue, addr, length, flags=0, next_=0, index=0):
        queue.set_desc(queue.desc, index, addr, length, flags, next_)
        queue.offer(0)

    def table(queue, entries, length=None, flags=4):
        at = bench.memory.alloc(16 * len(entries), 16)
        for k, entry in enumerate(entries):
            queue.set_desc(at, k, *entry)
        one(queue, at, 16 * len(entries) if length is None else length, flags, 1)

    def loop(queue):
        addr = bench.memory.alloc(1)
        for k in range(8):
            queue.set_desc(queue.desc, k, addr, 1, 1, (k + 1) % 8)
        queue.offer(0)

    def order(queue):
        addr = bench.memory.alloc(64)
        queue.set_desc(queue.desc, 1, addr, 64, 0, 0)
        one(queue, addr, 64, 3, 1)

    def unreadable(queue, what):
        data, _ = wqes.send_wqe(rng, wqes.random_sges(rng, 1))
        head = queue.chain(buffers(bench, data, []), rng=rng)
        queue.offer(head)
        bench.memory.unreadable.add(queue.read_for(head)[what])

    buf = bench.memory.alloc(8192)
    breaks = [
        (C.AVAIL_INDEX, lambda q: q.set_index(9)),
        (C.AVAIL_INDEX, lambda q: q.set_index(0xFFFF)),
        (C.DESC_INDEX, lambda q: q.offer(8)),
        (C.DESC_INDEX, lambda q: q.offer(0xFFFF)),
        (C.DESC_INDEX, lambda q: one(q, buf, 10, 1, 8)),
        (C.DESC_INDEX, lambda q: one(q, buf, 10, 1, 0xFFFF)),
        (C.DESC_LOOP, loop),
        (C.DESC_LOOP, lambda q: one(q, buf, 10, 1, 0)),
        (C.DESC_LENGTH, lambda q: one(q, buf, 0)),
        (C.DESC_LENGTH, lambda q: one(q, (1 << 64) - 16, 17)),
        (C.DESC_LENGTH, lambda q: one(q, buf, 4097)),
        (C.DESC_LENGTH, lambda q: one(q, buf, 0xFFFF_FFFF)),
        (C.INDIRECT, lambda q: table(q, [(buf, 91, 0, 0)], length=15)),
        (C.INDIRECT, lambda q: table(q, [(buf, 91, 0, 0)], length=0)),
        (C.INDIRECT, lambda q: table(q, [(buf, 91, 0, 0)], length=16 * 32769)),
        (C.INDIRECT, lambda q: table(q, [(buf, 91, 0, 0)], flags=5)),
        (C.INDIRECT, lambda q: table(q, [(buf, 32, 4, 0)])),
        (C.DESC_INDEX, lambda q: table(q, [(buf, 32, 1, 1)])),
        (C.DESC_LOOP, lambda q: table(q, [(buf, 32, 1, 1), (buf, 1, 1, 0)])),
        (C.DIRECTION, order),
        (C.DIRECTION, lambda q: one(q, buf, 91, 2)),
        (C.HOST_READ, lambda q: one(q, OUTSIDE, 91)),
        (C.HOST_READ, lambda q: one(q, OUTSIDE, 32, 4)),
        (C.HOST_READ, lambda q: setattr(q, "driver", OUTSIDE)),
        (C.HOST_READ, lambda q: (q.offer(0), setattr(q, "desc", OUTSIDE))),
        (C.HOST_READ, lambda q: unreadable(q, "index")),
        (C.HOST_READ, lambda q: unreadable(q, "entries")),
        (C.HOST_READ, lambda q: unreadable(q, "descriptor")),
        (C.HOST_READ, lambda q: unreadable(q, "buffer")),
    ]
    for number_, (cause, break_) in enumerate(breaks):
        queue = bench.queue(1, 8)
        bench.reset.queue.append(queue.number)
        await bench.until(lambda: not bench.reset.queue and not bench.reset.offered, 100)
        await bench.cycles(2)
        break_(queue)
        sges = wqes.random_sges(rng, 1)
        data, expected = wqes.send_wqe(rng, sges)
        head = healthy.chain(buffers(bench, data, [30]))
        position = healthy.offer(head)
        bench.ask(queue, 0, known=0)
        bench.ask(healthy, position)
        got = await bench.answer()
        assert got["status"] == wqes.QUEUE_ERROR, (number_, got)
        assert got["error"] in (0, wqes.LOC_QP_OP_ERR, wqes.LOC_LEN_ERR)
        await bench.check(healthy, position, expected, wqes.sge_bytes(sges), head)
        assert bench.errors.items.pop(0) == {"queue": queue.number, "cause": cause.value}, number_
    # Indirect tables are an error when they were not negotiated.
    bench.rules["indirect"] = 0
    queue = bench.queue(1, 8)
    bench.reset.queue.append(queue.number)
    await bench.cycles(20)
    table(queue, [(buf, 91, 0, 0)])
    bench.ask(queue, 0, known=0)
    assert (await bench.answer())["status"] == wqes.QUEUE_ERROR
    assert bench.errors.items == [{"queue": queue.number, "cause": C.INDIRECT.value}]


@cocotb.test()
async def garbage(dut):
    """Random rings and descriptors: always an answer, and the other queue goes on."""
    bench = SendBench(dut, seed=9, latency=3, stall=0.1)
    await bench.start()
    bench.memory.wild = True
    rng = bench.rng
    healthy = bench.queue(2, 256)
    blob = bench.memory.alloc(4096)
    bench.memory.put(blob, rng.randbytes(4096))
    free = bench.memory.free
    statuses = set()
    for _ in range(200):
        bench.memory.free = free
        size = 1 << rng.randrange(1, 6)
        queue = bench.queue(1, size)
        table = bench.memory.alloc(64 * 16, 16)
        for place, count in ((queue.desc, size), (table, 64)):
            for k in range(count):
                addr = blob + rng.randrange(4096)
                addr = rng.choice([addr, addr, addr, table, 0, (1 << 64) - 8, queue.desc])
                length = rng.choice([0, 1, 3, 16, 75, 91, 91, 160, 16 * size, rng.getrandbits(32)])
                flags = rng.choice([0, 0, 0, 0, 1, 1, 1, 2, 3, 4, 4, rng.getrandbits(16)])
                queue.set_desc(place, k, addr, length, flags, rng.randrange(size + 1))
        for k in range(size):
            bench.memory.put(queue.driver + 4 + 2 * k, struct.pack("<H", rng.randrange(size + 2)))
        queue.set_index(rng.choice([0, 1, size, size + 1, rng.getrandbits(16)]))
        bench.reset.queue.append(queue.number)
        await bench.until(lambda: not bench.reset.queue and not bench.reset.offered, 3000, "reset")
        sges = wqes.random_sges(rng, 1)
        data, expected = wqes.send_wqe(rng, sges)
        head = healthy.chain(buffers(bench, data, []))
        position = healthy.offer(head)
        bench.ask(queue, 0, known=0)
        bench.ask(healthy, position)
        got = await bench.answer()
        statuses.add(got["status"])
        if got["status"] == wqes.OK:
            bench.release.queue.append(got["line"])
        await bench.check(healthy, position, expected, wqes.sge_bytes(sges), head)
    assert {wqes.QUEUE_ERROR, wqes.WQE_ERROR, wqes.EMPTY} <= statuses


@cocotb.test()
async def reset_in_the_middle(dut):
    """Reset at many moments of a fetch: afterwards it works as at power-on."""
    for moment in range(4, 90, 6):
        bench = SendBench(dut, seed=moment, latency=12)
        await bench.start(again=moment != 4)
        queue = bench.queue(1, 16)
        sges = wqes.random_sges(bench.rng, 3)
        data, expected = wqes.send_wqe(bench.rng, sges)
        head = queue.chain(buffers(bench, data, [20, 50]))
        queue.offer(head)
        bench.ask(queue, 0)
        await bench.cycles(moment)
        bench.ports.clear()
        bench = SendBench(dut, seed=moment, latency=12)
        await bench.start(again=True)
        queue = bench.queue(1, 16)
        for _ in range(LINES):
            head = queue.chain(buffers(bench, data, [20, 50]))
            position = queue.offer(head)
            bench.ask(queue, position)
            got = await bench.answer()
            assert (got["status"], got["wqe"]) == (wqes.OK, expected)
        bench.ports.clear()
