"""ControlEngine in Verilator: any framing of request and response, suppression, errors."""

from __future__ import annotations

import struct

import cocotb
from cocotb.triggers import RisingEdge

from hdl.ports.host import STREAM_CONTROL
from hdl.ports.jobs import Doorbell, Interrupt, QueueError, QueueErrorCause
from sim.bench.pins import number
from tests.queues.drive import Bench, QueueRows, ReadPort, Sink, Source, WritePort
from tests.queues.host import OUTSIDE, Queue, pieces


class ControlBench(Bench):
    """The mailbox is two dictionaries of words; ``answer`` plays the firmware."""

    def __init__(self, dut, *, seed=1, stall=0.0, latency=10, event_idx=0, size=64, vector=0xFFFF):
        super().__init__(dut, seed=seed)
        self.doorbell = Source(self, "control__doorbell", Doorbell)
        self.reset = Source(self, "control__queue_reset", 16)
        self.interrupts = Sink(self, "control__interrupt", Interrupt, stall)
        self.errors = Sink(self, "control__error", QueueError, stall)
        self.reads = ReadPort(self, "control__read_client", latency, stall)
        self.writes = WritePort(self, "control__write_client", stall)
        self.rows = QueueRows(self, "control__queue_read")
        self.ports.append(self)
        self.request, self.response = {}, {}
        self.rules["event_idx"] = event_idx
        self.queue = self.queues[0] = Queue(self.memory, 0, size, vector)

    def cycle(self):
        dut = self.dut
        if number(dut.control__request__enable):
            self.request[number(dut.control__request__index)] = number(dut.control__request__row)
        if number(dut.control__response__enable):
            index = number(dut.control__response__index)
            dut.control__response__row.value = self.response.get(index, 0xDEADBEEF)

    async def start(self, **options):
        await super().start(**options)
        await self.cycles(2)

    def ring(self):
        self.doorbell.queue.append({"queue": 0})

    async def pending(self, cycles=30000):
        await self.until(lambda: number(self.dut.control__pending), cycles, "a request")
        assert number(self.dut.control__function) == self.function

    def requested(self, length: int) -> bytes:
        words = [self.request.get(k, 0) for k in range(64)]
        return struct.pack("<64I", *words)[:length]

    async def answer(self, data: bytes) -> None:
        padded = data.ljust(256, b"\xee")
        self.response = dict(enumerate(struct.unpack("<64I", padded[:256])))
        self.dut.control__response_length.value = len(data)
        await self.cycles(self.rng.randrange(1, 5))
        self.dut.control__done.value = 1
        await RisingEdge(self.dut.clk)
        self.dut.control__done.value = 0

    async def used(self, index: int):
        await self.until(lambda: self.queue.used_index() == index & 0xFFFF, 30000, "used index")

    def offer(self, request: bytes, room, cuts=(), indirect=None):
        readable = [(a, n, False) for a, n in pieces(self.memory, request, list(cuts), self.rng)]
        parts = [(self.memory.alloc(n + 3) + 1, n) for n in room]
        chain = readable + [(a, n, True) for a, n in parts]
        if indirect is not None:
            indirect = min(indirect, len(chain) - 1)
        head = self.queue.chain(chain, indirect_from=indirect, rng=self.rng)
        self.queue.offer(head)
        return head, parts


