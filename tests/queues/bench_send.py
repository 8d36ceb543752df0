"""SendFetch in Verilator: splits, chains, ring wrap, EVENT_IDX, order of answers."""

from __future__ import annotations

import cocotb

from tests.queues import wqes
from tests.queues.send_bench import LINES, SendBench, buffers


@cocotb.test()
async def every_split(dut):
    """A WQE of one SGE, cut in two at every byte, into three, and byte by byte."""
    bench = SendBench(dut)
    await bench.start()
    queue, rng = bench.queue(1, 256), bench.rng
    total = wqes.SEND_FIXED + 16
    cuts = [[k] for k in range(1, total)] + [[k, k + 1] for k in range(1, total - 1, 7)]
    cuts += [list(range(1, total))]
    expectations = []
    for cut in cuts:
        sges = wqes.random_sges(rng, 1)
        data, expected = wqes.send_wqe(rng, sges)
        many = len(cut) > 2
        head = queue.chain(buffers(bench, data, cut, rng), indirect_from=0 if many else None)
        queue.spare.append(head)
        position = queue.offer(head)
        queue.spare = [k for k in range(256) if k != head] + [head]
        bench.ask(queue, position)
        await bench.check(queue, position, expected, wqes.sge_bytes(sges), head)
        expectations.append(expected)
    assert not bench.errors.items


@cocotb.test()
async def chains_and_tables(dut):
    """All sizes of WQE, random splits, direct, indirect and mixed chains, stalls everywhere."""
    bench = SendBench(dut, seed=2, stall=0.3, event_idx=1)
    await bench.start()
    queue, rng = bench.queue(2, 1024), bench.rng
    for count in [*range(0, 33), 32, 1, 32]:
        sges = wqes.random_sges(rng, count)
        data, expected = wqes.send_wqe(rng, sges)
        parts = rng.choice([0, 1, 3, 9])
        cut = sorted(rng.sample(range(1, len(data)), parts))
        chain = buffers(bench, data, cut, rng)
        indirect = rng.choice([None, 0, rng.randrange(len(chain))])
        head = queue.chain(chain, indirect_from=indirect, rng=rng)
        position = queue.offer(head)
        bench.ask(queue, position)
        await bench.check(queue, position, expected, wqes.sge_bytes(sges), head)
    assert not bench.errors.items


@cocotb.test()
async def inline_of_every_length(dut):
    bench = SendBench(dut, seed=3)
    await bench.start()
    queue, rng = bench.queue(1, 1024), bench.rng
    lengths = [*range(0, 70), 127, 128, 129, 255, 256, 257, 500, 510, 511, 512]
    for length in lengths:
        payload = rng.randbytes(length)
        data, expected = wqes.send_wqe(rng, [], payload)
        cut = sorted(rng.sample(range(1, len(data)), 2)) if length % 2 else []
        head = queue.chain(buffers(bench, data, cut, rng))
        position = queue.offer(head)
        bench.ask(queue, position)
        await bench.check(queue, position, expected, payload, head)


@cocotb.test()
async def ring_wrap_of_every_size(dut):
    """Sizes 2 to 32768, several times around small rings, any heads; position beyond 65535."""
    bench = SendBench(dut, seed=4, latency=4, stall=0.2)
    await bench.start()
    rng = bench.rng
    for size, start, total in [
        (2, 0xFFFD, 9),
        (4, 0xFFF9, 14),
        (16, 0xFFF0, 40),
        (64, 0xFFF0, 70),
        (32768, 0xFFE0, 70),
    ]:
        bench.memory.free = 0
        queue = bench.queue(3, size)
        queue.avail = start
        bench.known[queue.number] = start
        bench.reset.queue.append(queue.number)
        await bench.until(lambda: not bench.reset.offered and not bench.reset.queue, 100, "reset")
        await bench.cycles(2)
        position, count = start, total
        while count > 0:
            batch = min(rng.randrange(1, min(size, 20) + 1), count)
            wanted = []
            for _ in range(batch):
                sges = wqes.random_sges(rng, 1)
                data, expected = wqes.send_wqe(rng, sges)
                head = queue.chain(buffers(bench, data, []), rng=rng)
                queue.offer(head)
                wanted.append((expected, sges, head))
            # The first finds out how far the queue reaches, the others are known by then.
            for number, (expected, sges, head) in enumerate(wanted):
                if number == 0:
                    bench.ask(queue, position)
                elif number == 1:
                    for later in range(1, batch):
                        bench.ask(queue, position + later)
                at = (position + number) & 0xFFFF
                await bench.check(queue, at, expected, wqes.sge_bytes(sges), head)
                queue.spare.append(head)
            position += batch
            count -= batch
        bench.ask(queue, position)
        assert (await bench.answer())["status"] == wqes.EMPTY


