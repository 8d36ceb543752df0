"""ControlEngine of two functions: they take turns, and the reset of one waits for no other."""

from __future__ import annotations

import cocotb

from hdl.config import FUNCTION_RDMA
from sim.bench.pins import number
from tests.queues.bench_control import ControlBench
from tests.queues.host import Queue
from tests.queues.top import ControlTop, two_functions_config

STEP = 1 << two_functions_config(64).number_bits["queues"]


class TwoBench(ControlBench):
    """``queues`` has both control queues by the card's number; ``queue`` is the one in use."""

    TOP = ControlTop
    WRITES = "control__write_client"

    def __init__(self, dut):
        super().__init__(dut, seed=5, size=16)
        self.functions = [FUNCTION_RDMA, FUNCTION_RDMA + 1]
        self.memory.owner = 1
        self.queues[STEP] = Queue(self.memory, STEP, 16)

    def ask(self, ordinal: int, data: bytes) -> None:
        """The driver of a function makes a request available, with a byte for its answer."""
        self.queue, self.memory.owner = self.queues[STEP * ordinal], ordinal
        self.offer(data, (8,))

    def ring_of(self, ordinal: int) -> None:
        self.doorbell.queue.append({"queue": STEP * ordinal})

    async def serve(self) -> tuple[int, bytes]:
        """Answer a request; whose it was, and its byte."""
        pending = self.dut.control__pending
        await self.until(lambda: number(pending), 3000, "a request")
        served = number(self.dut.control__function), self.requested(1)
        await self.answer(b"\0")
        await self.until(lambda: not number(pending), 3000, "an answer")
        return served


@cocotb.test()
async def turns(dut):
    """A function with many requests keeps no other from its turn."""
    bench = TwoBench(dut)
    await bench.start()
    for k in range(4):
        bench.ask(0, bytes([k]))
    bench.ask(1, b"\x80")
    bench.ring_of(0)
    bench.ring_of(1)
    served = [await bench.serve() for _ in range(5)]
    assert (2, b"\x80") in served[:2], served
    assert [data for function, data in served if function == 1] == [bytes([k]) for k in range(4)]


@cocotb.test()
async def reset_of_the_other(dut):
    """A control queue is reset while the firmware has a request of the other function; nothing is
    read from the memory of a function in reset."""
    bench = TwoBench(dut)
    await bench.start()
    bench.ask(0, b"\1")
    bench.ring_of(0)
    await bench.pending()
    bench.ask(1, b"\2")
    bench.ring_of(1)
    await bench.cycles(20)
    dut.control__resetting.value = 2
    bench.reset.queue.append(STEP)
    await bench.cycles(20)
    assert not number(dut.control__queue_reset__valid)
    bench.ring_of(1)
    assert await bench.serve() == (1, b"\1")
    await bench.cycles(3000)
    assert not number(dut.control__pending)
    assert {bench.function_at(addr) for addr, _ in bench.memory.reads} == {1}
    dut.control__resetting.value = 0
    bench.ring_of(1)
    assert await bench.serve() == (2, b"\2")
