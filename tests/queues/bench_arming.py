"""CQs that are armed by a doorbell: never an event too few, whenever a completion comes."""

from __future__ import annotations

import cocotb

from hdl.abi.virtio_rdma import ARM_SEEN_BITS
from tests.queues.completion_bench import CONFIG, NEXT, CompletionBench
from tests.queues.completion_order import Order
from tests.queues.top import FUNCTION

SEEN = (1 << ARM_SEEN_BITS) - 1


def arming_bench(dut, seed: int, **options) -> CompletionBench:
    """The function that interrupts is the one that has the CQ, whatever completions say."""
    bench = CompletionBench(dut, seed=seed, **options)
    bench.functions[0] = FUNCTION
    return bench


def request(cq: int, seen: int, solicited: int = 0) -> dict:
    return {"cq": cq, "seen": seen & SEEN, "solicited": solicited}


@cocotb.test()
async def one_by_one(dut):
    """What has been seen arms; what has not been seen interrupts, and arms nothing."""
    bench = arming_bench(dut, 11)
    await bench.start()
    cq, order = bench.queue(2, 64, vector=3), Order(bench)
    told = [{"function": bench.function, "vector": 3}]

    async def complete(**fields) -> list:
        before = len(bench.interrupts.items)
        order.expect(bench.completion(cq=1, **fields), cq, bench.fill(cq))
        await bench.settle()
        order.check()
        return bench.interrupts.items[before:]

    async def ask(seen: int, solicited: int = 0) -> list:
        before = len(bench.interrupts.items)
        bench.request.queue.append(request(1, seen, solicited))
        await bench.settle()
        await bench.cycles(30)
        return bench.interrupts.items[before:]

    assert await ask(0) == []
    assert await complete() == told
    assert await complete() == []  # once per arming
    assert await ask(1) == told
    assert await complete() == []  # an event has been told: nothing was armed
    assert await ask(2) == told
    assert await ask(3) == []
    assert await complete() == told
    # For a solicited one, or one in error; asked twice, for either.
    assert await ask(4, solicited=1) == []
    assert await complete() == []
    assert await complete(solicited=1) == told
    assert await ask(6, solicited=1) == []
    assert await complete(status=5) == told
    assert await ask(7, solicited=1) == [] and await ask(7) == []
    assert await complete() == told
    # The upper bit of the index has no room in a doorbell.
    await bench.program("used", cq.number, 0x8008)
    assert await ask(8) == [] and await ask(7) == told
    # A CQ without a vector is armed and tells nobody; one whose queue is off is not even armed.
    cq.vector = 0xFFFF
    assert await ask(7) == []
    cq.vector = 3
    assert await ask(8) == []
    bench.request.queue.append(request(0, 5))
    await bench.settle()
    await bench.cycles(30)
    assert len(bench.interrupts.items) == 8


async def sleep_and_wake(dut, seed: int) -> None:
    """Three CQs of one driver, which sleeps on each until it is woken."""
    bench = arming_bench(dut, seed, stall=(0.0, 0.2)[seed & 1], latency=20)
    await bench.start(again=bool(seed))
    rng, order = bench.rng, Order(bench)
    cqs = [bench.queue(1 + n, 256, vector=3 + n) for n in range(3)]
    ring = bench.queue(CONFIG.rq_queue(1), 256)
    bench.i.gap = (0.0, 0.9, 0.98)[seed % 3]
    for _ in range(150):
        n = rng.randrange(3)
        parts = bench.fill(cqs[n])
        order.expect(bench.completion(cq=n, wqe=ring), cqs[n], parts, ring)
    sleeps: dict[int, int] = {}  # CQ -> how many interrupts it had when it went to sleep
    had, woken, armed = [0, 0, 0], 0, 0
    while bench.i.queue or bench.i.offered:
        await bench.cycles(rng.randrange(1, 60))
        for n, queue in enumerate(cqs):
            had[n] = sum(one["vector"] == 3 + n for one in bench.interrupts.items)
            if n in sleeps and had[n] > sleeps[n]:
                del sleeps[n]
                woken += 1
            if n not in sleeps:
                sleeps[n] = had[n]
                queue.seen = queue.used_index()
                bench.request.queue.append(request(n, queue.seen))
                armed += 1
    await bench.until(lambda: bench.request.taken == armed, 3000, "armed")
    await bench.settle()
    await bench.cycles(100)
    order.check()
    assert woken > 4, (seed, woken)
    for n, before in sleeps.items():
        had = sum(one["vector"] == 3 + n for one in bench.interrupts.items)
        unseen = cqs[n].used_index() != cqs[n].seen
        assert had - before == int(unseen), (seed, n, had, before, unseen)
    bench.ports.clear()


@cocotb.test()
async def none_is_missed(dut):
    """A driver that arms with what it has seen, and sleeps, is woken by each thing that it has not.

    It looks at the used index in host memory, as late as it likes, while completions go on.
    """
    for seed in range(6):
        await sleep_and_wake(dut, seed)


@cocotb.test()
async def doorbells_without_an_end(dut):
    """Whoever rings all the time costs others a completion's time for each of their completions;
    the firmware's way to arm and the reset of a queue go on beside it."""
    bench = arming_bench(dut, 5)
    await bench.start()
    cq, mad = bench.queue(1, 256, vector=3), bench.queue(2, 2, vector=4)
    order, times = Order(bench), []
    for rings in (0, 4000):
        bench.request.queue.extend([request(1, 0)] * rings)
        await bench.cycles(50)
        begin = bench.now
        for _ in range(100):
            order.expect(bench.completion(cq=0), cq, bench.fill(cq))
        await bench.until(lambda: not bench.i.queue and not bench.i.offered, 20000, "taken")
        times.append(bench.now - begin)
        if rings:
            await bench.arm_cq(0, NEXT)
            bench.reset.queue.append(mad.number)
            await bench.until(lambda: bench.reset.taken == 1, 2000, "reset")
            assert len(bench.request.queue) > 1000
        bench.request.queue.clear()
        await bench.settle()
        order.check()
    assert times[1] < 5 * times[0], times
