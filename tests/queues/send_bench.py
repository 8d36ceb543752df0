"""SendFetch with its ports, and a check of one answer."""

from __future__ import annotations

from cocotb.triggers import RisingEdge

from hdl.ports.jobs import FetchRequest, QueueError, SendFetched
from tests.queues import wqes
from tests.queues.drive import Bench, QueueRows, ReadPort, Sink, Source, WritePort, number
from tests.queues.host import Queue, pieces
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