@cocotb.test()
async def framings(dut):
    """Any split of request and response; direct, indirect, mixed; response lengths."""
    for event_idx, stall in ((0, 0.0), (1, 0.3)):
        bench = ControlBench(dut, seed=1 + event_idx, stall=stall, event_idx=event_idx)
        await bench.start(again=bool(event_idx))
        rng = bench.rng
        cases = [(1, (1,)), (2, (1, 4)), (1, (162,)), (45, (1, 12)), (138, (1,) * 130)]
        cases += [(9, (64,) * 4), (256, (256,)), (137, (1, 300)), (45, (13, 0xFFFF))]
        cases += [(rng.randrange(1, 200), tuple(rng.choices(range(1, 40), k=5))) for _ in range(20)]
        for count, (length, room) in enumerate(cases):
            request = rng.randbytes(length)
            cuts = rng.sample(range(1, length), min(rng.randrange(4), length - 1))
            indirect = 0 if len(room) > 20 else rng.choice([None, 0, 1])
            if rng.random() < 0.2:
                cuts, indirect = range(1, length), 0
            if max(room) == 0xFFFF:
                bench.memory.free = 0x20000
            head, parts = bench.offer(request, room, cuts, indirect)
            bench.ring()
            await bench.pending()
            assert number(dut.control__request_length) == length
            assert number(dut.control__writable_length) == sum(room)
            assert bench.requested(length) == request
            answer = rng.randbytes(rng.choice([1, min(sum(room), 256), rng.randrange(1, 257)]))
            written = answer[: sum(room)]
            bench.memory.log.clear()
            await bench.answer(answer)
            await bench.used(count + 1)
            assert bench.queue.used(count) == (head, len(written))
            got = b"".join(bench.memory.get(a, n) for a, n in parts)
            assert got[: len(written)] == written, (len(answer), room)
            assert {s for *_, s in bench.memory.log} == {STREAM_CONTROL}
            assert sum(len(d) for _, d, _ in bench.memory.log[:-2]) == len(written)
            bench.queue.spare = list(range(64))
        assert not bench.errors.items
        bench.ports.clear()


@cocotb.test()
async def one_at_a_time(dut):
    """Several requests with one doorbell; then it sleeps until the next, and misses none."""
    for event_idx in (0, 1):
        bench = ControlBench(dut, seed=3, event_idx=event_idx, vector=2)
        await bench.start(again=bool(event_idx))
        bench.queue.set_used_event(0)
        for k in range(3):
            bench.offer(bytes([k + 1]), (8,))
        bench.ring()
        for k in range(3):
            await bench.pending()
            assert bench.requested(1) == bytes([k + 1])
            bench.ring()  # one that comes early changes nothing
            await bench.answer(b"\0")
            await bench.used(k + 1)
        await bench.until(lambda: number(dut.control__idle), 3000, "idle")
        await bench.cycles(300)
        # With EVENT_IDX only the step over used_event = 0 brings an interrupt.
        want = [{"function": bench.function, "vector": 2}] * (1 if event_idx else 3)
        assert bench.interrupts.items == want
        if event_idx:
            assert bench.queue.avail_event() == 3
        reads = len(bench.memory.reads)
        await bench.cycles(500)
        assert len(bench.memory.reads) == reads
        bench.queue.set_flags(1)
        bench.queue.set_used_event(17)
        bench.offer(b"z", (1,))
        bench.ring()
        await bench.pending()
        await bench.answer(b"\1")
        await bench.used(4)
        await bench.cycles(100)
        assert bench.interrupts.items == want
        bench.ports.clear()


@cocotb.test()
async def odd_requests(dut):
    """Without a writable byte: returned unseen. Without a readable one, or too long: shown."""
    bench = ControlBench(dut, seed=4)
    await bench.start()
    head, _ = bench.offer(b"abc", ())
    bench.ring()
    await bench.used(1)
    assert bench.queue.used(0) == (head, 0)
    assert number(dut.control__requests) == 0
    at = bench.memory.alloc(4)
    head = bench.queue.chain([(at, 4, True)])
    bench.queue.offer(head)
    bench.ring()
    await bench.pending()
    assert number(dut.control__request_length) == 0
    await bench.answer(b"\1")
    await bench.used(2)
    for count, length in enumerate((257, 4096, 70000)):
        request = bench.rng.randbytes(length)
        bench.offer(request, (1,))
        bench.ring()
        await bench.pending()
        assert number(dut.control__request_length) == min(length, 0xFFFF)
        assert bench.requested(256) == request[:256]
        await bench.answer(b"\1")
        await bench.used(3 + count)
    # Only what is kept is read.
    assert sum(n for a, n in bench.memory.reads if n > 64) <= 3 * 256
    assert not bench.errors.items


