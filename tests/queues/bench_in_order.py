"""SendFetch in Verilator with VIRTIO_F_IN_ORDER: descriptors are read where heads are expected."""

from __future__ import annotations

import cocotb

from tests.queues import wqes
from tests.queues.host import OUTSIDE
from tests.queues.send_bench import SendBench, buffers


class InOrderBench(SendBench):
    async def start(self, **options):
        await super().start(**options)
        self.rules["in_order"] = 1

    def post(self, queue, cuts=(), rng=None):
        sges = wqes.random_sges(self.rng, 1)
        data, expected = wqes.send_wqe(self.rng, sges)
        head = queue.chain(buffers(self, data, cuts), rng=rng)
        return queue.offer(head), expected, wqes.sge_bytes(sges), head

    async def fetch(self, queue, posted) -> list[int]:
        """Ask for all at once; cycles until each answer."""
        began, count = self.now, len(self.rsp.items)
        for position, *_ in posted:
            self.ask(queue, position, known=queue.avail)
        for position, expected, block, head in posted:
            await self.check(queue, position, expected, block, head)
        return [time - began for time in self.rsp.times[count:]]


@cocotb.test()
async def right_guesses_save_a_read(dut):
    """An idle queue's WQE takes two reads and not three, wherever its descriptors begin."""
    for seed, first in ((2, 0), (3, 5)):
        bench = InOrderBench(dut, seed=seed, latency=125)
        await bench.start(again=seed != 2)
        queue = bench.queue(1 + first % 3, 64)
        queue.spare = queue.spare[first:]
        times = []
        for n, batch in enumerate((1, 1, 3, 1)):
            before = len(bench.memory.reads)
            posted = [bench.post(queue) for _ in range(batch)]
            times.append(await bench.fetch(queue, posted))
            reads = len(bench.memory.reads) - before
            # The entries once; a wrong guess is a descriptor more.
            assert reads == 1 + 2 * batch + (n == 0 and first != 0)
            await bench.cycles(20)
        dut._log.info("first head %d: cycles until each answer %s", first, times)
        assert (times[0][0] > 380) == (first != 0)
        for batch in times[1:]:
            assert batch[-1] < 350, "a third read in a row"
        bench.ports.clear()
    # Without the feature nothing is guessed.
    bench = InOrderBench(dut, latency=125)
    await bench.start(again=True)
    bench.rules["in_order"] = 0
    queue = bench.queue(3, 64)
    times = await bench.fetch(queue, [bench.post(queue)])
    dut._log.info("without the feature: %s cycles", times[0])
    assert times[0] > 380


@cocotb.test()
async def any_order_is_right(dut):
    """Heads in order, out of order, and behind chains: every answer is that of its own head."""
    bench = InOrderBench(dut, seed=2, latency=30, stall=0.2)
    await bench.start()
    rng = bench.rng
    queues = [bench.queue(pair, 128) for pair in (1, 2, 3)]
    free = bench.memory.free
    for _ in range(60):
        bench.memory.free = free
        queue = rng.choice(queues)
        kind = rng.choice(["in order", "in order", "any", "chains"])
        if kind == "in order":
            first = rng.choice([queue.avail % 128, rng.randrange(128)])
            queue.spare = [(first + n) % 128 for n in range(128)]
        posted = []
        for _ in range(rng.choice([1, 2, 3, 17])):
            cuts = [40] if kind == "chains" and rng.random() < 0.4 else []
            posted.append(bench.post(queue, cuts, rng if kind == "any" else None))
        # Not more at once than have lines: each is given back when it has been looked at.
        await bench.fetch(queue, posted)
        queue.spare = list(range(128))
    assert not bench.errors.items
    for queue in queues:
        bench.reset.queue.append(queue.number)
    await bench.until(lambda: not bench.reset.queue and not bench.reset.offered, 300, "reset")


@cocotb.test()
async def guesses_that_cannot_be_read(dut):
    """A table outside memory is a broken ring; another queue's guesses stay its own."""
    bench = InOrderBench(dut, seed=3, latency=20)
    await bench.start()
    good, bad = bench.queue(1, 64), bench.queue(2, 64)
    bad.offer(0)
    bad.desc = OUTSIDE
    bench.ask(bad, 0, known=1)
    one = bench.post(good)
    bench.ask(good, 0, known=1)
    assert (await bench.answer())["status"] == wqes.QUEUE_ERROR
    await bench.check(good, *one)
    # A ring outside memory: the guess goes with it.
    worse = bench.queue(3, 64)
    worse.driver = OUTSIDE
    bench.ask(worse, 0, known=1)
    assert (await bench.answer())["status"] == wqes.QUEUE_ERROR
    more = bench.post(good)
    bench.ask(good, 1, known=2)
    await bench.check(good, *more)
