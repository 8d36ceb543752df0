"""CompletionEngine in Verilator: order of writes, splits, interrupts, overflow, broken rings."""

from __future__ import annotations

import struct

import cocotb
from cocotb.triggers import RisingEdge

from hdl.ports.jobs import Completion, Interrupt, QueueError, QueueErrorCause
from hdl.ports.rows import CqRow
from hdl.queues.completion import ArmCq, CqError
from tests.queues.drive import (
    Bench,
    QueueRows,
    ReadPort,
    Sink,
    Source,
    WritePort,
    number,
    pack,
    unpack,
)
from tests.queues.host import BASE, Queue
from tests.queues.top import small_config

CONFIG = small_config(64)
CQE = 38
SOLICITED, NEXT = 1, 2


def cqe_bytes(c: dict) -> bytes:
    data = struct.pack("<QBBII", c["wr_id"], c["status"], c["opcode"], c["vendor_error"], c["byte_len"])
    data += struct.pack("<IIII", c["imm"], c["qp_num"], c["src_qp"], c["flags"])
    return data + struct.pack("<HBB", 0, 0, 1)


class CompletionBench(Bench):
    def __init__(self, dut, *, seed=1, stall=0.0, latency=10, event_idx=0):
        super().__init__(dut, seed=seed)
        self.i = Source(self, "completion__i", Completion, gap=stall)
        self.arm = Source(self, "completion__arm", ArmCq)
        self.reset = Source(self, "completion__queue_reset", 16)
        self.interrupts = Sink(self, "completion__interrupt", Interrupt, stall)
        self.cq_errors = Sink(self, "completion__cq_error", CqError, stall)
        self.errors = Sink(self, "completion__error", QueueError, stall)
        self.reads = ReadPort(self, "completion__read_client", latency, stall)
        self.writes = WritePort(self, "completion__write_client", stall)
        self.rows = QueueRows(self, "completion__queue_read")
        self.event_idx = event_idx

    async def start(self, **options):
        await super().start(**options)
        self.dut.completion__event_idx.value = self.event_idx
        self.dut.completion__indirect.value = 1
        # Rows and indices are cleared one a cycle.
        await self.cycles(CONFIG.queues + 4)

    def queue(self, number_: int, size: int, vector: int = 0xFFFF) -> Queue:
        queue = Queue(self.memory, number_, size, vector)
        self.queues[queue.number] = queue
        return queue

    def fill(self, queue: Queue, lengths=(CQE,), indirect=None) -> list[tuple[int, int]]:
        """One buffer in parts for a CQE; returns the parts."""
        parts = [(self.memory.alloc(n + 1) + 1, n) for n in lengths]
        chain = [(a, n, True) for a, n in parts]
        head = queue.chain(chain, indirect_from=indirect, rng=self.rng)
        queue.offer(head)
        queue.heads = [*getattr(queue, "heads", []), (head, parts)]
        return parts

    def completion(self, *, cq=0, emit=1, wqe=None, **fields) -> dict:
        rng = self.rng
        c = {
            "emit": emit, "cq": cq, "wr_id": rng.getrandbits(64), "status": 0, "opcode": 128,
            "vendor_error": 0, "byte_len": rng.getrandbits(32), "imm": rng.getrandbits(32),
            "qp_num": rng.getrandbits(24), "src_qp": rng.getrandbits(24),
            "flags": rng.getrandbits(32), "solicited": 0, "ring": int(wqe is not None),
            "queue": wqe.number if wqe else 0, "head": rng.getrandbits(16),
            "function": self.function,
        } | fields
        self.i.queue.append(c)
        return c

    async def settle(self, cycles=50000) -> None:
        await self.cycles(5)
        await self.until(
            lambda: not self.i.queue and not self.i.offered and number(self.dut.completion__idle),
            cycles, "idle",
        )
        await self.cycles(3)

    def joined(self, parts) -> bytes:
        return b"".join(self.memory.get(a, n) for a, n in parts)

    async def program(self, name: str, index: int, row: int | None = None) -> int:
        dut = self.dut

        def port(part):
            return getattr(dut, f"completion__{name}_program__{part}")

        port("index").value = index
        port("row").value = row or 0
        port("read" if row is None else "write").value = 1
        while True:
            await RisingEdge(dut.clk)
            if number(port("done")):
                break
        value = number(port("read_row"))
        port("read").value = port("write").value = 0
        await RisingEdge(dut.clk)
        return value


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
    """Armed with NEXT or SOLICITED, one shot, after the index; flag and used_event suppress."""
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
    await one(NEXT, 0)
    cq.set_flags(0)
    await one(0, 1)  # it stayed armed
    cq.vector = 0xFFFF
    await one(NEXT, 0)
    cq.vector = 3
    await one(0, 1)
    dut.completion__event_idx.value = 1
    cq.set_used_event(count)
    await one(NEXT, 1)
    cq.set_used_event(count + 1)
    await one(NEXT, 0)
    await one(0, 1)
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
async def overflow(dut):
    """No buffer: CQ in error, its CQEs are lost and reported, buffers of WQEs go back, others go on."""
    bench = CompletionBench(dut, seed=5)
    await bench.start()
    cq, other = bench.queue(1, 16), bench.queue(2, 16)
    ring = bench.queue(CONFIG.rq_queue(1), 16)
    for _ in range(3):
        bench.fill(cq)
    done = [bench.completion(wqe=ring) for _ in range(6)]
    await bench.settle()
    assert cq.used_index() == 3 and ring.used_index() == 6
    lost = [{"cq": 0, "qp": c["qp_num"]} for c in done[3:]]
    assert bench.cq_errors.items == lost
    # Buffers that come later do not help; the other CQ is not concerned.
    bench.fill(cq)
    c = bench.completion()
    parts = bench.fill(other)
    d = bench.completion(cq=1)
    await bench.settle()
    assert cq.used_index() == 3 and other.used_index() == 1
    assert bench.joined(parts) == cqe_bytes(d)
    assert bench.cq_errors.items == [*lost, {"cq": 0, "qp": c["qp_num"]}]
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
        (C.HOST_READ, lambda q: setattr(q, "driver", BASE - 4096)),
        (C.HOST_READ, lambda q: (q.offer(0), setattr(q, "desc", BASE - 4096))),
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
        assert bench.cq_errors.items[0] == {"cq": 0, "qp": lost[0]["qp_num"]}
        assert queue.used_index() == 0
        assert unpack(CqRow, await bench.program("cq", 0))["error"] == 1
        bench.errors.items.clear()
        bench.cq_errors.items.clear()


@cocotb.test()
async def garbage(dut):
    """Random CQ rings: never a hang, and the other CQ gets all of its CQEs."""
    bench = CompletionBench(dut, seed=8, latency=5, stall=0.1)
    await bench.start()
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
async def throughput(dut):
    """Completions per second with 500 ns of read latency (125 cycles at 250 MHz)."""
    bench = CompletionBench(dut, seed=9, latency=125)
    await bench.start()
    cq, ring = bench.queue(1, 256), bench.queue(CONFIG.rq_queue(1), 256)
    for _ in range(200):
        bench.fill(cq)
    for _ in range(200):
        bench.completion(wqe=ring)
    began = bench.now
    await bench.until(lambda: cq.used_index() == 200, 40000, "200 CQEs")
    cycles = (bench.now - began) / 200
    dut._log.info("completions: %.1f cycles each, %.1f M/s", cycles, 250 / cycles)
    assert cycles < 60


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