@cocotb.test()
async def avail_event_is_taken_before_the_index_is_read_again(dut):
    """While the write engine takes nothing, no lane goes on: a read would overtake the write."""
    bench = SendBench(dut, seed=7, event_idx=1)
    await bench.start()
    queues = [bench.queue(pair, 16) for pair in (1, 2)]  # one for each lane
    bench.writes.stall = 1.0
    for queue in queues:
        bench.ask(queue, 0)
    await bench.cycles(300)
    reads = [bench.memory.reads.count((queue.driver + 2, 2)) for queue in queues]
    assert reads == [1, 1] and not bench.memory.log
    bench.writes.stall = 0.0
    for queue in queues:
        assert (await bench.answer())["status"] == wqes.EMPTY
        assert bench.memory.reads.count((queue.driver + 2, 2)) == 2


@cocotb.test()
async def empty_and_event_idx(dut):
    """EMPTY; with EVENT_IDX avail_event is written first and the index read after it."""
    bench = None
    for event_idx in (0, 1):
        if bench:
            bench.ports.clear()
        bench = SendBench(dut, event_idx=event_idx)
        await bench.start(again=bool(event_idx))
        queue = bench.queue(1, 16)
        bench.ask(queue, 0)
        got = await bench.answer()
        assert (got["status"], got["available"]) == (wqes.EMPTY, 0)
        index_reads = [r for r in bench.memory.reads if r == (queue.driver + 2, 2)]
        assert len(index_reads) == 1 + event_idx
        assert len(bench.memory.log) == event_idx
        # A buffer that arrives between the two reads of the index is found.
        sges = wqes.random_sges(bench.rng, 2)
        data, expected = wqes.send_wqe(bench.rng, sges)
        if event_idx:
            head = queue.chain(buffers(bench, data, []))
            write = bench.memory.write

            def late(addr, block, stream, write=write, head=head, queue=queue):
                write(addr, block, stream)
                queue.offer(head)

            bench.memory.write = late
            bench.ask(queue, 0)
            await bench.check(queue, 0, expected, wqes.sge_bytes(sges), head)
            bench.memory.write = write
            bench.ask(queue, 1)
            assert (await bench.answer())["status"] == wqes.EMPTY
            assert queue.avail_event() == 1
        # A queue that is not enabled is empty, without any access.
        queue.enabled = False
        before = len(bench.memory.reads)
        bench.ask(queue, queue.avail, known=queue.avail + 3)
        assert (await bench.answer())["status"] == wqes.EMPTY
        assert len(bench.memory.reads) == before


@cocotb.test()
async def known_saves_reads(dut):
    """16 entries come with one read, and the index is not read while ``known`` covers them."""
    bench = SendBench(dut)
    await bench.start()
    queue, rng = bench.queue(1, 64), bench.rng
    heads = []
    for _ in range(16):
        data, expected = wqes.send_wqe(rng, [])
        heads.append((queue.chain(buffers(bench, data, [])), expected))
        queue.offer(heads[-1][0])
    for position, (head, expected) in enumerate(heads):
        bench.ask(queue, position, known=16)
        await bench.check(queue, position, expected, b"", head)
    assert [r for r in bench.memory.reads if r[0] == queue.driver + 2] == []
    entries = range(queue.driver + 4, queue.driver + 4 + 2 * queue.size)
    ring = [r for r in bench.memory.reads if r[0] in entries]
    assert ring == [(queue.driver + 4, 32)]


