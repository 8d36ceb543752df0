"""SendFetch in Verilator: short WQEs, long chains, bad ones and polls of several queues at once."""

from __future__ import annotations

import random

import cocotb

from hdl.ports.jobs import QueueErrorCause
from tests.queues import wqes
from tests.queues.host import NEXT, OUTSIDE, WRITE, Memory
from tests.queues.send_bench import SendBench, buffers, pair


def wqe_of_some_kind(bench, queue, rng):
    """A WQE made available; returns (head, status of its answer, what is answered, bytes of its
    line)."""
    kind, status = rng.randrange(11), wqes.OK
    parts, bad = [], {}
    if kind in (5, 6):
        payload = rng.randbytes(rng.choice([0, 1, 15, 16, 17, 48, 52, 53, 54, 200]))
        data, expected = wqes.send_wqe(rng, [], payload)
    else:
        count = 1
        if kind < 5:  # in one piece, most of them short enough to be taken at once
            count = rng.choice([0, 1, 1, 2, 3, 4, 9])
        elif kind < 9:  # in pieces
            count = rng.choice([1, 2, 5])
        elif kind == 9:  # no WQE
            status, wrong = wqes.WQE_ERROR, rng.choice([0, 2, 0x102, 0x8000_0001])
            bad = rng.choice([{"num_sge": wrong}, {"opcode": 0x100}])
        else:  # bytes that the host has not read well: nobody believes them
            status = wqes.QUEUE_ERROR
        sges = wqes.random_sges(rng, count)
        data, expected = wqes.send_wqe(rng, sges, **bad)
        payload = wqes.sge_bytes(sges)
        if kind in (7, 8):
            parts = rng.sample(range(1, len(data)), rng.choice([1, 3]))
    chain = buffers(bench, data, parts, rng)
    if status == wqes.QUEUE_ERROR:
        bench.memory.unreadable.add(chain[0][0])
    head = queue.chain(chain, indirect_from=rng.choice([None, None, 0]), rng=rng)
    queue.offer(head)
    return head, status, expected, payload


@cocotb.test()
async def everything_at_once(dut):
    """Every request is answered with its own WQE, those of a queue in order, whatever it is."""
    bench = SendBench(dut, seed=21, stall=0.15, latency=40, event_idx=1)
    await bench.start()
    bench.memory = Memory(1 << 21)
    rng = random.Random(21)  # what is done hangs on no timing
    queues = [bench.queue(qp, size) for qp, size in enumerate((256, 32768, 4096), 1)]
    posted = {queue.number: [] for queue in queues}
    asked, total, broken = {}, 0, []
    numbers = {pair(queue): queue.number for queue in queues}
    free = bench.memory.free
    for _ in range(12):
        bench.memory.free = free
        bench.memory.unreadable.clear()
        for queue in queues:
            queue.spare = list(range(queue.size))
        for _ in range(12):
            queue = rng.choice(queues)
            for _ in range(rng.randrange(1, 6)):
                at = queue.avail
                posted[queue.number].append((queue, at, *wqe_of_some_kind(bench, queue, rng)))
        order = list(queues) * 80
        rng.shuffle(order)
        for queue in order:
            if posted[queue.number]:
                one = posted[queue.number].pop(0)
                # What is known: nothing, all, or no more than this one.
                known = rng.choice([one[1], queue.avail, queue.avail, one[1] + 1])
                bench.ask(queue, one[1], known=known)
                asked[(pair(queue), one[1])] = one[2:]
        assert not any(posted.values())
        # In the order of their answers: a line that is not given back stops those behind.
        while asked:
            done = bench.asker.done
            await bench.until(lambda done=done, total=total: len(done) > total, 20000, "an answer")
            got = done[total]
            total += 1
            key = (got["qp"], got["position"])
            head, status, expected, payload = asked.pop(key)
            assert (got["status"], got["head"]) == (status, head)
            if status == wqes.WQE_ERROR:
                assert got["error"] == wqes.LOC_QP_OP_ERR
            elif status == wqes.QUEUE_ERROR:
                broken.append({"queue": numbers[key[0]], "cause": QueueErrorCause.HOST_READ.value})
            else:
                assert (got["error"], got["wqe"]) == (0, expected)
                await bench.holds(got["line"], expected, payload)
                bench.release.queue.append(got["line"])
    assert total > 200 and len(broken) > 10
    await bench.cycles(20)
    assert bench.errors.items == broken
    # No line has been lost, and a reset of the queues goes through.
    for queue in queues:
        bench.reset.queue.append(queue.number)
    await bench.until(lambda: not bench.reset.queue and not bench.reset.offered, 200, "reset")


