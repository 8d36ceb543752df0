"""RecvFetch of many queues in Verilator: how fast, how fair, and what idle queues keep."""

from __future__ import annotations

import random
from itertools import pairwise

import cocotb
from cocotb.triggers import ClockCycles

from hdl.ports.jobs import QueueErrorCause as C
from hdl.ports.rows import ReceiveSource
from hdl.queues.receive.lines import refetch_lines
from tests.fields import pack
from tests.queues import wqes
from tests.queues.bench_recv import RecvBench
from tests.queues.host import Memory, pieces
from tests.queues.top import RecvTop, wide_config
from tests.slow import QUICK

CONFIG = wide_config(512)
#: Lines of receive WQEs.
LINES = CONFIG.recv_lines - refetch_lines(CONFIG.recv_lines)


class Hints:
    """Says whose request comes next when one has been taken, as receive does."""

    def __init__(self, bench: RecvBench):
        self.bench, self.taken, self.sources = bench, 0, []
        self.valid = bench.dut.recv__upcoming__valid
        self.source = bench.dut.recv__upcoming__source
        self.valid.value = 0
        bench.ports.append(self)

    def cycle(self) -> None:
        self.valid.value = 0
        if self.sources and self.bench.req.taken != self.taken:
            self.taken = self.bench.req.taken
            self.valid.value = 1
            self.source.value = pack(ReceiveSource, {"kind": 0, "number": self.sources.pop(0)})


class AheadBench(RecvBench):
    """Many queue pairs; ``posted``: what each position of each must be answered with."""

    CONFIG, TOP, WRITES = CONFIG, RecvTop, "recv__write_client"

    def __init__(self, dut, **options):
        super().__init__(dut, **options)
        self.hints = Hints(self)
        self.posted: dict[tuple[int, int], tuple[int, int]] = {}

    async def start(self, **options):
        await super().start(**options)
        await self.cycles(self.CONFIG.qps)  # the rows are cleared

    async def start_at(self, queue, position: int) -> None:
        """Have a queue whose WQEs have all been given go on at any position."""
        queue.avail = position
        queue.set_index(position)
        await self.drop(queue, position)

    def post(self, queue, count: int, cuts=()) -> None:
        for _ in range(count):
            data, expected = wqes.recv_wqe(self.rng, wqes.random_sges(self.rng, 1))
            position, head = self.offer(queue, data, cuts)
            self.posted[queue.number, position] = (expected["wr_id"], head)

    def ring(self, *queues) -> None:
        for queue in queues:
            self.doorbell.queue.append({"qp": self.pair(queue), "flags": 2})

    async def take(self, order, hint: bool = False) -> list[int]:
        """Ask for the WQEs of (queue, position) one behind the other; cycles of each answer.

        ``hint``: each source is told of when the request before has been taken.
        """
        count, began = len(self.rsp.items), self.now
        self.hints.sources = [self.pair(queue) for queue, _ in order[1:]] if hint else []
        for queue, _ in order:
            number = self.pair(queue)
            source = {"qp": number, "source": {"kind": 0, "number": number}}
            how = {"function": self.function, "again": 0, "head": 0, "last": 1}
            self.req.queue.append(source | how)
        await self.until(lambda: len(self.rsp.items) == count + len(order), 200_000, "answers")
        for (queue, position), got in zip(order, self.rsp.items[count:], strict=True):
            assert got["status"] == wqes.OK, (queue.number, position, got)
            assert (got["wqe"]["wr_id"], got["head"]) == self.posted[queue.number, position]
        return [time - began for time in self.rsp.times[count:]]


