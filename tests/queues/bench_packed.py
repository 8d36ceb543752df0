"""The engines on packed rings: wrap counters, ids, lists, used descriptors, event suppression."""

from __future__ import annotations

import struct

import cocotb

from hdl.ports.jobs import QueueErrorCause
from sim.bench.pins import number
from tests.queues import wqes
from tests.queues.bench_control import ControlBench
from tests.queues.bench_recv import RecvBench
from tests.queues.completion_bench import CONFIG, CQE, NEXT, CompletionBench, cqe_bytes
from tests.queues.host import OUTSIDE, pieces
from tests.queues.packed_host import DESC, DISABLE, ENABLE, PackedQueue
from tests.queues.send_bench import SendBench
from tests.queues.top import PackedTop
from tests.slow import QUICK


class PackedSend(SendBench):
    TOP = PackedTop

    async def start(self, **options):
        await super().start(**options)
        self.rules["packed"] = 1

    def queue(self, qp: int, size: int) -> PackedQueue:
        queue = PackedQueue(self.memory, CONFIG.sq_queue(qp), size)
        self.queues[queue.number] = queue
        return queue

    def post(self, queue: PackedQueue, sges: int, cuts=()):
        """A WQE of ``sges`` SGEs, in an indirect table if it is cut; position, what it gives."""
        rng = self.rng
        entries = wqes.random_sges(rng, sges)
        data, expected = wqes.send_wqe(rng, entries)
        parts = [(a, n, False) for a, n in pieces(self.memory, data, list(cuts), rng)]
        name = queue.chain(parts, indirect_from=0 if len(parts) > 1 else None)
        return queue.offer(name), expected, wqes.sge_bytes(entries), name


@cocotb.test()
async def send_queues_wrap(dut):
    """Rings of several sizes many times around, as full as they get; ids of any value."""
    for event_idx, stall in ((0, 0.0), (1, 0.3)):
        bench = PackedSend(dut, seed=1 + event_idx, stall=stall, event_idx=event_idx)
        await bench.start(again=bool(event_idx))
        rng, free = bench.rng, None
        for qp, size in enumerate((1, 2, 16, 64)):
            queue = bench.queue(qp, size)
            free = bench.memory.free
            while queue.avail < 5 * size + 11:
                bench.memory.free = free
                due = []
                for _ in range(rng.randrange(1, min(size, 20) + 1)):
                    cuts = rng.choice([(), (), (), (1,), (30, 60)])
                    due.append(bench.post(queue, rng.randrange(1, 4), cuts))
                for position, *_ in due:
                    bench.ask(queue, position)
                for position, expected, payload, name in due:
                    await bench.check(queue, position & 0xFFFF, expected, payload, name)
                    queue.give_back(name)
        assert not bench.errors.items
        bench.ports.clear()


@cocotb.test()
async def send_position_wraps(dut):
    """A queue whose positions count on over 65536."""
    bench = PackedSend(dut, seed=8)
    await bench.start()
    queue = bench.queue(1, 8)
    queue.avail = queue.returned = 0x10000 - 4
    bench.known[queue.number] = queue.avail
    for _ in range(20):
        position, expected, payload, name = bench.post(queue, 1)
        bench.ask(queue, position)
        await bench.check(queue, position & 0xFFFF, expected, payload, name)
        queue.give_back(name)