@cocotb.test()
async def answers_of_a_queue_in_order(dut):
    """Known WQEs, every third a chain for the slow path, every fifth bad: answered as asked for."""
    bench = SendBench(dut, seed=22, latency=30)
    await bench.start()
    queue, rng, wanted = bench.queue(2, 256), bench.rng, []
    for n in range(60):
        sges = wqes.random_sges(rng, 1)
        data, expected = wqes.send_wqe(rng, sges, **({"opcode": 0x300} if n % 5 == 4 else {}))
        cuts = [40, 80] if n % 3 == 2 else []
        head = queue.chain(buffers(bench, data, cuts))
        queue.offer(head)
        wanted.append((expected, sges, head, n % 5 == 4))
    for n in range(60):
        bench.ask(queue, n, known=60)
    for n, (expected, sges, head, bad) in enumerate(wanted):
        if bad:
            assert (await bench.answer())["status"] == wqes.WQE_ERROR
        else:
            await bench.check(queue, n, expected, wqes.sge_bytes(sges), head)
    assert [item["position"] for item in bench.rsp.items] == list(range(60))


@cocotb.test()
async def entries_are_forgotten_with_the_queue(dut):
    """After a queue reset the ring is read again: what was read ahead answers for nothing."""
    bench = SendBench(dut, seed=23)
    await bench.start()
    queue, rng = bench.queue(1, 64), bench.rng
    for life in range(3):
        queue.avail, queue.spare = 0, rng.sample(range(64), 64)
        expected = []
        for _ in range(16):
            sges = wqes.random_sges(rng, 1)
            data, wqe = wqes.send_wqe(rng, sges)
            head = queue.chain(buffers(bench, data, []))
            queue.offer(head)
            expected.append((wqe, sges, head))
        for position in range(3 + life):
            wqe, sges, head = expected[position]
            bench.ask(queue, position, known=16)
            await bench.check(queue, position, wqe, wqes.sge_bytes(sges), head)
        bench.reset.queue.append(queue.number)
        await bench.until(lambda: not bench.reset.queue and not bench.reset.offered, 100)
        await bench.cycles(2)


@cocotb.test()
async def dropped_queue(dut):
    """A queue is dropped when its lines have come back; a request meanwhile finds it empty."""
    bench = SendBench(dut, seed=41, latency=40)
    await bench.start()
    rng, (queue, other) = bench.rng, (bench.queue(1, 64), bench.queue(2, 64))
    for one in (queue, other, queue):
        data, expected = wqes.send_wqe(rng, wqes.random_sges(rng, 1))
        one.offer(one.chain(buffers(bench, data, []), rng=rng))
    for one in (queue, other):
        bench.ask(one, 0, known=1)
    lines = [(await bench.answer())["line"] for _ in range(2)]
    bench.reset.queue.append(queue.number | 1 << 16)
    await bench.until(lambda: bench.reset.offered, 10)
    bench.ask(queue, 1, known=2)
    assert (await bench.answer())["status"] == wqes.EMPTY
    bench.ask(other, 1, known=1)
    await bench.cycles(400)
    assert bench.reset.taken == 0, "a line holds a WQE of the queue"
    bench.release.queue.append(lines[0])
    await bench.until(lambda: bench.reset.taken == 1, 100, "the drop")
    assert (await bench.answer())["status"] == wqes.EMPTY  # the other queue's, which has waited
    # Another WQE at the next position, with another head.
    queue.avail = 1
    data, expected = wqes.send_wqe(rng, wqes.random_sges(rng, 1))
    head = queue.chain(buffers(bench, data, []), rng=rng)
    queue.offer(head)
    bench.ask(queue, 1, known=2)
    got = await bench.answer()
    assert (got["status"], got["wqe"], got["head"]) == (wqes.OK, expected, head)


