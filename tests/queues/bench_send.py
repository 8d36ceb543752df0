"""SendFetch in Verilator: splits, chains, ring wrap, EVENT_IDX, errors, garbage."""

from __future__ import annotations

import struct

import cocotb
from cocotb.triggers import RisingEdge

from hdl.ports.jobs import FetchRequest, QueueError, QueueErrorCause, SendFetched
from tests.queues import wqes
from tests.queues.drive import Bench, QueueRows, ReadPort, Sink, Source, WritePort, number
from tests.queues.host import BASE, Queue, pieces
from tests.queues.top import small_config

CONFIG = small_config(64)
LINES = CONFIG.send_lines


class SendBench(Bench):
    def __init__(self, dut, *, seed=1, stall=0.0, latency=10, event_idx=0):
        super().__init__(dut, seed=seed)
        self.req = Source(self, "send__req", FetchRequest, gap=stall)
        self.rsp = Sink(self, "send__rsp", SendFetched, stall=stall)
        self.release = Source(self, "send__release", 8)
        self.errors = Sink(self, "send__error", QueueError, stall=stall)
        self.reset = Source(self, "send__queue_reset", 16)
        self.reads = ReadPort(self, "send__read_client", latency, stall)
        self.writes = WritePort(self, "send__write_client", stall)
        self.rows = QueueRows(self, "send__queue_read")
        self.event_idx = event_idx
        self.known: dict[int, int] = {}

    async def start(self, **options):
        await super().start(**options)
        self.dut.send__event_idx.value = self.event_idx
        self.dut.send__indirect.value = 1
        await self.cycles(2)

    def queue(self, pair: int, size: int) -> Queue:
        queue = Queue(self.memory, CONFIG.sq_queue(pair), size)
        self.queues[queue.number] = queue
        return queue

    def ask(self, queue: Queue, position: int, known: int | None = None) -> None:
        self.req.queue.append(
            {
                "function": self.function,
                "qp": queue.number & 0xF,
                "queue": queue.number,
                "position": position & 0xFFFF,
                "known": (self.known.get(queue.number, 0) if known is None else known) & 0xFFFF,
            }
        )

    async def answer(self, cycles: int = 20000) -> dict:
        count = getattr(self, "taken", 0)
        await self.until(lambda: len(self.rsp.items) > count, cycles, "an answer")
        self.taken = count + 1
        return self.rsp.items[count]

    async def line(self, line: int, count: int) -> bytes:
        """``count`` bytes of a line, through the read port."""
        out, dut = b"", self.dut
        for slot in range(-(-count // 16)):
            dut.send__slot.value = line | (slot << 8)
            dut.send__slot_enable.value = 1
            await RisingEdge(dut.clk)
            dut.send__slot_enable.value = 0
            await RisingEdge(dut.clk)
            await RisingEdge(dut.clk)
            out += number(dut.send__slot_data).to_bytes(16, "little")
        return out[:count]

    async def check(self, queue, position, expected, payload: bytes, head: int) -> None:
        got = await self.answer()
        assert got["status"] == wqes.OK, got
        assert got["error"] == 0
        assert (got["qp"], got["position"], got["head"]) == (queue.number & 0xF, position, head)
        assert got["wqe"] == expected, (got["wqe"], expected)
        assert await self.line(got["line"], len(payload)) == payload
        self.known[queue.number] = got["available"]
        self.release.queue.append(got["line"])


def buffers(bench, data, cuts, rng=None):
    return [(a, n, False) for a, n in pieces(bench.memory, data, cuts, rng)]


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
    """Sizes 2 to 4096, several times around small rings; position beyond 65535."""
    bench = SendBench(dut, seed=4, latency=4)
    await bench.start()
    rng = bench.rng
    for size, start, count in [
        (2, 0xFFFD, 9), (4, 0xFFF9, 14), (16, 0xFFF0, 40), (64, 0xFFF0, 70), (4096, 0xFFE0, 70)
    ]:
        bench.memory.free = 0
        queue = bench.queue(3, size)
        queue.avail = start
        bench.known[queue.number] = start
        bench.reset.queue.append(queue.number)
        await bench.until(lambda: not bench.reset.offered and not bench.reset.queue, 100, "reset")
        await bench.cycles(2)
        position = start
        while count > 0:
            batch = min(rng.randrange(1, min(size, 20) + 1), count)
            wanted = []
            for _ in range(batch):
                sges = wqes.random_sges(rng, 1)
                data, expected = wqes.send_wqe(rng, sges)
                head = queue.chain(buffers(bench, data, []))
                queue.offer(head)
                wanted.append((expected, sges, head))
            for expected, sges, head in wanted:
                bench.ask(queue, position)
                await bench.check(queue, position & 0xFFFF, expected, wqes.sge_bytes(sges), head)
                queue.spare.append(head)
                position += 1
            count -= batch
        bench.ask(queue, position)
        assert (await bench.answer())["status"] == wqes.EMPTY


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
    ring = [r for r in bench.memory.reads if queue.driver <= r[0] < queue.device]
    # Each of the two lanes reads once, from its first position on.
    assert ring == [(queue.driver + 4, 32), (queue.driver + 6, 30)]


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
        payload = rng.randbytes(rng.choice([0, 16, 400]))
        data, expected = wqes.send_wqe(rng, [], payload)
        head = queue.chain(buffers(bench, data, rng.sample(range(1, 60), n % 3), rng))
        wanted.append((queue, queue.offer(head), expected, payload, head))
    for queue, position, *_ in wanted:
        bench.ask(queue, position)
    await bench.until(lambda: len(bench.rsp.items) == LINES, 20000, "all lines used")
    await bench.cycles(3000)
    assert len(bench.rsp.items) == LINES, "an answer without a free line"
    held = [item["line"] for item in bench.rsp.items]
    assert sorted(held) == list(range(LINES))
    for queue, position, expected, payload, head in wanted:
        await bench.check(queue, position, expected, payload, head)
    # Two lanes: the second fetch must have begun before the first was answered.
    assert bench.rsp.times[1] - bench.rsp.times[0] < 120


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
    outside = BASE - 4096

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
        (C.HOST_READ, lambda q: one(q, outside, 91)),
        (C.HOST_READ, lambda q: one(q, outside, 32, 4)),
        (C.HOST_READ, lambda q: setattr(q, "driver", outside)),
        (C.HOST_READ, lambda q: (q.offer(0), setattr(q, "desc", outside))),
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
    dut.send__indirect.value = 0
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
    rng = bench.rng
    healthy = bench.queue(2, 256)
    blob = bench.memory.alloc(4096)
    bench.memory.put(blob, rng.randbytes(4096))
    free = bench.memory.free
    statuses = set()
    for _ in range(60):
        bench.memory.free = free
        size = 1 << rng.randrange(1, 6)
        queue = bench.queue(1, size)
        table = bench.memory.alloc(64 * 16, 16)
        for place, count in ((queue.desc, size), (table, 64)):
            for k in range(count):
                addr = rng.choice([blob + rng.randrange(4096), table, 0, (1 << 64) - 8, queue.desc])
                length = rng.choice([0, 1, 3, 16, 75, 91, 160, 16 * size, 5000, rng.getrandbits(32)])
                flags = rng.choice([0, 0, 1, 1, 1, 2, 3, 4, 5, rng.getrandbits(16)])
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
