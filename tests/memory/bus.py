"""Drives the ports of the memory room cycle by cycle, with plain integers."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly

from hdl.ports.host import ReadRequest, read_beat
from hdl.ports.jobs import SinkWrite, WqeRead
from hdl.ports.rows import MrRow
from sim.bench.pins import Pin, reader
from tests.fields import pack, unpack
from tests.memory.model import Memory, Model


class Bus:
    """Runs the clock; in each cycle first all ``drive``, then (all settled) all ``sample``."""

    def __init__(self, dut, deadline: int):
        self.dut, self.deadline, self.now = dut, deadline, 0
        self.parts: list[Any] = []

    async def start(self, part: str) -> None:
        """Reset; the ports of the other direction stay idle."""
        other = "scatter" if part == "gather" else "gather"
        for handle in self.dut:
            name = handle._name
            if name.startswith(other) and name.endswith(("valid", "ready", "start")):
                try:
                    handle.value = 0
                except Exception:  # an output
                    continue
        self.dut.rst.value = 1
        cocotb.start_soon(Clock(self.dut.clk, 4, "ns").start())
        for _ in range(4):
            await FallingEdge(self.dut.clk)
        self.dut.rst.value = 0

    async def cycle(self) -> None:
        for part in self.parts:
            part.drive()
        await ReadOnly()
        for part in self.parts:
            part.sample()
        await FallingEdge(self.dut.clk)
        self.now += 1
        assert self.now < self.deadline, "deadline: " + ", ".join(
            f"{part.name} {len(part.items)}" for part in self.parts if hasattr(part, "items")
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self.cycle()


class Source:
    """Sends ``items`` (integers or callables giving one) on a stream; ``times`` of acceptance."""

    def __init__(self, bus: Bus, name: str, rng: random.Random, idle: float = 0.0):
        self.bus, self.name, self.rng, self.idle = bus, name, rng, idle
        self.valid = Pin(getattr(bus.dut, f"{name}__valid"), False)
        self.ready = reader(getattr(bus.dut, f"{name}__ready"))
        self.payload = getattr(bus.dut, f"{name}__payload")
        self.items: deque = deque()
        self.times: list[int] = []
        self.on = False
        bus.parts.append(self)

    def drive(self) -> None:
        if not self.on and self.items and (not self.idle or self.rng.random() >= self.idle):
            item = self.items[0]
            self.payload.value = item() if callable(item) else item
            self.on = True
        self.valid.drive(self.on)

    def sample(self) -> None:
        if self.on and self.ready():
            self.items.popleft()
            self.times.append(self.bus.now)
            self.on = False


class Sink:
    """Takes what a stream gives into ``items``, or gives it to ``take``; checks stability."""

    def __init__(
        self, bus: Bus, name: str, rng: random.Random, stall: float = 0.0, take: Any = None
    ):
        self.bus, self.name, self.rng, self.stall = bus, name, rng, stall
        self.valid = reader(getattr(bus.dut, f"{name}__valid"))
        self.ready = Pin(getattr(bus.dut, f"{name}__ready"), True)
        self.payload = reader(getattr(bus.dut, f"{name}__payload"))
        self.items: list[int] = []
        self.times: list[int] = []
        self.take, self.waiting, self.on = take, None, True
        bus.parts.append(self)

    def drive(self) -> None:
        self.on = not self.stall or self.rng.random() >= self.stall
        self.ready.drive(self.on)

    def sample(self) -> None:
        if not self.valid():
            assert self.waiting is None, f"{self.name}: valid taken back"
            return
        value = self.payload()
        assert self.waiting in (None, value), f"{self.name}: payload changed"
        self.waiting = None if self.on else value
        if self.on:
            self.times.append(self.bus.now)
            if self.take:
                self.take(value)
            else:
                self.items.append(value)


class Reader:
    """Serves a read client from memory, in order, after ``latency`` cycles at least. All reads must
    be those of ``function``.

    ``address_lanes``: with the aligned beats that the request touches, and without ``keep``."""

    def __init__(
        self,
        bus: Bus,
        name: str,
        memory: Memory,
        width: int,
        rng: random.Random,
        *,
        function: int,
        latency: int = 20,
        idle: float = 0.0,
        stall: float = 0.0,
        address_lanes: bool = False,
    ):
        self.bus, self.name, self.memory, self.width, self.rng = bus, name, memory, width, rng
        self.address_lanes, self.function = address_lanes, function
        self.latency, self.idle = latency, idle
        self.layout = read_beat(width)
        self.valid = Pin(getattr(bus.dut, f"{name}__rsp__valid"), False)
        self.payload = getattr(bus.dut, f"{name}__rsp__payload")
        self.items: deque = deque()
        self.requests: list[dict] = []
        self.due = 0
        bus.parts.append(self)
        self.sink = Sink(bus, f"{name}__req", rng, stall, self.take)

    def take(self, value: int) -> None:
        request = unpack(ReadRequest, value)
        self.requests.append(request)
        addr, length = request["addr"], request["length"]
        assert 1 <= length <= 4096 and addr % 4096 + length <= 4096, request
        assert request["function"] == self.function, request
        lanes = self.width // 8
        due = self.bus.now + self.latency + (self.rng.randrange(40) if self.idle else 0)
        before = addr % lanes if self.address_lanes else 0
        content = self.rng.randbytes(before) + self.memory.read(addr, length)
        for at in range(0, len(content), lanes):
            part = content[at : at + lanes]
            last = at + lanes >= len(content)
            beat = {
                "data": int.from_bytes(part, "little"),
                "keep": 0 if self.address_lanes else (1 << len(part)) - 1,
                "first": at == 0,
                "last": last,
                "error": last and self.memory.fails(addr, length),
            }
            self.items.append((due, pack(self.layout, beat)))

    def drive(self) -> None:
        on = bool(self.items) and self.items[0][0] <= self.bus.now
        on = on and (not self.idle or self.rng.random() >= self.idle)
        if on:
            self.payload.value = self.items.popleft()[1]
        self.valid.drive(on)

    def sample(self) -> None:
        pass


class Table:
    """A table on a read port: ``rows`` tells the row of an index, which comes a cycle later and
    stays."""

    def __init__(self, bus: Bus, name: str, rows: Callable[[int], int]):
        self.rows = rows
        self.index = reader(getattr(bus.dut, f"{name}__index"))
        self.enable = reader(getattr(bus.dut, f"{name}__enable"))
        self.row = getattr(bus.dut, f"{name}__row")
        self.row.value = 0
        self.next: int | None = None
        bus.parts.append(self)

    def drive(self) -> None:
        if self.next is not None:
            self.row.value = self.next
            self.next = None

    def sample(self) -> None:
        if self.enable():
            self.next = self.rows(self.index())


def regions(model: Model) -> Callable[[int], int]:
    """Return the rows of a table of regions."""

    def row(index: int) -> int:
        # beyond the table there is no memory: what comes is some row
        region = model.regions.get(index % model.mrs)
        return pack(MrRow, region.row()) if region else 0

    return row


class Kept:
    """Notes the SGEs of READs that are to be kept."""

    def __init__(self, bus: Bus, name: str):
        self.value = reader(getattr(bus.dut, name))
        self.items: list[tuple[int, int, int, int]] = []
        self.name = name
        bus.parts.append(self)

    def drive(self) -> None:
        pass

    def sample(self) -> None:
        value = self.value()
        if value & 1:
            row = unpack(SinkWrite, value)
            sink = row["sink"]
            self.items.append((sink["number"], sink["long"], row["slot"], row["data"]))


class Lines:
    """WQE lines on a read port: ``slots[line, slot]``."""

    def __init__(self, bus: Bus, name: str):
        self.address = reader(getattr(bus.dut, name))
        self.enable = reader(getattr(bus.dut, f"{name}_enable"))
        self.data = getattr(bus.dut, f"{name}_data")
        self.data.value = 0
        self.slots: dict[tuple[int, int], int] = {}
        self.store = 0  # that is read; there is one
        self.next: int | None = None
        bus.parts.append(self)

    def fill(self, line: int, sges: list[tuple[int, int, int]]) -> None:
        for slot, (addr, length, key) in enumerate(sges):
            self.slots[line, slot] = addr | length << 64 | key << 96

    def fill_inline(self, line: int, content: bytes) -> None:
        for slot in range(0, len(content), 16):
            part = content[slot : slot + 16].ljust(16, b"\xee")
            self.slots[line, slot // 16] = int.from_bytes(part, "little")

    def drive(self) -> None:
        if self.next is not None:
            self.data.value = self.next
            self.next = None

    def sample(self) -> None:
        if self.enable():
            at = unpack(WqeRead, self.address())
            assert at["store"] == self.store
            self.next = self.slots.get((at["line"], at["slot"]), (1 << 128) - 1)