@cocotb.test()
async def reset_of_a_queue_waits_for_what_is_under_way(dut):
    """With many WQEs in flight, no request is taken and none answered too early."""
    bench = SendBench(dut, seed=24, latency=100)
    await bench.start()
    queue, rng = bench.queue(1, 64), bench.rng
    for _ in range(20):
        data, _ = wqes.send_wqe(rng, wqes.random_sges(rng, 1))
        queue.offer(queue.chain(buffers(bench, data, [])))
    for n in range(20):
        bench.ask(queue, n, known=20)
    await bench.cycles(90)
    begun = bench.req.taken
    assert 4 <= begun < 30
    bench.reset.queue.append(queue.number)
    bench.ask(queue, 20, known=20)
    for _ in range(2000):
        await bench.cycles(1)
        while len(bench.asker.done) > bench.answered:
            got = await bench.answer()
            if got["status"] == wqes.OK:  # no other one has a line
                bench.release.queue.append(got["line"])
        if bench.reset.taken:
            break
    assert len(bench.rsp.items) in (begun, begun + 1), "taken with answers outstanding"
    quiet = len(bench.memory.reads)
    await bench.cycles(3)
    assert len(bench.memory.reads) == quiet


@cocotb.test()
async def rings_that_cannot_be_read(dut):
    """Ring entries outside memory: each position says so; the queue works again after a reset."""
    bench = SendBench(dut, seed=25, latency=20)
    await bench.start()
    rng = bench.rng
    healthy, broken = bench.queue(2, 64), bench.queue(1, 64)
    inside, broken.driver = broken.driver, OUTSIDE
    sges = wqes.random_sges(rng, 1)
    data, expected = wqes.send_wqe(rng, sges)
    heads = [healthy.chain(buffers(bench, data, [])) for _ in range(5)]
    for n, head in enumerate(heads):
        healthy.offer(head)
        bench.ask(broken, n, known=5)
        bench.ask(healthy, n, known=n + 1)
    for n, head in enumerate(heads):
        assert (await bench.answer())["status"] == wqes.QUEUE_ERROR
        await bench.check(healthy, n, expected, wqes.sge_bytes(sges), head)
    cause = QueueErrorCause.HOST_READ.value
    assert bench.errors.items == [{"queue": broken.number, "cause": cause}] * 5
    # The failed line is not kept.
    broken.driver = inside
    head = broken.chain(buffers(bench, data, []))
    broken.offer(head)
    bench.ask(broken, 0, known=1)
    await bench.check(broken, 0, expected, wqes.sge_bytes(sges), head)


@cocotb.test()
async def broken_chains_of_known_heads(dut):
    """What the slow path finds wrong with a head that was known: as with any other."""
    C = QueueErrorCause
    bench = SendBench(dut, seed=26, latency=10)
    await bench.start()
    buf = bench.memory.alloc(4096)
    cases = [
        (C.DESC_INDEX, 8, None),
        (C.DESC_INDEX, 0xFFFF, None),
        (C.DIRECTION, 0, (buf, 91, WRITE, 0)),
        (C.DESC_LENGTH, 0, (buf, 0, 0, 0)),
        (C.DESC_LENGTH, 0, ((1 << 64) - 16, 91, 0, 0)),
        (C.DESC_INDEX, 0, (buf, 91, NEXT, 8)),
        (C.DESC_LOOP, 0, (buf, 91, NEXT, 0)),
        (C.HOST_READ, 0, (OUTSIDE, 91, 0, 0)),
    ]
    for cause, head, desc in cases:
        queue = bench.queue(1, 8)
        bench.reset.queue.append(queue.number)
        await bench.until(lambda: not bench.reset.queue and not bench.reset.offered, 100)
        await bench.cycles(2)
        if desc:
            queue.set_desc(queue.desc, 0, *desc)
        queue.offer(head)
        bench.ask(queue, 0, known=1)
        assert (await bench.answer())["status"] == wqes.QUEUE_ERROR, cause
        assert bench.errors.items.pop() == {"queue": queue.number, "cause": cause.value}


@cocotb.test()
async def an_index_beyond_the_queue_is_not_believed(dut):
    """``known`` more than the size ahead, or behind: the index is read, and told as it is."""
    bench = SendBench(dut, seed=27)
    await bench.start()
    queue = bench.queue(1, 16)
    for _ in range(3):
        queue.offer(0)
    for known in (17, 0x7FFF, 0xFFFF):
        bench.ask(queue, 0, known=known)
        await bench.until(lambda: bench.rsp.items, 200, "an answer")
        item = bench.rsp.items.pop(0)
        bench.asker.seen, bench.asker.asked = 0, []
        bench.asker.open.clear()
        bench.req.queue.clear()
        assert (item["status"], item["poll"], item["available"]) == (wqes.EMPTY, 0, 3)
        await bench.cycles(50)
        bench.rsp.items.clear()