@cocotb.test()
async def broken_rings(dut):
    """The queue stops with its cause; a reset of the queue starts it again at 0."""
    C = QueueErrorCause
    bench = ControlBench(dut, seed=5, latency=4)
    await bench.start()
    buf = bench.memory.alloc(64)

    def chain(q, *entries):
        for k, entry in enumerate(entries):
            q.set_desc(q.desc, k, *entry)
        q.offer(0)

    def unreadable(q, what):
        head, _ = bench.offer(b"hello", (3,))
        bench.memory.unreadable.add(q.read_for(head)[what])

    giga = 1 << 30
    breaks = [
        (C.AVAIL_INDEX, lambda q: q.set_index(17)),
        (C.DESC_INDEX, lambda q: q.offer(16)),
        (C.DESC_LOOP, lambda q: chain(q, (buf, 1, 1, 1), (buf, 1, 1, 0))),
        (C.DESC_LENGTH, lambda q: chain(q, (buf, 0, 1, 1), (buf, 1, 2, 0))),
        (C.DESC_LENGTH, lambda q: chain(q, *((buf, giga, 1, k + 1) for k in range(4)))),
        (C.DESC_LENGTH, lambda q: chain(q, *((buf, giga, 3, k + 1) for k in range(4)))),
        (C.DIRECTION, lambda q: chain(q, (buf, 4, 3, 1), (buf, 4, 0, 0))),
        (C.INDIRECT, lambda q: chain(q, (buf, 17, 4, 0))),
        (C.HOST_READ, lambda q: chain(q, (OUTSIDE, 4, 1, 1), (buf, 4, 2, 0))),
        (C.HOST_READ, lambda q: setattr(q, "driver", OUTSIDE)),
        (C.HOST_READ, lambda q: unreadable(q, "index")),
        (C.HOST_READ, lambda q: unreadable(q, "entries")),
        (C.HOST_READ, lambda q: unreadable(q, "descriptor")),
        (C.HOST_READ, lambda q: unreadable(q, "buffer")),
    ]
    for n, (cause, break_) in enumerate(breaks):
        bench.queue = bench.queues[0] = Queue(bench.memory, 0, 16)
        break_(bench.queue)
        bench.ring()
        await bench.until(lambda: bench.errors.items, 5000, f"error {n}")
        assert bench.errors.items.pop() == {"queue": 0, "cause": cause.value}, n
        bench.ring()
        await bench.cycles(100)
        assert not bench.errors.items and not number(dut.control__pending)
        bench.reset.queue += [7, 0]
        await bench.until(lambda n=n: bench.reset.taken == 2 * n + 2, 500, "reset")
    bench.queue = bench.queues[0] = Queue(bench.memory, 0, 16)
    bench.offer(b"hello", (3,))
    bench.ring()
    await bench.pending()
    await bench.answer(b"yes")
    await bench.used(1)


@cocotb.test()
async def reset_in_the_middle(dut):
    for moment in range(4, 120, 10):
        bench = ControlBench(dut, seed=moment)
        await bench.start(again=moment != 4)
        bench.offer(b"x" * 100, (50, 50), (30,))
        bench.ring()
        if moment > 60:
            await bench.pending()
            await bench.answer(b"y" * 70)
        await bench.cycles(moment % 60)
        bench.ports.clear()
        bench = ControlBench(dut, seed=moment)
        await bench.start(again=True)
        assert not number(dut.control__pending)
        _, parts = bench.offer(b"hello", (1, 2))
        bench.ring()
        await bench.pending()
        assert bench.requested(5) == b"hello"
        await bench.answer(b"yes")
        await bench.used(1)
        assert b"".join(bench.memory.get(a, n) for a, n in parts) == b"yes"
        bench.ports.clear()