@cocotb.test()
async def send_reach(dut):
    """How far a ring reaches is read from the flags of a batch of descriptors."""
    bench = PackedSend(dut, seed=3)
    await bench.start()
    bench.ports.remove(bench.asker)  # the answers are looked at here
    batch = max(4, bench.width // 32)
    queue = bench.queue(1, 64)
    for count in (1, 2, batch - 1, batch, batch + 3):
        start = queue.avail
        names = [bench.post(queue, 1)[3] for _ in range(count)]
        bench.req.queue.append(
            {
                "function": bench.function,
                "qp": 1,
                "queue": queue.number,
                "position": start,
                "known": start,
            }
        )
        seen = len(bench.rsp.items)
        await bench.until(lambda seen=seen: len(bench.rsp.items) > seen, 2000, "an answer")
        got = bench.rsp.items[seen]
        assert (got["status"], got["poll"]) == (wqes.EMPTY, 1)
        assert got["available"] - start == min(count, batch - start % batch)
        for name in names:
            queue.give_back(name)


@cocotb.test()
async def send_notifications(dut):
    """With EVENT_IDX an empty queue asks for a notification of its next descriptor, and looks once
    more; without, nothing is written."""
    for event_idx in (0, 1):
        bench = PackedSend(dut, seed=4, event_idx=event_idx, latency=20)
        await bench.start(again=bool(event_idx))
        queue = bench.queue(1, 4)
        for turn in range(11):
            bench.ask(queue, turn)
            (got,) = [await bench.answer()]
            assert (got["status"], got["available"]) == (wqes.EMPTY, turn)
            assert queue.asked() == ((queue.off_wrap(turn), DESC) if event_idx else (0, ENABLE))
            position, expected, payload, name = bench.post(queue, 1)
            bench.ask(queue, position)
            await bench.check(queue, position, expected, payload, name)
            queue.give_back(name)
        assert all(len(data) == 4 for _, data, _ in bench.memory.log)
        if event_idx:
            # What comes between the two looks is found by the second.
            reads = len(bench.memory.reads)
            bench.ask(queue, queue.avail)
            memory = bench.memory
            await bench.until(lambda m=memory, r=reads: len(m.reads) > r, 1000, "the first look")
            await bench.cycles(3)
            position, expected, payload, name = bench.post(queue, 1)
            await bench.check(queue, position, expected, payload, name)
        bench.ports.clear()


@cocotb.test()
async def send_broken_rings(dut):
    """A list of more than one descriptor, a bad table, memory that does not answer."""
    C = QueueErrorCause
    bench = PackedSend(dut, seed=5)
    await bench.start()
    buf = bench.memory.alloc(256)
    breaks = [
        (C.DESC_LOOP, lambda q: q.chain([(buf, 40, False), (buf + 40, 51, False)])),
        (C.DESC_LENGTH, lambda q: q.chain([(buf, 0, False)])),
        (C.DIRECTION, lambda q: q.chain([(buf, 91, True)])),
        (C.HOST_READ, lambda q: q.chain([(OUTSIDE, 91, False)])),
        (C.INDIRECT, lambda q: _indirect(q, buf, 17)),
        (C.HOST_READ, lambda q: _indirect(q, OUTSIDE, 32)),
    ]
    for n, (cause, break_) in enumerate(breaks):
        queue = bench.queue(1, 8)
        queue.offer(break_(queue))
        bench.ask(queue, 0, known=0)
        got = await bench.answer()
        assert got["status"] == wqes.QUEUE_ERROR, n
        await bench.until(lambda: bench.errors.items, 500, f"error {n}")
        assert bench.errors.items.pop() == {"queue": queue.number, "cause": cause.value}, n
        bench.reset.queue.append(queue.number)
        await bench.until(lambda n=n: bench.reset.taken == n + 1, 500, "reset")


def _indirect(queue: PackedQueue, table: int, length: int) -> int:
    name = queue.chain([(table, length, False)])
    first, flags = queue.hidden[name]
    queue.hidden[name] = (first, flags | 4)
    return name


class PackedRecv(RecvBench):
    TOP = PackedTop

    async def start(self, **options):
        await super().start(**options)
        self.rules["packed"] = 1

    def queue(self, number_: int, size: int) -> PackedQueue:
        queue = PackedQueue(self.memory, number_, size)
        self.queues[queue.number] = queue
        return queue

    def post(self, queue: PackedQueue, sges: int, cuts=()):
        rng = self.rng
        entries = wqes.random_sges(rng, sges)
        data, expected = wqes.recv_wqe(rng, entries)
        parts = [(a, n, False) for a, n in pieces(self.memory, data, list(cuts), rng)]
        name = queue.chain(parts, indirect_from=0 if len(parts) > 1 else None)
        return queue.offer(name), expected, wqes.sge_bytes(entries), name

    async def check(self, got, expected, payload) -> None:
        assert got["status"] == wqes.OK, got
        assert got["wqe"] == expected
        assert await self.line(got["line"], len(payload)) == payload


@cocotb.test(skip=QUICK)
async def receive_queues_wrap(dut):
    """WQEs in order, single and indirect; held ones again, also when they are held no more."""
    for event_idx, stall in ((0, 0.0), (1, 0.3)):
        bench = PackedRecv(dut, seed=2 + event_idx, stall=stall, event_idx=event_idx)
        await bench.start(again=bool(event_idx))
        rng = bench.rng
        queues = [bench.queue(bench.CONFIG.rq_queue(qp), 2 << 2 * qp) for qp in (1, 2, 3)]
        free = bench.memory.free
        for turn in range(60):
            bench.memory.free = free
            queue = rng.choice(queues)
            due = [
                bench.post(queue, rng.randrange(1, 4), rng.choice([(), (), (1,), (5, 20)]))
                for _ in range(rng.randrange(1, min(queue.size, 12) + 1))
            ]
            if turn % 3 == 0:
                bench.doorbell.queue.append({"qp": bench.pair(queue), "flags": 1})
            for position, expected, payload, name in due:
                packets = rng.randrange(1, 4)
                for packet in range(packets):
                    got = await bench.ask(queue, position, last=int(packet == packets - 1))
                    await bench.check(got, expected, payload)
                got = await bench.ask(queue, position, again=True, last=1)
                await bench.check(got, expected, payload)
                queue.give_back(name)
        assert not bench.errors.items
        bench.ports.clear()


@cocotb.test()
async def receive_queue_runs_empty(dut):
    """EMPTY asks for a notification with EVENT_IDX; a drop goes on where it says."""
    bench = PackedRecv(dut, seed=6, event_idx=1)
    await bench.start()
    queue = bench.queue(bench.CONFIG.rq_queue(1), 4)
    for turn in range(9):
        got = await bench.ask(queue, turn, last=1)
        assert got["status"] == wqes.EMPTY and queue.asked() == (queue.off_wrap(turn), DESC)
        _, expected, payload, name = bench.post(queue, 1)
        await bench.check(await bench.ask(queue, turn, last=1), expected, payload)
        queue.give_back(name)
    await bench.drop(queue, 9)
    _, expected, payload, _ = bench.post(queue, 2)
    await bench.check(await bench.ask(queue, 9, last=1), expected, payload)


class PackedCompletion(CompletionBench):
    TOP = PackedTop

    async def start(self, **options):
        await super().start(**options)
        self.rules["packed"] = 1

    def queue(self, number_: int, size: int, vector: int = 0xFFFF) -> PackedQueue:
        queue = PackedQueue(self.memory, number_, size, vector)
        self.queues[queue.number] = queue
        queue.heads = []
        return queue

    def fill(self, queue, lengths=(CQE,), indirect=None):
        return super().fill(queue, lengths, 0 if len(lengths) > 1 else indirect)


class _InPlace:
    """Which used descriptors must come, and that what they tell of is in memory before them."""

    def __init__(self, bench: PackedCompletion):
        self.bench, self.due, self.seen = bench, [], 0

    def expect(self, completion, cq, parts, wqe) -> None:
        if wqe is not None:
            name = wqe.offer(wqe.chain([(self.bench.memory.alloc(8), 8, False)]))
            completion["head"] = wqe.offered[name & 0xFFFF]
            self.due.append((wqe, completion["head"], 0, None))
        if cq is not None:
            self.due.append((cq, cq.heads[-1][0], CQE, (parts, cqe_bytes(completion))))

    def check(self) -> None:
        writes = [(addr, data) for _, what, addr, data in self.bench.events if what == "write"]
        log: dict[int, int] = {}  # address of a byte -> when it was last written
        for at, (addr, data) in enumerate(writes):
            for byte in range(len(data)):
                log[addr + byte] = at
        latest = -1
        for queue, name, length, cqe in self.due:
            place = queue.place(queue.returned)
            assert queue.take() == (name, length)
            when = log[place + 14]
            assert {log[place + byte] for byte in range(8, 16)} == {when}
            if cqe is not None:
                parts, data = cqe
                assert self.bench.joined(parts)[:CQE] == data
                assert all(log[addr] < when for addr, size in parts if size)
            # A WQE's buffer is back before its CQE is told of.
            if cqe is not None:
                assert latest <= when
            latest = when
        self.due.clear()


@cocotb.test()
async def completions_in_place(dut):
    """Used descriptors of several queues lie where their buffers did, whatever was around them."""
    for event_idx, stall in ((0, 0.0), (1, 0.3)):
        bench = PackedCompletion(dut, seed=1 + event_idx, stall=stall, latency=30)
        await bench.start(again=bool(event_idx))
        rng = bench.rng
        cqs = [bench.queue(1 + n, size) for n, size in enumerate((2, 16, 64, 4096))]
        rings = [bench.queue(CONFIG.sq_queue(1), 4), bench.queue(CONFIG.rq_queue(2), 256)]
        order, free, counts = _InPlace(bench), bench.memory.free, [0] * 4
        for _ in range(20):
            bench.memory.free = free
            bench.events.clear()
            for _ in range(rng.randrange(1, 30)):
                n, k = rng.randrange(4), rng.choice([None, 0, 1])
                cq, ring = cqs[n], None if k is None else rings[k]
                if ring is not None and ring.avail - ring.returned == ring.size:
                    ring = None
                if cq.avail - cq.returned == cq.size:
                    cq = None
                if cq is None and ring is None:
                    continue
                split = rng.choice([(CQE,), (64,), (40,), (5, 40), (20, 10, 30)])
                parts = bench.fill(cq, split) if cq is not None else None
                c = bench.completion(cq=n, emit=int(cq is not None), wqe=ring)
                order.expect(c, cq, parts, ring)
                counts[n] += cq is not None
            await bench.settle()
            order.check()
        for n, queue in enumerate(cqs):
            assert await bench.program("used", queue.number) == counts[n]
        assert not bench.errors.items and not bench.cq_errors.items
        bench.ports.clear()


@cocotb.test()
async def completion_errors(dut):
    """A CQ without a buffer, and one with a list of two descriptors."""
    bench = PackedCompletion(dut, seed=4)
    await bench.start()
    cq = bench.queue(1, 8)
    bench.completion()
    await bench.settle()
    assert bench.cq_errors.items == [{"cq": 0, "qp": bench.cq_errors.items[0]["qp"]}]
    assert not bench.errors.items
    cq = bench.queue(2, 8)
    at = bench.memory.alloc(64)
    cq.offer(cq.chain([(at, 20, True), (at + 20, 30, True)]))
    bench.completion(cq=1)
    await bench.settle()
    cause = QueueErrorCause.DESC_LOOP.value
    assert bench.errors.items == [{"queue": 2, "cause": cause}]


@cocotb.test()
async def completion_interrupts(dut):
    """A returned WQE interrupts unless the driver's structure says otherwise; a CQ if armed."""
    bench = PackedCompletion(dut, seed=5)
    await bench.start()
    ring, cq = bench.queue(CONFIG.sq_queue(1), 4, vector=3), bench.queue(1, 16, vector=2)
    order = _InPlace(bench)
    for turn in range(14):
        for how, event, wanted in (
            (ENABLE, 0, 1),
            (DISABLE, 0, 0),
            (DESC, 0, 1),
            (DESC, 1, 0),
            (DESC, -1, 0),
            (DESC, ring.size, 0),
        ):
            ring.suppress(how, max(ring.returned + event, 0))
            if event == -1 and not ring.returned:
                continue
            before = len(bench.interrupts.items)
            order.expect(bench.completion(emit=0, wqe=ring), None, None, ring)
            await bench.settle()
            order.check()
            got = bench.interrupts.items[before:]
            assert got == [{"function": bench.function, "vector": 3}] * wanted, (turn, how, event)
    cq.suppress(DISABLE)
    await bench.arm_cq(0, NEXT)
    before = len(bench.interrupts.items)
    order.expect(bench.completion(), cq, bench.fill(cq), None)
    await bench.settle()
    order.check()
    assert bench.interrupts.items[before:] == [{"function": bench.function, "vector": 2}]


class PackedControl(ControlBench):
    TOP = PackedTop

    def __init__(self, dut, *, size=64, vector=0xFFFF, **options):
        super().__init__(dut, size=size, vector=vector, **options)
        self.queue = self.queues[0] = PackedQueue(self.memory, 0, size, vector)

    async def start(self, **options):
        await super().start(**options)
        self.rules["packed"] = 1

    async def taken(self) -> tuple[int, int]:
        """The next used descriptor."""
        queue = self.queue
        await self.until(lambda: queue.is_used(queue.returned), 30000, "a used descriptor")
        found = queue.take()
        assert found is not None
        return found


@cocotb.test()
async def control_lists(dut):
    """Requests in lists of any length, around the ring, and in indirect tables."""
    for event_idx, stall in ((0, 0.0), (1, 0.3)):
        bench = PackedControl(dut, seed=1 + event_idx, stall=stall, event_idx=event_idx, size=16)
        await bench.start(again=bool(event_idx))
        rng, free = bench.rng, bench.memory.free
        for _ in range(50):
            bench.memory.free = free
            request = rng.randbytes(rng.randrange(1, 200))
            room = rng.choices(range(1, 40), k=rng.randrange(1, 6))
            cuts = rng.sample(range(1, len(request)), min(rng.randrange(4), len(request) - 1))
            indirect = rng.choice([None, None, 0])
            head, parts = bench.offer(request, room, cuts, indirect)
            bench.ring()
            await bench.pending()
            assert bench.requested(len(request)) == request
            answer = rng.randbytes(rng.randrange(1, 257))
            written = answer[: sum(room)]
            await bench.answer(answer)
            assert await bench.taken() == (head, len(written))
            got = b"".join(bench.memory.get(a, n) for a, n in parts)
            assert got[: len(written)] == written
        assert not bench.errors.items
        bench.ports.clear()


@cocotb.test()
async def control_events(dut):
    """Notifications are asked for, and interrupts are sent when one of a list's descriptors is the
    one that the driver has named."""
    bench = PackedControl(dut, seed=3, event_idx=1, vector=2, size=8)
    await bench.start()
    queue = bench.queue
    for turn in range(12):
        start = queue.avail
        for named, wanted in ((0, 1), (2, 1), (3, 0), (-1, 0)):
            start = queue.avail
            if named < 0 and not start:
                continue
            queue.suppress(DESC, start + named)
            before = len(bench.interrupts.items)
            head, _ = bench.offer(b"abc", (5, 6))
            bench.ring()
            await bench.pending()
            await bench.answer(b"yes")
            assert await bench.taken() == (head, 3)
            await bench.until(lambda: number(dut.control__idle), 3000, "idle")
            assert len(bench.interrupts.items) - before == wanted, (turn, named)
            assert queue.asked() == (queue.off_wrap(queue.avail), DESC)
    assert not bench.errors.items


@cocotb.test()
async def control_broken_rings(dut):
    """A table behind other descriptors, a loop around the ring; a reset begins anew at 0."""
    C = QueueErrorCause
    bench = PackedControl(dut, seed=5, latency=4, size=8)
    await bench.start()
    at = bench.memory.alloc(64)

    def mixed(queue):
        name = queue.chain([(at, 4, False), (at, 32, False)])
        place = queue.place(1) + 14
        (flags,) = struct.unpack("<H", bench.memory.get(place, 2))
        bench.memory.put(place, struct.pack("<H", flags | 4))
        queue.offer(name)

    def loop(queue):
        name = queue.chain([(at, 4, False)] * 8)
        place = queue.place(7) + 14
        (flags,) = struct.unpack("<H", bench.memory.get(place, 2))
        bench.memory.put(place, struct.pack("<H", flags | 1))
        queue.offer(name)

    for n, (cause, break_) in enumerate(((C.INDIRECT, mixed), (C.DESC_LOOP, loop))):
        bench.queue = bench.queues[0] = PackedQueue(bench.memory, 0, 8)
        break_(bench.queue)
        bench.ring()
        await bench.until(lambda: bench.errors.items, 5000, f"error {n}")
        assert bench.errors.items.pop() == {"queue": 0, "cause": cause.value}, n
        bench.reset.queue.append(0)
        await bench.until(lambda n=n: bench.reset.taken == n + 1, 500, "reset")
    bench.queue = bench.queues[0] = PackedQueue(bench.memory, 0, 8)
    head, _ = bench.offer(b"hello", (3,))
    bench.ring()
    await bench.pending()
    await bench.answer(b"yes")
    assert await bench.taken() == (head, 3)
