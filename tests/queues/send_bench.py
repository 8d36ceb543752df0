"""SendFetch with its ports, and a check of one answer."""

from __future__ import annotations

from collections import defaultdict, deque

from cocotb.triggers import RisingEdge

from hdl.ports.jobs import (
    Destination,
    FetchRequest,
    QueueError,
    SendFetched,
    WqeRead,
)
from sim.bench.pins import number
from tests.fields import pack, unpack
from tests.queues import wqes
from tests.queues.drive import (
    Bench,
    QueueRows,
    ReadPort,
    Sink,
    Source,
    WritePort,
    any_function,
)
from tests.queues.host import Queue, pieces
from tests.queues.top import small_config

CONFIG = small_config(64)
LINES = CONFIG.send_lines


def pair(queue: Queue) -> int:
    return (queue.number - CONFIG.sq_queue(0)) // 2


class Asker:
    """What the scheduler does for each position: asks for the index until it is known to be
    available, then for the WQE. ``done``: the final answers, in the order in which they came."""

    def __init__(self, bench: SendBench):
        self.bench, self.asked, self.done, self.times, self.seen = bench, [], [], [], 0
        #: QP and position -> what was asked for there, and is not answered yet.
        self.open: defaultdict[tuple[int, int], deque] = defaultdict(deque)
        bench.ports.append(self)

    def ask(self, request: dict[str, int]) -> None:
        self.asked.append([request, None])
        self.open[request["qp"], request["position"]].append(self.asked[-1])
        self.bench.req.queue.append(request)

    def cycle(self) -> None:
        items = self.bench.rsp.items
        for item in items[self.seen :]:
            key = (item["qp"], item["position"])
            one = self.open[key][0]
            known = one[0]["known"]
            assert item["poll"] == (
                item["status"] in (wqes.EMPTY, wqes.QUEUE_ERROR) and known == key[1]
            )
            ahead = (item["available"] - key[1]) & 0xFFFF
            if item["status"] == wqes.EMPTY and 0 < ahead <= 0x8000:
                one[0] = {**one[0], "known": item["available"]}
                self.bench.req.queue.append(one[0])
            else:
                one[1] = item
                self.open[key].popleft()
                self.done.append(item)
                self.times.append(self.bench.now)
        self.seen = len(items)


class SendBench(Bench):
    ASKS = True

    def __init__(self, dut, *, seed=1, stall=0.0, latency=10, event_idx=0):
        super().__init__(dut, seed=seed)
        self.functions[0] = any_function(seed)
        self.req = Source(self, "send__req", FetchRequest, gap=stall)
        self.rsp = Sink(self, "send__rsp", SendFetched, stall=stall)
        self.release = Source(self, "send__release", 8)
        self.errors = Sink(self, "send__error", QueueError, stall=stall)
        self.reset = Source(self, "send__queue_reset", 16)
        self.reads = ReadPort(self, "send__read_client", latency, stall)
        self.writes = WritePort(self, "send__write_client", stall)
        self.rows = QueueRows(self, "send__queue_read")
        self.rules["event_idx"] = event_idx
        self.known: dict[int, int] = {}
        self.asker, self.answered = Asker(self), 0

    async def start(self, **options):
        await super().start(**options)
        await self.cycles(2)

    def queue(self, qp: int, size: int) -> Queue:
        """The send queue of a QP whose number ends with the six bits of ``qp``."""
        qp |= self.rng.getrandbits(8) << 6
        queue = Queue(self.memory, CONFIG.sq_queue(qp), size)
        self.queues[queue.number] = queue
        return queue

    def ask(self, queue: Queue, position: int, known: int | None = None) -> None:
        self.asker.ask(
            {
                "function": self.function,
                "qp": pair(queue),
                "queue": queue.number,
                "position": position & 0xFFFF,
                "known": (self.known.get(queue.number, 0) if known is None else known) & 0xFFFF,
            }
        )

    async def answer(self, cycles: int = 20000) -> dict:
        """What became of the next position asked for, whether the index had to be read or not."""
        one = self.asker.asked[self.answered]
        await self.until(lambda: one[1] is not None, cycles, "an answer")
        self.answered += 1
        return one[1]

    async def line(self, line: int, count: int, first: int = 0) -> bytes:
        """``count`` bytes of a line from slot ``first`` on, through the read port."""
        out, dut = b"", self.dut
        for slot in range(first, first - (-count // 16)):
            dut.send__slot.value = pack(WqeRead, {"line": line, "slot": slot})
            dut.send__slot_enable.value = 1
            await RisingEdge(dut.clk)
            dut.send__slot_enable.value = 0
            await RisingEdge(dut.clk)
            await RisingEdge(dut.clk)
            out += number(dut.send__slot_data).to_bytes(16, "little")
        return out[:count]

    async def destination(self, line: int) -> dict:
        """Where the WQE in a line goes, through its read port."""
        dut = self.dut
        dut.send__destination__index.value = line
        dut.send__destination__enable.value = 1
        await RisingEdge(dut.clk)
        dut.send__destination__enable.value = 0
        await RisingEdge(dut.clk)
        await RisingEdge(dut.clk)
        return unpack(Destination, number(dut.send__destination__row))

    async def holds(self, line: int, expected: wqes.SendExpected, payload: bytes) -> None:
        """Look at all that is kept of a WQE in its line."""
        if expected.operands:
            payload = payload[: 16 * wqes.OPERAND_SLOT]
            assert await self.line(line, 16, wqes.OPERAND_SLOT) == expected.operands
        assert await self.line(line, len(payload)) == payload
        assert await self.destination(line) == expected.destination

    async def check(self, queue, position, expected, payload: bytes, head: int) -> None:
        got = await self.answer()
        assert got["status"] == wqes.OK, got
        assert got["error"] == 0
        assert (got["qp"], got["position"], got["head"]) == (pair(queue), position, head)
        assert got["wqe"] == expected, (got["wqe"], expected)
        await self.holds(got["line"], expected, payload)
        self.known[queue.number] = got["available"]
        self.release.queue.append(got["line"])


def buffers(bench, data, cuts, rng=None):
    return [(a, n, False) for a, n in pieces(bench.memory, data, cuts, rng)]
