"""Hosts and wire as they are commonly built: cocotbext-axi's streams and memory, in Python.

``AxiTestbench`` takes the place of ``sim.bench.testbench.Testbench`` on a top built without models
(``sim.bench.testbench.build(models=False)``): every beat passes through Python. Latencies are those
of the streams; there are no settings.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import Event, RisingEdge
from cocotbext.axi import AxiStreamBus, AxiStreamSink, AxiStreamSource, MemoryRegion
from cocotbext.axi.stream import define_stream

from hdl.config import NicConfig
from sim.guest.driver.management import Management
from sim.guest.driver.memory import GuestMemory
from sim.models.platform import Deadline
from sim.models.python_host import MESSAGES, PythonHost

__all__ = ["AxiHost", "AxiTestbench"]

_RESET_CYCLES = 4

# The host port's streams (hdl/ports/host.py), each a packed payload; ``rd_rsp`` has no ready.
_, _Transfer, _Source, _Sink, _ = define_stream(
    "Port", signals=["payload", "valid"], optional_signals=["ready"]
)
_Bus = _Source._bus_obj


def _bits(value: int, low: int, count: int) -> int:
    return value >> low & (1 << count) - 1


class AxiMmio:
    """Register accesses; implements ``sim.guest.driver.platform.Mmio``."""

    def __init__(self, source: Any, sink: Any):
        self._source, self._sink = source, sink
        self._reads: deque[tuple[Event, list[int]]] = deque()
        cocotb.start_soon(self._answers())

    async def read(self, function: int, bar: int, addr: int, size: int) -> int:
        """Read ``size`` (1, 2, 4) bytes that lie within one aligned word."""
        done, value = Event(), list[int]()
        self._reads.append((done, value))
        self._send(function, bar, addr, size, 0, False)
        await done.wait()
        return value[0] >> 8 * (addr & 3) & (1 << 8 * size) - 1

    async def write(self, function: int, bar: int, addr: int, size: int, value: int) -> None:
        """Posted write."""
        self._send(function, bar, addr, size, value, True)

    def _send(self, function: int, bar: int, addr: int, size: int, value: int, write: bool) -> None:
        lane = addr & 3
        strobe = (1 << size) - 1 << lane
        word = function | bar << 8 | (addr & ~3) << 11 | write << 43 | strobe << 44
        self._source.send_nowait(_Transfer(payload=word | value << 8 * lane << 48))

    async def _answers(self) -> None:
        while True:
            answer = await self._sink.recv()
            done, value = self._reads.popleft()
            value.append(int(answer.payload))
            done.set()


class AxiHost(PythonHost):
    """One host with its card; implements ``sim.guest.driver.platform.Platform``."""

    def __init__(self, dut: Any, index: int, *, width: int, size: int, shuffle: int | None):
        def end(kind: Any, name: str) -> Any:
            bus = _Bus.from_prefix(dut, f"nic{index}_host__{name}_")
            made = kind(bus, dut.clk, dut.rst)
            made.log.setLevel(logging.WARNING)
            return made

        super().__init__()
        self._width = width
        self._ram = MemoryRegion(size)
        self.memory = GuestMemory(np.frombuffer(self._ram.mem, np.uint8), seed=shuffle)
        self.mmio = AxiMmio(end(_Source, "mmio__req"), end(_Sink, "mmio__rsp"))
        cocotb.start_soon(self._reads(end(_Sink, "rd_req"), end(_Source, "rd_rsp")))
        cocotb.start_soon(self._writes(end(_Sink, "wr")))

    async def _reads(self, requests: Any, responses: Any) -> None:
        beat = self._width // 8
        while True:
            request = int((await requests.recv()).payload)
            tag, addr, length = _bits(request, 0, 8), _bits(request, 16, 64), _bits(request, 80, 13)
            start, end = addr - addr % beat, addr + length
            if end > self._ram.size:
                raise AssertionError(f"A read outside memory: {length} bytes at {addr:#x}")
            octets = await self._ram.read(addr, length)
            octets = bytes(addr - start) + octets
            for at in range(0, len(octets), beat):
                data = int.from_bytes(octets[at : at + beat], "little")
                last = at + beat >= len(octets)
                responses.send_nowait(_Transfer(payload=tag | data << 8 | last << 8 + self._width))

    async def _writes(self, beats: Any) -> None:
        width, lanes = self._width, self._width // 8
        while True:
            beat = int((await beats.recv()).payload)
            addr = _bits(beat, 12, 64)
            octets = _bits(beat, 89, width).to_bytes(lanes, "little")
            strobe = _bits(beat, 89 + width, lanes)
            low, high = (strobe & -strobe).bit_length() - 1, strobe.bit_length()
            if addr in MESSAGES:
                self.message(addr + low, int.from_bytes(octets[low : low + 4], "little"))
            elif strobe == (1 << high) - (1 << low):
                await self._ram.write(addr + low, octets[low:high])
            else:
                for lane in range(low, high):
                    if strobe >> lane & 1:
                        await self._ram.write(addr + lane, octets[lane : lane + 1])


class AxiTestbench:
    """Clock, reset and hosts; a wire between two cards, or from one to itself.

    ``TX``, ``RX``: the names of a card's streams. For cards whose host port is another than
    ``HostPort`` there is ``make_host``.
    """

    __test__ = False
    TX, RX = "mac_tx", "mac_rx"

    def __init__(
        self, dut: Any, *, config: NicConfig, memory: int = 256 << 20, shuffle: int | None = 1
    ):
        self.dut, self.config = dut, config
        self.period_ps = 1_000_000_000_000 // config.clock_hz // 2 * 2
        self._memory, self._shuffle = memory, shuffle
        self.hosts: list[Any] = []
        self.wires: list[Any] = []
        self._sources: list[Any] = []
        #: Frames that have gone from card to card.
        self.seen: list[bytes] = []

    async def start(self) -> None:
        """Start the clock, reset, create hosts and wire."""
        self.dut.rst.value = 1
        Clock(self.dut.clk, self.period_ps, "ps").start()
        cards = [
            i for i in (0, 1) if getattr(self.dut, f"nic{i}_{self.TX}_tvalid", None) is not None
        ]
        for i in cards:
            self.hosts.append(self.make_host(i, size=self._memory, shuffle=self._shuffle))
            if (link := getattr(self.dut, f"nic{i}_link_up", None)) is not None:
                link.value = 1
        self._join(cards)
        await self.cycles(_RESET_CYCLES)
        self.dut.rst.value = 0
        await self.cycles(1)

    def _join(self, cards: list[int]) -> None:
        """The firmware's registers, and the wire between ``cards``."""
        number = self.config.management_function
        self.management = [Management(host.mmio, number) for host in self.hosts]
        sinks = [self._end(AxiStreamSink, f"nic{i}_{self.TX}") for i in cards]
        self._sources = [self._end(AxiStreamSource, f"nic{i}_{self.RX}") for i in cards]
        for sink, source in zip(sinks, reversed(self._sources), strict=True):
            cocotb.start_soon(self._wire(sink, source))

    def make_host(self, index: int, *, size: int, shuffle: int | None) -> Any:
        """Return the host of a card."""
        return AxiHost(self.dut, index, width=self.config.width, size=size, shuffle=shuffle)

    def deadline(self, cycles: int, report: Callable[[], Any] | None = None) -> Deadline:
        """Fail the test after that many cycles; ``report`` says what was stuck."""
        return Deadline(cycles, self.period_ps, report)

    async def cycles(self, count: int) -> None:
        """Wait for ``count`` rising edges of the clock."""
        for _ in range(count):
            await RisingEdge(self.dut.clk)

    def inject(self, card: int, frame: bytes) -> None:
        """Send a frame to a card, after those before it."""
        self._sources[card].send_nowait(frame)

    def _end(self, kind: Any, name: str) -> Any:
        bus = AxiStreamBus.from_prefix(self.dut, name)
        made = kind(bus, self.dut.clk, self.dut.rst)
        made.log.setLevel(logging.WARNING)
        return made

    async def _wire(self, sink: Any, source: Any) -> None:
        while True:
            frame = await sink.recv()
            if not frame.tuser:
                self.seen.append(bytes(frame.tdata))
                await source.send(self.seen[-1])
