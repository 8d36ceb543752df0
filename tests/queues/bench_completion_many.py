"""CompletionEngine with 64 CQs in Verilator: how fast, how many at a time, and what it collects."""

from __future__ import annotations

import cocotb

from hdl.ports.jobs import QueueErrorCause
from hdl.ports.rows import CqRow
from sim.bench.pins import number
from tests.fields import pack, unpack
from tests.queues.completion_bench import CompletionBench
from tests.queues.completion_order import Order
from tests.queues.top import CompletionTop, many_cqs_config

CONFIG = many_cqs_config(64)


class ManyBench(CompletionBench):
    """A CQ and a receive queue for each of up to 64 queue pairs; ``order`` checks their writes."""

    CONFIG, TOP = CONFIG, CompletionTop

    def __init__(self, dut, **options):
        super().__init__(dut, **options)
        self.order = Order(self)

    async def pairs(self, count: int, size: int = 256, *, again: bool = False):
        await self.start(again=again)
        cqs = [self.queue(CONFIG.cq_queue(n), size) for n in range(count)]
        return cqs, [self.queue(CONFIG.rq_queue(1 + n), 256) for n in range(count)]

    def stock(self, queue, count: int) -> list:
        """``count`` buffers in a CQ; their parts, for completions to come."""
        return [self.fill(queue) for _ in range(count)]

    def complete(self, cq, ring, parts) -> None:
        c = self.completion(cq=cq.number - 1, wqe=ring)
        self.order.expect(c, cq, parts, ring)

    def give_back(self, ring) -> None:
        self.order.expect(self.completion(emit=0, wqe=ring), wqe=ring)

    async def queue_reset(self, queue: int) -> None:
        count = self.reset.taken
        self.reset.queue.append(queue)
        await self.until(lambda: self.reset.taken > count, 3000, "reset")

    async def timed(self) -> float:
        """Cycles until everything is written."""
        began = self.now
        await self.settle()
        self.order.check()
        return self.now - began


