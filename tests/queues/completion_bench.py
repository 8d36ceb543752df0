"""CompletionEngine with its ports, and the bytes of a CQE."""

from __future__ import annotations

import struct

from cocotb.triggers import RisingEdge

from hdl.ports.jobs import Completion, Interrupt, QueueError
from hdl.queues.completion.arming import ArmRequest
from hdl.queues.completion.engine import ArmCq, CqError
from sim.bench.pins import number
from tests.queues.drive import Bench, QueueRows, ReadPort, Sink, Source, WritePort, any_function
from tests.queues.host import Queue
from tests.queues.top import small_config

CONFIG = small_config(64)
CQE = 38
SOLICITED, NEXT = 1, 2


def cqe_bytes(c: dict) -> bytes:
    data = struct.pack(
        "<QBBII", c["wr_id"], c["status"], c["opcode"], c["vendor_error"], c["byte_len"]
    )
    data += struct.pack("<IIII", c["imm"], c["qp_num"], c["src_qp"], c["flags"])
    return data + struct.pack("<HBB", c["pkey_index"], c["sl"], 1)


class CompletionBench(Bench):
    CONFIG, WRITES = CONFIG, "completion__write_client"

    def __init__(self, dut, *, seed=1, stall=0.0, latency=10, event_idx=0):
        super().__init__(dut, seed=seed)
        self.functions[0] = any_function(seed)
        self.i = Source(self, "completion__i", Completion, gap=stall)
        self.arm = Source(self, "completion__arm", ArmCq)
        self.request = Source(self, "completion__request", ArmRequest)
        self.reset = Source(self, "completion__queue_reset", 16)
        self.interrupts = Sink(self, "completion__interrupt", Interrupt, stall)
        self.cq_errors = Sink(self, "completion__cq_error", CqError, stall)
        self.errors = Sink(self, "completion__error", QueueError, stall)
        self.reads = ReadPort(self, "completion__read_client", latency, stall)
        self.writes = WritePort(self, "completion__write_client", stall)
        self.rows = QueueRows(self, "completion__queue_read")
        self.rules["event_idx"] = event_idx

    async def start(self, **options):
        await super().start(**options)
        # Rows and indices are cleared one a cycle.
        await self.cycles(self.CONFIG.queues + 4)

    def queue(self, number_: int, size: int, vector: int = 0xFFFF) -> Queue:
        queue = Queue(self.memory, number_, size, vector)
        self.queues[queue.number] = queue
        queue.heads = []
        return queue

    def fill(self, queue: Queue, lengths=(CQE,), indirect=None) -> list[tuple[int, int]]:
        """One buffer in parts for a CQE; returns the parts."""
        parts = [(self.memory.alloc(n + 1) + 1, n) for n in lengths]
        chain = [(a, n, True) for a, n in parts]
        head = queue.chain(chain, indirect_from=indirect, rng=self.rng)
        queue.offer(head)
        queue.heads.append((head, parts))
        return parts

    def completion(self, *, cq=0, emit=1, wqe=None, **fields) -> dict:
        rng = self.rng
        c = {
            "emit": emit,
            "cq": cq,
            "wr_id": rng.getrandbits(64),
            "status": 0,
            "opcode": rng.getrandbits(8),
            "vendor_error": rng.getrandbits(32),
            "byte_len": rng.getrandbits(32),
            "imm": rng.getrandbits(32),
            "qp_num": rng.getrandbits(24),
            "src_qp": rng.getrandbits(24),
            "pkey_index": rng.getrandbits(4),
            "sl": rng.getrandbits(3),
            "flags": rng.getrandbits(32),
            "solicited": 0,
            "ring": int(wqe is not None),
            "queue": wqe.number if wqe else 0,
            "head": rng.getrandbits(16),
            "function": self.function,
        } | fields
        self.i.queue.append(c)
        return c

    async def settle(self, cycles=50000) -> None:
        await self.cycles(5)
        await self.until(
            lambda: not self.i.queue and not self.i.offered and number(self.dut.completion__idle),
            cycles,
            "idle",
        )
        await self.cycles(3)

    async def arm_cq(self, cq: int, flags: int) -> None:
        count = self.arm.taken
        self.arm.queue.append({"cq": cq, "flags": flags})
        await self.until(lambda: self.arm.taken > count, 300, "arm")

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