@cocotb.test()
async def lines_and_order(dut):
    """Requests of several queues run ahead; answers in order; no line is given out twice."""
    bench = SendBench(dut, seed=6, latency=60)
    await bench.start()
    rng = bench.rng
    queues = [bench.queue(pair, 32) for pair in (1, 2, 3)]
    wanted = []
    for n in range(LINES + 3):
        queue = queues[n % 3]
        payload = rng.randbytes(16 if n < 3 else rng.choice([0, 16, 400]))
        data, expected = wqes.send_wqe(rng, [], payload)
        head = queue.chain(buffers(bench, data, rng.sample(range(1, 60), n % 3), rng))
        wanted.append((queue, queue.offer(head), expected, payload, head))
    for queue, position, *_ in wanted:
        bench.ask(queue, position)
    done = bench.asker.done
    await bench.until(lambda: len(done) == LINES, 20000, "all lines used")
    await bench.cycles(3000)
    assert len(done) == LINES, "an answer without a free line"
    held = [item["line"] for item in done]
    assert sorted(held) == list(range(LINES))
    for queue, position, expected, payload, head in wanted:
        await bench.check(queue, position, expected, payload, head)


async def rate(bench, queues, count, positions) -> float:
    """Cycles a WQE of ``count`` from each of ``queues`` in turn, all known to be available."""
    began, done = bench.now, len(bench.rsp.items)
    for n in range(count * len(queues)):
        bench.ask(queues[n % len(queues)], positions + n // len(queues), known=positions + count)
    end = done + count * len(queues)
    while done < end:
        for item in bench.rsp.items[done:]:
            assert item["status"] == wqes.OK
            bench.release.queue.append(item["line"])
            done += 1
        await bench.cycles(1)
        assert bench.now - began < 100000
    return (bench.now - began) / (count * len(queues))


@cocotb.test()
async def throughput(dut):
    """WQEs a second with 500 ns and 1 us of read latency (125 and 250 cycles at 250 MHz)."""
    limits = {  # cycles a WQE of the fill included
        64: {"one SGE": 18, "three SGEs": 24, "64 bytes inline": 26, "chains": 480},
        512: {"one SGE": 8, "three SGEs": 9, "64 bytes inline": 10, "chains": 470},
    }[SendBench(dut).width]
    for latency in (125, 250):
        bench = SendBench(dut, seed=10, latency=latency)
        await bench.start(again=latency != 125)
        queues, rng = [bench.queue(pair, 1024) for pair in (1, 2, 3)], bench.rng
        positions = 0
        for used in (1, 3):
            for name, sges, inline, cuts in (
                ("one SGE", 1, None, []),
                ("three SGEs", 3, None, []),
                ("64 bytes inline", 0, 64, []),
                ("chains", 1, None, [75]),
            ):
                count = 10 if cuts else 192
                for queue in queues:
                    for _ in range(count):
                        payload = rng.randbytes(inline) if inline else None
                        data, _ = wqes.send_wqe(rng, wqes.random_sges(rng, sges), payload)
                        head = queue.chain(buffers(bench, data, cuts))
                        queue.offer(head)
                        queue.spare.append(head)
                        if cuts:
                            queue.spare.append((head + 1) % queue.size)
                cycles = await rate(bench, queues[:used], count, positions)
                positions += count
                dut._log.info(
                    "%d ns, %d queues, %s: %.1f cycles a WQE, %.2f M/s",
                    *(4 * latency, used, name, cycles, 250 / cycles),
                )
                assert cycles < limits[name] * latency / 125, name
        bench.ports.clear()