@cocotb.test()
async def throughput(dut):
    """Completions with RQ return and CQE, filling and draining included, at 500 ns and at 1 us."""
    began = False
    for latency in (125, 250):
        for used in (1, 4, 64):
            bench = ManyBench(dut, seed=9, latency=latency)
            cqs, rings = await bench.pairs(used, again=began)
            began, each = True, max(256 // used, 12)
            stocks = [bench.stock(queue, each) for queue in cqs]
            for n in range(each * used):
                k = n % used
                bench.complete(cqs[k], rings[k], stocks[k][n // used])
            cycles = await bench.timed() / (each * used)
            dut._log.info(
                "%d CQs, %d cycles a read: %.1f cycles a completion, %.1f M/s",
                *(used, latency, cycles, 250 / cycles),
            )
            assert cycles < (12 if bench.width == 512 else 18) + (latency - 125) / 100
            assert not bench.cq_errors.items
            bench.ports.clear()


@cocotb.test()
async def returns(dut):
    """Send WQEs that are not signalled: of one queue, and of two in runs of eight."""
    for used, most in ((1, 4), (2, 5)):
        bench = ManyBench(dut, seed=10, latency=125)
        _, rings = await bench.pairs(2, again=used > 1)
        for n in range(400):
            bench.give_back(rings[n // 8 % used])
        cycles = await bench.timed() / 400
        dut._log.info("%d queues: %.1f cycles a WQE, %.1f M/s", used, cycles, 250 / cycles)
        assert cycles < most
        # Several in one write, and one index for them.
        assert bench.order.longest == 8
        bench.ports.clear()


@cocotb.test()
async def nothing_waits_alone(dut):
    """What is collected is written as soon as nothing more waits."""
    bench = ManyBench(dut, seed=11, latency=125)
    (cq, *_), (ring, *_) = await bench.pairs(2)
    first, second, third = bench.stock(cq, 3)
    bench.complete(cq, ring, first)
    await bench.timed()
    # Ring entries are at hand: the descriptor is read, and everything written.
    bench.complete(cq, ring, second)
    cycles = await bench.timed()
    dut._log.info("a completion by itself: %d cycles", cycles)
    assert cycles < 125 + 50
    # One that waits for its buffer does not hold back those before it.
    bench.give_back(ring)
    bench.complete(cq, ring, third)
    began = bench.now
    await bench.until(lambda: ring.used_index() == 3, 100, "the first of two")
    assert bench.now - began < 30
    await bench.timed()


@cocotb.test()
async def alone_its_buffer_is_at_hand(dut):
    """Completions that come by themselves, of one CQ and of several in turn: no host read stands
    before the CQE, and no descriptor is read twice. Chains are walked as ever."""
    for used in (1, 5):
        bench = ManyBench(dut, seed=18 + used, latency=125)
        cqs, rings = await bench.pairs(used, again=used > 1)
        stocks = [bench.stock(queue, 12) for queue in cqs]
        for k in range(used):
            bench.complete(cqs[k], rings[k], stocks[k][0])
        await bench.timed()
        for nth in range(1, 12):
            for k in range(used):
                await bench.cycles(300)
                bench.memory.reads.clear()
                bench.complete(cqs[k], rings[k], stocks[k][nth])
                cycles = await bench.timed()
                assert cycles < (45 if bench.width == 512 else 60), (used, nth, k)
        dut._log.info("%d CQs: the last completion took %d cycles", used, cycles)
        await bench.cycles(300)
        odd = bench.fill(cqs[0], (20, 18))
        bench.complete(cqs[0], rings[0], odd)
        await bench.timed()
        bench.ports.clear()


@cocotb.test()
async def a_reset_forgets_what_is_at_hand(dut):
    """A CQ goes on elsewhere while its next buffer is at hand, or being read: its CQE goes where
    the new ring says."""
    for wait in (300, 20, 60):
        bench = ManyBench(dut, seed=wait, latency=125)
        (cq, *_), (ring, *_) = await bench.pairs(2, size=16, again=wait != 300)
        first, *_ = bench.stock(cq, 8)
        bench.complete(cq, ring, first)
        await bench.timed()
        await bench.cycles(wait)
        await bench.queue_reset(cq.number | 1 << 16)
        del bench.order.rings[cq.number]
        fresh = bench.queue(cq.number, 16)
        fresh.avail = 1
        bench.order.ring(fresh, 1)
        await bench.program("cq", cq.number - 1, pack(CqRow, {"position": 1}))
        for parts in bench.stock(fresh, 3):
            bench.complete(fresh, ring, parts)
        await bench.timed()
        assert not bench.errors.items and not bench.cq_errors.items
        bench.ports.clear()


@cocotb.test()
async def indices_are_read_at_a_time(dut):
    """64 CQs of which nothing is known yet: their avail indices, entries, descriptors overlap."""
    bench = ManyBench(dut, seed=12, latency=250)
    cqs, rings = await bench.pairs(64, size=16)
    stocks = [bench.stock(queue, 3) for queue in cqs]
    for n in range(3):
        for queue, ring, stock in zip(cqs, rings, stocks, strict=True):
            bench.complete(queue, ring, stock[n])
    cycles = await bench.timed()
    dut._log.info("192 completions: %d cycles", cycles)
    assert cycles < 4 * 250 + 192 * (12 if bench.width == 512 else 18)
    # An index is read once for the three.
    indices = [addr for addr, length in bench.memory.reads if length == 2]
    assert len(indices) == 64


@cocotb.test()
async def buffers_one_by_one(dut):
    """CQs with hardly a buffer more than they need: none is called overflowed, none is overrun."""
    for seed, latency in ((0, 5), (1, 60)):
        bench = ManyBench(dut, seed=seed, latency=latency, stall=0.1)
        cqs, rings = await bench.pairs(5, size=4, again=bool(seed))
        rng = bench.rng
        for _ in range(300):
            k = rng.choice((0, 0, 1, 2, 3, 4))
            cq = cqs[k]
            if not cq.spare:
                await bench.until(
                    lambda cq=cq: cq.used_index() == len(cq.heads) & 0xFFFF, 20000, "CQE"
                )
                cq.spare = [0, 1, 2, 3]
            bench.complete(
                cq,
                rings[k],
                bench.fill(cq, rng.choice([(38,), (64,), (20, 18)][: 2 + (len(cq.spare) > 1)])),
            )
            if rng.random() < 0.2:
                await bench.cycles(rng.randrange(100))
        await bench.timed()
        assert not bench.cq_errors.items and not bench.errors.items
        bench.ports.clear()


@cocotb.test()
async def one_ring_is_broken(dut):
    """A chain that is broken amid good ones of other CQs: these go on as fast, and all of them."""
    bench = ManyBench(dut, seed=13, latency=125)
    cqs, rings = await bench.pairs(32)
    bad = cqs.pop(7)
    del rings[7]
    head = bad.spare[0]
    bad.set_desc(bad.desc, head, bench.memory.alloc(64), 64, 0, 0)
    bad.offer(head)
    stocks = [bench.stock(queue, 8) for queue in cqs]
    for n in range(8):
        for queue, ring, stock in zip(cqs, rings, stocks, strict=True):
            bench.complete(queue, ring, stock[n])
            if queue is cqs[3]:
                bench.completion(cq=7)
    cycles = await bench.timed()
    assert cycles < 256 * 24
    assert bench.errors.items == [{"queue": 8, "cause": QueueErrorCause.DIRECTION.value}]
    assert [row["cq"] for row in bench.cq_errors.items] == [7] * 8
    assert unpack(CqRow, await bench.program("cq", 7))["error"] == 1
    # What was lost before costs nothing later: the queue is left alone.
    bench.memory.reads.clear()
    bench.completion(cq=7)
    await bench.timed()
    assert number(dut.completion__overflows) == 9
    assert not bench.memory.reads


@cocotb.test()
async def reset_while_many_wait(dut):
    """A queue reset comes in the middle: taken behind all writes, nothing is kept of before."""
    for moment in range(4, 400, 60):
        bench = ManyBench(dut, seed=moment, latency=60)
        cqs, rings = await bench.pairs(4, size=16, again=moment != 4)
        for n in range(60):
            bench.complete(cqs[n % 4], rings[n % 4], bench.fill(cqs[n % 4]))
        await bench.cycles(moment)
        taken = bench.i.taken
        await bench.queue_reset(60)
        # Those taken before it are written by now: the last of each queue is seen.
        seen = sum(ring.used_index() for ring in rings)
        assert taken <= seen <= taken + 1, moment
        await bench.timed()
        assert await bench.program("used", cqs[2].number) == 15
        # The driver makes the queue anew, elsewhere; other heads lie at the same positions.
        del bench.order.rings[cqs[1].number]
        await bench.queue_reset(cqs[1].number)
        fresh = bench.queue(cqs[1].number, 16)
        await bench.program("cq", 1, pack(CqRow, {"available": 5}))
        bench.rng.shuffle(fresh.spare)
        for parts in bench.stock(fresh, 6):
            bench.complete(fresh, rings[1], parts)
        await bench.timed()
        assert not bench.errors.items and not bench.cq_errors.items
        bench.ports.clear()


@cocotb.test()
async def dropped_queue(dut):
    """A CQ that is dropped goes on at its index: entries read ahead are read again."""
    bench = ManyBench(dut, seed=17, latency=30)
    (cq,), (ring,) = await bench.pairs(1)
    for turn in range(6):
        for _ in range(3):
            bench.complete(cq, ring, bench.fill(cq))
        behind = [bench.fill(cq) for _ in range(5)]  # for CQEs that never come
        await bench.timed()
        await bench.queue_reset(cq.number | 1 << 16)
        await bench.queue_reset(ring.number | 1 << 16)
        index = 3 * (turn + 1)
        assert await bench.program("used", cq.number) == index
        assert await bench.program("used", ring.number) == index
        cq.avail = index
        cq.set_index(index)
        del cq.heads[-len(behind) :]
        await bench.program("cq", cq.number - 1, pack(CqRow, {"position": index}))


@cocotb.test()
async def windows_while_running(dut):
    """The firmware reads and writes rows of other CQs and queues while completions go by."""
    bench = ManyBench(dut, seed=14, latency=30, stall=0.1)
    cqs, rings = await bench.pairs(3)
    for n in range(240):
        bench.complete(cqs[n % 3], rings[n % 3], bench.fill(cqs[n % 3]))
    for n in range(20):
        row = {"position": 7 * n, "available": 7 * n, "armed": n & 3, "error": n & 1}
        await bench.program("cq", 40, pack(CqRow, row))
        assert unpack(CqRow, await bench.program("cq", 40)) == row
        await bench.program("used", 41, 1000 + n)
        assert await bench.program("used", 41) == 1000 + n
    assert bench.i.queue, "still running"
    await bench.timed()
    for n, queue in enumerate(cqs):
        row = unpack(CqRow, await bench.program("cq", n))
        assert (row["position"], row["error"]) == (80, 0)
        assert await bench.program("used", queue.number) == 80
