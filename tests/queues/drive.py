"""Ports of the engines, served from plain Python inside cocotb, one call per port and cycle."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import cocotb
from amaranth.hdl import Const
from amaranth.lib.wiring import In
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from hdl.ports.host import ReadRequest, write_beat
from hdl.ports.rows import QueueRow
from sim.bench.pins import Pin, reader
from tests.fields import pack, unpack
from tests.queues.host import Memory
from tests.queues.top import FUNCTION, QueuesTop


class Source:
    """Offers what is appended to ``queue``, with random gaps."""

    def __init__(self, bench: Bench, name: str, shape: Any, gap: float = 0.0):
        self.payload, self.valid, ready = bench.stream(name)
        self.ready = reader(ready)
        self.shape, self.gap, self.queue, self.rng = shape, gap, deque(), bench.rng
        self.offered, self.taken = False, 0
        self.valid.value = 0
        bench.ports.append(self)

    def cycle(self) -> None:
        if self.offered and self.ready():
            self.offered = False
            self.taken += 1
            self.valid.value = 0
        if not self.offered and self.queue and self.rng.random() >= self.gap:
            self.payload.value = pack(self.shape, self.queue.popleft())
            self.valid.value = 1
            self.offered = True


class Sink:
    """Collects in ``items``, with random stalls."""

    def __init__(self, bench: Bench, name: str, shape: Any, stall: float = 0.0):
        payload, valid, ready = bench.stream(name)
        self.payload, self.valid, self.ready = reader(payload), reader(valid), Pin(ready, False)
        self.shape, self.stall, self.items, self.rng = shape, stall, [], bench.rng
        self.bench, self.times = bench, []
        bench.ports.append(self)

    def cycle(self) -> None:
        if self.ready.value and self.valid():
            self.items.append(unpack(self.shape, self.payload()))
            self.times.append(self.bench.now)
        self.ready.drive(self.rng.random() >= self.stall)


class ReadPort:
    """A read client: answers from memory, in order, after ``latency`` cycles or more."""

    def __init__(self, bench: Bench, name: str, latency: int = 10, stall: float = 0.0):
        payload, valid, ready = bench.stream(f"{name}__req")
        self.payload, self.valid, self.ready = reader(payload), reader(valid), Pin(ready, False)
        self.rsp = getattr(bench.dut, f"{name}__rsp__payload")
        self.rsp_valid = getattr(bench.dut, f"{name}__rsp__valid")
        self.bench, self.latency, self.stall = bench, latency, stall
        self.beats: deque[tuple[int, int]] = deque()  # (earliest cycle, beat)
        self.rsp_valid.value = 0
        self.driving = False
        self.idle_data = 0
        bench.ports.append(self)

    def cycle(self) -> None:
        bench = self.bench
        if self.ready.value and self.valid():
            self._accept(unpack(ReadRequest, self.payload()))
        self.ready.drive(bench.rng.random() >= self.stall)
        if self.beats and self.beats[0][0] <= bench.now and bench.rng.random() >= self.stall:
            self.rsp.value = self.beats.popleft()[1]
            self.rsp_valid.value = 1
            self.driving = True
        elif self.driving:
            self.rsp_valid.value = 0
            self.driving = False

    def _accept(self, request: dict[str, int]) -> None:
        bench, width = self.bench, self.bench.width
        lanes, length = width // 8, request["length"]
        assert 1 <= length <= 4096, f"a read of {length} bytes"
        assert request["function"] == bench.function_at(request["addr"]), request
        block, failed = bench.memory.read(request["addr"], length)
        due = bench.now + self.latency + (bench.rng.randrange(8) if self.stall else 0)
        for at in range(0, length, lanes):
            part = block[at : at + lanes]
            last = at + lanes >= length
            # What lies in the lanes beyond keep is nobody's promise.
            beat = int.from_bytes(part + bench.rng.randbytes(lanes - len(part)), "little")
            beat |= ((1 << len(part)) - 1) << width
            beat |= (at == 0) << (width + lanes)
            beat |= last << (width + lanes + 1)
            beat |= (last and failed) << (width + lanes + 2)
            self.beats.append((due, beat))


class WritePort:
    """A write client: checks the bursts and puts them into memory when their last beat comes."""

    def __init__(self, bench: Bench, name: str, stall: float = 0.0):
        payload, valid, ready = bench.stream(f"{name}__beat")
        self.payload, self.valid, self.ready = reader(payload), reader(valid), Pin(ready, False)
        self.bench, self.stall = bench, stall
        self.shape, self.burst, self.head = write_beat(bench.width), b"", {}
        bench.ports.append(self)

    def cycle(self) -> None:
        bench = self.bench
        if self.ready.value and self.valid():
            beat = unpack(self.shape, self.payload())
            count = beat["keep"].bit_count()
            assert beat["keep"] == (1 << count) - 1, "keep has holes"
            assert beat["last"] or count == bench.width // 8, "a short beat that is not last"
            assert bool(beat["first"]) == (not self.burst), "first in the wrong place"
            if beat["first"]:
                self.head = beat
                assert beat["function"] == bench.function_at(beat["addr"])
            self.burst += beat["data"].to_bytes(bench.width // 8, "little")[:count]
            if beat["last"]:
                assert 1 <= len(self.burst) <= 4096
                if bench.ASKS:
                    place = self.head["addr"], len(self.burst)
                    assert place in (queue.event for queue in bench.queues.values())
                bench.memory.write(self.head["addr"], self.burst, self.head["stream_id"])
                bench.event("write", self.head["addr"], self.burst)
                self.burst = b""
        self.ready.drive(bench.rng.random() >= self.stall)


class QueueRows:
    """The table of virtqueues: answers in the next cycle, holds until the next enabled read."""

    def __init__(self, bench: Bench, name: str):
        dut = bench.dut
        self.index = reader(getattr(dut, f"{name}__index"))
        self.enable = reader(getattr(dut, f"{name}__enable"))
        self.row = getattr(dut, f"{name}__row")
        self.bench = bench
        self.row.value = 0
        bench.ports.append(self)

    def cycle(self) -> None:
        if self.enable():
            queue = self.bench.queues.get(self.index())
            row = queue.row if queue else {}
            self.row.value = pack(QueueRow, row | {"rules": self.bench.rules})


def any_function(seed: int) -> int:
    """A function's number; that of an odd ``seed`` is the complement of that of the one before."""
    return random.Random(seed // 2).getrandbits(8) ^ (0xFF if seed % 2 else 0)


class Bench:
    """Clock, reset and ports of one test. ``functions``: what accesses must carry, by the owner of
    the memory; ``function`` is that of the first. ``rules``: of all rings (``RingRules``).

    TOP: of the model. WRITES: one of its write clients. ASKS: the engine writes nothing but what
    asks for a notification."""

    TOP: type[Any] = QueuesTop
    WRITES = "send__write_client"
    ASKS = False

    def __init__(self, dut: Any, *, seed: int = 1):
        self.dut, self.rng = dut, random.Random(seed)
        self.width = (len(getattr(dut, f"{self.WRITES}__beat__payload")) - 4 - 8 - 64 - 2) * 8 // 9
        self.memory, self.queues = Memory(seed=seed), {}
        self.rules = {"indirect": 1}
        self.ports: list[Any] = []
        self.now, self.functions = 0, [FUNCTION, FUNCTION]
        self.events: list[tuple] = []

    def stream(self, name: str):
        dut = self.dut
        return tuple(getattr(dut, f"{name}__{part}") for part in ("payload", "valid", "ready"))

    def event(self, *what: Any) -> None:
        self.events.append((self.now, *what))

    @property
    def function(self) -> int:
        return self.functions[0]

    def function_at(self, addr: int) -> int:
        """The function that an access to ``addr`` must carry."""
        return self.functions[self.memory.owner_of(addr)]

    async def start(self, *, again: bool = False) -> None:
        """Reset and run the ports. Everything not served is driven with 0.

        again: the clock of an earlier bench of the same test is running."""
        dut = self.dut
        if not again:
            cocotb.start_soon(Clock(dut.clk, 4000, "ps").start())
        top = self.TOP(width=self.width)
        for path, member, value in top.signature.flatten(top):
            if member.flow == In and not isinstance(value, Const):
                getattr(dut, "__".join(map(str, path))).value = 0
        dut.rst.value = 1
        for _ in range(3):
            await RisingEdge(dut.clk)
        dut.rst.value = 0
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        while True:
            await RisingEdge(self.dut.clk)
            self.now += 1
            for port in self.ports:
                port.cycle()

    async def until(self, condition, cycles: int, what: str = "") -> None:
        """Wait for ``condition()``; fails after ``cycles``."""
        for _ in range(cycles):
            if condition():
                return
            await RisingEdge(self.dut.clk)
        raise AssertionError(f"not within {cycles} cycles: {what}")

    async def cycles(self, count: int) -> None:
        for _ in range(count):
            await RisingEdge(self.dut.clk)
