"""RecvFetch in Verilator: what is fetched ahead of a few queues of every size, and for whom."""

from __future__ import annotations

import cocotb

from tests.queues.bench_recv_ahead import AheadBench, mix
from tests.queues.host import Memory
from tests.queues.top import QueuesTop, small_config


class MixedBench(AheadBench):
    """The card of the other benches, with few queue pairs."""

    CONFIG, TOP, WRITES = small_config(64), QueuesTop, "send__write_client"

    async def pairs(self, *sizes: int):
        """The receive queues of all queue pairs, each at any position."""
        queues = [self.queue(self.CONFIG.rq_queue(pair), size) for pair, size in enumerate(sizes)]
        for queue in queues:
            await self.start_at(queue, self.rng.getrandbits(16))
        return queues

    async def take_last(self, queues, count: int) -> None:
        """The last ``count`` WQEs of each queue, one of each in turn."""
        order = [
            (queue, (queue.avail - count + n) & 0xFFFF) for n in range(count) for queue in queues
        ]
        await self.take(order, hint=True)


@cocotb.test()
async def everything_at_once(dut):
    bench = MixedBench(dut, seed=5, latency=40, stall=0.25, event_idx=1)
    await bench.start()
    bench.memory = Memory(1 << 24)
    await mix(bench, {0: 64, 1: 32768, 2: 512, 3: 4096}, few=2, steps=550)


@cocotb.test()
async def who_is_notified(dut):
    """The WQEs of those queues that were notified, in any order, are at hand."""
    bench = MixedBench(dut, seed=6, latency=30)
    await bench.start()
    rng, queues = bench.rng, await bench.pairs(256, 64, 32768, 1024)
    for _ in range(20):
        chosen = rng.sample(queues, rng.randrange(1, len(queues) + 1))
        for queue in chosen:
            bench.post(queue, 1)
        bench.ring(*chosen)
        await bench.cycles(400)
        for queue in chosen:
            last = (queue.avail - 1) & 0xFFFF
            assert (await bench.take([(queue, last)]))[0] <= 14, queue.number
        # Its answer has the index read once more, and nobody looks for what comes meanwhile.
        await bench.cycles(100)


@cocotb.test()
async def runs_behind_a_doorbell(dut):
    """Queues that have run dry get many WQEs at once, whose entries and descriptors come late."""
    bench = MixedBench(dut, seed=7, latency=150)
    await bench.start()
    queues = await bench.pairs(512, 512, 512, 512)
    # More than a queue gets lines for, and fewer.
    for count, chosen in ((40, queues[:1]), (14, queues[:1]), (12, queues)):
        for queue in chosen:
            bench.post(queue, count)
        bench.ring(*chosen)
        await bench.cycles(500)
        await bench.take_last(chosen, count)
        await bench.cycles(300)