@cocotb.test(skip=QUICK)
async def throughput(dut):
    """Receive WQEs a second at 500 ns and 1 us a read, as fast as they are asked for."""
    for latency in (125, 250):
        bench = AheadBench(dut, latency=latency)
        bench.memory = Memory(1 << 21)
        await bench.start(again=latency != 125)
        one = bench.queue(CONFIG.rq_queue(1), 1024)
        many = [bench.queue(CONFIG.rq_queue(pair), 64) for pair in range(2, 66)]
        bench.post(one, 1000)
        for queue in many:
            bench.post(queue, 36)
        runs = [bench.queue(CONFIG.rq_queue(pair), 256) for pair in range(66, 74)]
        for queue in runs:
            bench.post(queue, 160)
        # More than have lines for a run each: the rest wait for those that others give back.
        more = [bench.queue(CONFIG.rq_queue(pair), 128) for pair in range(74, 86)]
        for queue in more:
            bench.post(queue, 112)
        for name, limits, order in (
            ("one queue", (12, 8, 17, 14), [(one, n) for n in range(1000)]),
            (
                "64 queues in turn",
                (10, 10, 12, 12),
                [(queue, n) for n in range(36) for queue in many],
            ),
            (
                "8 queues in runs of 8",
                (8, 8, 12, 12),
                [(runs[k // 8 % 8], k % 8 + k // 64 * 8) for k in range(1280)],
            ),
            (
                "12 queues in runs of 8",
                (8, 8, 12, 12),
                [(more[k // 8 % 12], k % 8 + k // 96 * 8) for k in range(1344)],
            ),
        ):
            bench.ring(*{queue.number: queue for queue, _ in order}.values())
            await bench.cycles(3000)
            half = len(order) // 2
            for hint, part in ((False, order[:half]), (True, order[half:])):
                times = await bench.take(part, hint)
                steady = (times[-1] - times[len(times) // 2]) / (len(times) - 1 - len(times) // 2)
                dut._log.info(
                    "%d ns, %s, %s: %.1f cycles a WQE, %.1f M/s; with the beginning %.1f cycles",
                    *(4 * latency, name, "told before" if hint else "not told before"),
                    *(steady, 250 / steady, times[-1] / len(times)),
                )
                assert steady < limits[2 * (latency == 250) + hint], name
        bench.ports.clear()


@cocotb.test()
async def idle_queues_keep_little(dut):
    """All queues were notified, one is busy: it has lines enough. Then all are: nobody starves."""
    bench = AheadBench(dut, seed=2, latency=125)
    bench.memory = Memory(1 << 22)
    await bench.start()
    busy, *others = [bench.queue(CONFIG.rq_queue(pair), 512) for pair in range(1, CONFIG.qps)]
    assert len(others) > LINES
    for queue in others:
        bench.post(queue, 4)
    bench.post(busy, 400)
    bench.ring(*others)
    await bench.cycles(8000)
    elements = [1 for _, length in bench.memory.reads if length == 28]
    assert 20 < len(elements) <= LINES // 2 + 1
    times = await bench.take([(busy, n) for n in range(200)])
    steady = (times[-1] - times[100]) / 99
    dut._log.info("one busy queue among idle ones: %.1f cycles a WQE", steady)
    assert steady < 25
    # More queues than lines, each asked in turn, the busy one as often as all others.
    order = []
    for n in range(4):
        for k, queue in enumerate(others):
            order += [(queue, n), (busy, 200 + n * (len(others) // 4) + k // 4)]
    order = [one for i, one in enumerate(order) if one not in order[:i]]
    times = await bench.take(order)
    waits = [after - before for before, after in pairwise(times)]
    dut._log.info("more queues than lines: %.0f cycles a WQE", times[-1] / len(times))
    assert max(waits) < 1200, "somebody waited for more than its own reads"


@cocotb.test()
async def forgotten_in_time(dut):
    """A WQE fetched ahead and not asked for is read again after three periods; not after one."""
    bench = AheadBench(dut, seed=3, latency=60)
    await bench.start()
    queues = [bench.queue(CONFIG.rq_queue(pair), 16) for pair in (3, 9)]
    for queue in queues:
        bench.post(queue, 6)
    bench.ring(queues[0])
    position = {queues[0].number: 0, queues[1].number: 0}

    async def take(queue):
        at = position[queue.number]
        position[queue.number] += 1
        return await bench.take([(queue, at)])

    await take(queues[1])
    await bench.cycles(500)
    for periods, known in ((0.5, True), (3, False)):
        ports, bench.ports = bench.ports, []
        await ClockCycles(dut.clk, int(periods * 65536))
        bench.ports = ports
        began = [await take(queue) for queue in queues]
        assert all((times[0] < 12) == known for times in began), (periods, began)
        for queue in queues:
            await take(queue)
        await bench.cycles(600)


async def mix(bench: AheadBench, sizes: dict[int, int], few: int, steps: int) -> None:
    """Posts of all kinds, doorbells, repeated and late requests, drops: always the right WQE.

    sizes: QP -> size of its queue; the first ``few`` of them are in use half of the time."""
    # What is done hangs on no timing.
    rng, everywhere = random.Random(steps), list(sizes)
    lives = {}  # of each QP: its queue, the number of what comes next, what is there, from where on
    kinds = {"ok": 0, "error": 0, "broken": 0, "unreadable": 0, "empty": 0, "reset": 0}
    kinds |= {"dropped": 0, "late": 0}

    async def begin(qp):
        queue, start = bench.queue(bench.CONFIG.rq_queue(qp), sizes[qp]), 0
        if rng.random() < 0.7:
            start = rng.choice([rng.getrandbits(16), 0x10000 - rng.randrange(1, 20)])
            await bench.start_at(queue, start)
        lives[qp] = [queue, 0, [], start]

    async def renew(qp):
        lives[qp][0].enabled = False
        await bench.drop(lives[qp][0])
        await begin(qp)
        kinds["reset"] += 1

    def post(queue, there):
        kind = rng.random()
        sges = wqes.random_sges(rng, rng.choice([0, 1, 1, 2, 7, 8, 20]))
        wrong = {"num_sge": 33} if kind < 0.05 else {}
        data, expected = wqes.recv_wqe(rng, sges, **wrong)
        if kind > 0.96:
            queue.offer(queue.size + rng.randrange(100))
            there.append(("broken", None, None, b""))
            return
        cuts = rng.sample(range(1, len(data)), rng.choice([0, 0, 0, 1, 2]))
        indirect = rng.choice([None, None, None, 0])
        state = "error" if wrong else "ok"
        chain = pieces(bench.memory, data, cuts, rng)
        if kind > 0.92:
            state = "unreadable"
            bench.memory.unreadable.add(chain[0][0])
        head = queue.chain([(a, n, False) for a, n in chain], indirect_from=indirect, rng=rng)
        queue.offer(head)
        there.append((state, expected, head, wqes.sge_bytes(sges)))

    for qp in everywhere:
        await begin(qp)
    for _ in range(steps):
        qp = rng.choice(everywhere[: rng.choice([few, len(everywhere)])])
        queue, number, there, start = life = lives[qp]
        position = (start + number) & 0xFFFF
        action = rng.random()
        if action < 0.3 and len(queue.spare) > 40:
            for _ in range(rng.randrange(1, 8)):
                post(queue, there)
            if rng.random() < 0.6:
                bench.ring(queue)
        elif action < 0.33:
            await renew(qp)
        elif action < 0.36 and number:
            life[1] = max(0, number - rng.randrange(1, 4))
            await bench.drop(queue, start + life[1])
            kinds["dropped"] += 1
        elif action < 0.4 and any(one[0] == "ok" for one in there[:number]):
            late = rng.choice([n for n in range(number) if there[n][0] == "ok"])
            _, expected, head, block = there[late]
            got = await bench.ask(queue, (start + late) & 0xFFFF, again=True, last=rng.randrange(2))
            assert (got["status"], got["wqe"], got["head"]) == (wqes.OK, expected, head)
            assert await bench.line(got["line"], len(block)) == block
            kinds["late"] += 1
        else:
            last = rng.random() < 0.7
            got = await bench.ask(queue, position, last=last)
            if number == len(there):
                assert got["status"] == wqes.EMPTY and queue.avail_event() == position
                kinds["empty"] += 1
                continue
            state, expected, head, block = there[number]
            kinds[state] += 1
            if state in ("broken", "unreadable"):
                assert got["status"] == wqes.QUEUE_ERROR
                cause = {"broken": C.DESC_INDEX, "unreadable": C.HOST_READ}[state]
                assert bench.errors.items == [{"queue": queue.number, "cause": cause.value}]
                bench.errors.items.clear()
                await renew(qp)
                continue
            assert got["head"] == head
            if state == "error":
                assert (got["status"], got["error"]) == (wqes.WQE_ERROR, wqes.LOC_QP_OP_ERR)
            else:
                assert (got["status"], got["wqe"]) == (wqes.OK, expected)
                assert await bench.line(got["line"], len(block)) == block
            life[1] += last or state == "error"
        assert not bench.errors.items, "told before it was asked for"
    bench.dut._log.info("%s", kinds)
    assert all(count > 1 for count in kinds.values()), kinds


@cocotb.test()
async def everything_at_once(dut):
    bench = AheadBench(dut, seed=4, latency=30, stall=0.2, event_idx=1)
    await bench.start()
    bench.memory = Memory(1 << 23)
    await mix(bench, dict.fromkeys(range(1, 40), 512), few=3, steps=800)


@cocotb.test()
async def errors_wait_for_their_turn(dut):
    """A wrong WQE that was fetched ahead comes at any moment while another queue's is awaited."""
    bench = AheadBench(dut, seed=9, latency=60)
    await bench.start()
    wrong = wqes.recv_wqe(bench.rng, wqes.random_sges(bench.rng, 2))[0][:12]
    for step in range(30):
        good, bad = (bench.queue(CONFIG.rq_queue(2 * step + n), 16) for n in (2, 3))
        bench.post(good, 1)
        bench.offer(bad, wrong)
        bench.ring(bad)
        await bench.cycles(12 * step)
        await bench.take([(good, 0)])
        got = await bench.ask(bad, 0)
        assert (got["status"], got["error"]) == (wqes.WQE_ERROR, wqes.LOC_QP_OP_ERR), got


@cocotb.test()
async def newer_index_stays(dut):
    """An avail index that was read for a request is not forgotten for one that was read before it,
    for a notification: what the request waits for would not be there."""
    for latency in (10, 40):
        bench = AheadBench(dut, seed=11, latency=latency)
        await bench.start(again=latency != 10)
        for gap in range(70):
            queue = bench.queue(CONFIG.rq_queue(1 + gap), 16)
            bench.ring(queue)
            await bench.cycles(gap)
            bench.post(queue, 1)
            await bench.take([(queue, 0)])
        bench.ports.clear()
