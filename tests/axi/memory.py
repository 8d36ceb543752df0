"""An AXI4 memory that uses every freedom that the specification gives a slave.

Channels are cocotbext-axi's. Responses of reads come in any order, beat by beat; a read looks at
memory at some time between its request and its response; writes become visible with their
responses, which come late and, of one AWID, in order.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from dataclasses import dataclass
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import Event, RisingEdge
from cocotbext.axi import AxiBus
from cocotbext.axi.axi_channels import AxiARSink, AxiAWSink, AxiBSource, AxiRSource, AxiWSink

__all__ = ["PIECE", "AxiMemory", "Weather"]

OKAY, SLVERR, DECERR = 0, 2, 3
FULL_QUEUE = 8
PIECE = 128


@dataclass
class Weather:
    """Cycles until a read or write is answered, and up to so many more; share of cycles in which a
    channel is held; whether beats of different reads alternate."""

    read: int = 5
    read_more: int = 0
    write: int = 5
    write_more: int = 0
    stall: float = 0
    mixed: bool = False


class AxiMemory:
    """``octets`` from address 0 on; DECERR behind them, SLVERR in ``broken``: pieces of ``PIECE``
    bytes, which are shorter than a burst."""

    def __init__(self, dut: Any, prefix: str, octets: np.ndarray, *, seed: int = 1):
        bus = AxiBus.from_prefix(dut, prefix)
        self.octets, self.broken = octets, set[int]()
        self.beat = len(bus.write.w.wdata) // 8
        self._clk, self._rng = dut.clk, random.Random(seed)
        self._ends = [
            kind(one, dut.clk, dut.rst)
            for kind, one in (
                (AxiARSink, bus.read.ar),
                (AxiRSource, bus.read.r),
                (AxiAWSink, bus.write.aw),
                (AxiWSink, bus.write.w),
                (AxiBSource, bus.write.b),
            )
        ]
        for end in self._ends:
            end.log.setLevel(logging.WARNING)
            end.queue_occupancy_limit = FULL_QUEUE
        self.weather = Weather()
        self.cycle = 0
        self.reads: list[Any] = []  # asked for; with their answers' beats
        self.bursts = self.most_writes = self.pending_writes = 0
        self.read_beats: list[int] = []  # cycle of each
        self.written_beats: list[int] = []
        self.functions: set[int] = set()
        self._awake = Event()
        self.set()
        for task in (self._clock(), self._take_reads(), self._give_reads(), self._writes()):
            cocotb.start_soon(task)

    def set(self, **weather: Any) -> None:
        """Behave as ``Weather(**weather)`` says from now on."""
        self.weather = Weather(**weather)
        for end in self._ends:
            end.set_pause_generator(self._pauses() if self.weather.stall else None)
            if not self.weather.stall:
                end.pause = False

    def _pauses(self):
        while True:
            yield self._rng.random() < self.weather.stall

    async def _clock(self) -> None:
        while True:
            await RisingEdge(self._clk)
            self.cycle += 1

    def _check(self, kind: str, a: Any) -> tuple[int, int]:
        """The form of a burst; returns address and number of beats."""
        addr, count = int(getattr(a, f"{kind}addr")), int(getattr(a, f"{kind}len")) + 1
        assert int(getattr(a, f"{kind}burst")) == 1 and 1 << int(getattr(a, f"{kind}size")) == (
            self.beat
        )
        assert addr % self.beat == 0 and addr % 4096 + count * self.beat <= 4096, hex(addr)
        assert int(getattr(a, f"{kind}cache")) == 0b0010 and int(getattr(a, f"{kind}lock")) == 0
        self.functions.add(int(getattr(a, f"{kind}user")))
        return addr, count

    def _status(self, addr: int) -> int:
        if addr + self.beat > len(self.octets):
            return DECERR
        return SLVERR if addr // PIECE in self.broken else OKAY

    async def _take_reads(self) -> None:
        asked = self._ends[0]
        while True:
            a = await asked.recv()
            addr, count = self._check("ar", a)
            assert int(a.arid) not in [one[1] for one in self.reads], "an ARID that is on its way"
            due = self.cycle + self.weather.read + self._rng.randint(0, self.weather.read_more)
            beats = deque((addr + n * self.beat, n == count - 1) for n in range(count))
            self.reads.append((due, int(a.arid), beats))
            self._awake.set()

    async def _give_reads(self) -> None:
        answers = self._ends[1]
        current = None
        while True:
            if not self.reads:
                self._awake.clear()
                await self._awake.wait()
            ready = [one for one in self.reads if one[0] <= self.cycle]
            if not ready or answers.count() >= FULL_QUEUE:
                await RisingEdge(self._clk)
                continue
            if current not in ready or self.weather.mixed:
                current = self._rng.choice(ready) if self.weather.read_more else ready[0]
            addr, last = current[2].popleft()
            status = self._status(addr)
            # What fails has some data too, and nobody may look at it.
            octets = self.octets[addr : addr + self.beat].tobytes() if status == OKAY else b"\xbd"
            answers.send_nowait(
                answers._transaction_obj(
                    rid=current[1],
                    rdata=int.from_bytes(octets, "little"),
                    rresp=status,
                    rlast=last,
                )
            )
            self.read_beats.append(self.cycle)
            if last:
                self.reads.remove(current)

    async def _writes(self) -> None:
        waiting: deque[tuple[int, int, list[Any]]] = deque()
        cocotb.start_soon(self._respond(waiting))
        _, _, addresses, words, _ = self._ends
        while True:
            a = await addresses.recv()
            addr, count = self._check("aw", a)
            assert int(a.awid) == 0
            beats = []
            for n in range(count):
                word = await words.recv()
                assert int(word.wlast) == (n == count - 1), "wlast"
                beats.append((addr + n * self.beat, int(word.wdata), int(word.wstrb)))
                self.written_beats.append(self.cycle)
            due = self.cycle + self.weather.write + self._rng.randint(0, self.weather.write_more)
            waiting.append((due, int(a.awid), beats))
            self.bursts += 1
            self.pending_writes = len(waiting)
            self.most_writes = max(self.most_writes, len(waiting))

    async def _respond(self, waiting: deque[tuple[int, int, list[Any]]]) -> None:
        responses = self._ends[4]
        while True:
            while not waiting or waiting[0][0] > self.cycle or responses.count():
                await RisingEdge(self._clk)
            _, number, beats = waiting.popleft()
            self.pending_writes = len(waiting)
            status = OKAY
            for addr, value, strobe in beats:
                status = status or self._status(addr)
                if self._status(addr) == OKAY:
                    octets = np.frombuffer(value.to_bytes(self.beat, "little"), np.uint8)
                    mask = [bool(strobe >> lane & 1) for lane in range(self.beat)]
                    self.octets[addr : addr + self.beat][mask] = octets[mask]
            responses.send_nowait(responses._transaction_obj(bid=number, bresp=status))
