"""A driver of the network function in plain Python, and the ports of ``Network`` around it.

Spec: Virtio 1.2, 2.7 and 5.1. Nothing here comes from the gateware but the shapes of its ports.
"""

from __future__ import annotations

import random
import struct
from collections import deque
from itertools import pairwise
from typing import Any

from cocotb.triggers import RisingEdge

from hdl.config import FUNCTION_NET, NicConfig
from hdl.network.network import Network
from hdl.ports.host import placed_beat
from hdl.ports.jobs import Doorbell, Interrupt, QueueError
from hdl.ports.network import NetworkCounts, NetworkSettings
from sim.bench.packet_stream import beats, packets
from sim.bench.pins import Pin, reader
from tests.fields import pack, unpack
from tests.queues.drive import Bench, QueueRows, ReadPort, Sink, Source, WritePort
from tests.queues.host import Queue

MAC = bytes.fromhex("02a0b0c0d0e0")
BROADCAST = b"\xff" * 6
HEADER = 12
CSUM, GUEST_CSUM, MRG_RXBUF = 1 << 0, 1 << 1, 1 << 15
PAIRS = 2
#: Numbers of reasons, as docs/ingress.md lists the counters of the trace.
GOOD = 0


def small_config(width: int) -> NicConfig:
    return NicConfig(width=width, network=PAIRS)


def frame_of(rng: random.Random, length: int, to: bytes = MAC) -> bytes:
    """A frame without FCS that is none of RDMA."""
    return to + rng.randbytes(length - 6)


class LanesPort(ReadPort):
    """A read client in address lanes."""

    def _accept(self, request: dict[str, int]) -> None:
        bench, lanes = self.bench, self.bench.width // 8
        addr, length = request["addr"], request["length"]
        assert 1 <= length <= 4096, f"a read of {length} bytes"
        assert request["function"] == bench.function_at(addr), request
        block, failed = bench.memory.read(addr, length)
        due = bench.now + self.latency + (bench.rng.randrange(8) if self.stall else 0)
        lane = addr % lanes
        rng = bench.rng
        block = rng.randbytes(lane) + block
        block += rng.randbytes(-len(block) % lanes)
        for at in range(0, len(block), lanes):
            last = at + lanes == len(block)
            beat = int.from_bytes(block[at : at + lanes], "little")
            beat |= (at == 0) << (bench.width + lanes)
            beat |= last << (bench.width + lanes + 1)
            beat |= (last and failed) << (bench.width + lanes + 2)
            self.beats.append((due, beat))


class PlacedPort(WritePort):
    """A placed write client, as the write engine takes it."""

    def __init__(self, bench: Bench, name: str, stall: float = 0.0):
        super().__init__(bench, name, stall)
        self.shape, self.before, self.more = placed_beat(bench.width), b"", False
        self.addr = 0

    def cycle(self) -> None:
        bench, lanes = self.bench, self.bench.width // 8
        if self.ready.value and self.valid():
            beat = unpack(self.shape, self.payload())
            data = beat["data"].to_bytes(lanes, "little")
            moved = (self.before.rjust(lanes, b"\0") + data)[lanes - beat["up"] :][:lanes]
            self.before = data
            assert bool(beat["first"]) == (not self.burst), "first in the wrong place"
            start, stop = beat["start"], beat["stop"]
            assert start < stop <= lanes
            if beat["first"]:
                assert beat["addr"] % lanes == 0
                self.addr, self.stream = beat["addr"] + start, beat["stream_id"]
                assert beat["function"] == FUNCTION_NET
            else:
                assert start == 0
            assert beat["last"] or stop == lanes
            self.burst += moved[start:stop]
            if beat["last"]:
                assert 1 <= len(self.burst) <= 4096
                bench.memory.write(self.addr, self.burst, self.stream)
                bench.event("frame", self.addr, self.burst)
                self.burst = b""
        self.ready.drive(bench.rng.random() >= self.stall)


class Tap:
    """What the ingress takes, and its verdicts ``DELAY`` cycles behind each frame."""

    DELAY = 20

    def __init__(self, bench: NetBench, gap: float):
        dut = bench.dut
        self.valid, self.beat = Pin(dut.received__valid, 0), dut.received__beat
        self.verdict = Pin(dut.verdict, 0)
        self.bench, self.gap = bench, gap
        self.queue: deque[tuple[int, int | None]] = deque()  # beat; reasons of the last one
        self.verdicts: deque[tuple[int, int]] = deque()
        bench.ports.append(self)

    def send(self, frame: bytes, reasons: int, *, error: bool = False) -> None:
        words = beats(frame, self.bench.width, error=error)
        for n, word in enumerate(words):
            self.queue.append((word, reasons if n == len(words) - 1 else None))

    def cycle(self) -> None:
        now, rng = self.bench.now, self.bench.rng
        if self.queue and rng.random() >= self.gap:
            word, reasons = self.queue.popleft()
            self.beat.value = word
            self.valid.drive(1)
            if reasons is not None:
                self.verdicts.append((now + self.DELAY, reasons))
        else:
            self.valid.drive(0)
        if self.verdicts and self.verdicts[0][0] <= now:
            self.verdict.drive(1 | self.verdicts.popleft()[1] << 1)
        else:
            self.verdict.drive(0)


class NetBench(Bench):
    """``Network`` between a host and a wire in Python."""

    TOP = staticmethod(lambda width: Network(config=small_config(width)))
    WRITES = "used"

    def __init__(self, dut: Any, *, seed: int = 1, latency: int = 10, stall: float = 0.0):
        super().__init__(dut, seed=seed)
        self.functions = [FUNCTION_NET, FUNCTION_NET]
        self.latency, self.stall = latency, stall
        self.rules = {"indirect": 1, "event_idx": 0}

    async def begin(self, *, features: int = 0, gap: float = 0.0, **settings: Any) -> None:
        """Start with the driver running."""
        await self.start()
        latency, stall = self.latency, self.stall
        for name in ("rings_receive", "rings_transmit"):
            ReadPort(self, name, latency, stall)
        self.frames_read = LanesPort(self, "frames_read", latency, stall)
        self.frames_write = PlacedPort(self, "frames_write", stall)
        WritePort(self, "used", stall)
        for name in ("receive", "receive_used", "transmit", "transmit_used"):
            QueueRows(self, f"rows_{name}")
        self.doorbell = Source(self, "doorbell", Doorbell, stall)
        self.queue_reset = Source(self, "queue_reset", 16)
        self.interrupts = Sink(self, "interrupt", Interrupt, stall)
        self.errors = Sink(self, "error", QueueError, stall)
        self.tap = Tap(self, gap)
        payload, valid, ready = self.stream("sent")
        self._sent = reader(payload), reader(valid), Pin(ready, 0)
        self.sent_words: list[int] = []
        self.sent_times: list[int] = []
        self.open = True  # the wire takes beats
        self.ports.append(_Wire(self))
        self.dut.features.value = features
        self.features = features
        self.settings = {"mac": int.from_bytes(MAC, "little"), **settings}
        self.set(running=1)
        await RisingEdge(self.dut.clk)

    def set(self, **settings: Any) -> None:
        self.settings |= settings
        self.dut.settings.value = pack(NetworkSettings, self.settings)

    def sent(self) -> list[tuple[bytes, bool]]:
        words = self.sent_words
        ends = [n for n, word in enumerate(words) if word >> (self.width * 9 // 8 + 1) & 1]
        return list(packets(words[: ends[-1] + 1], self.width)) if ends else []

    def counts(self) -> dict[str, int]:
        return unpack(NetworkCounts, reader(self.dut.counts)())

    def kick(self, queue: int) -> None:
        self.doorbell.queue.append({"queue": queue})

    def raised(self, vector: int) -> int:
        return sum(one["vector"] == vector for one in self.interrupts.items)


class _Wire:
    """Takes what is sent, and sees that a frame has no gap."""

    def __init__(self, bench: NetBench):
        self.bench, self.inside = bench, False

    def cycle(self) -> None:
        bench = self.bench
        payload, valid, ready = bench._sent
        if ready.value:
            there = valid()
            assert there or not self.inside, "a gap in a frame"
            if there:
                word = payload()
                bench.sent_words.append(word)
                last = word >> (bench.width * 9 // 8 + 1) & 1
                self.inside = not last
                if last:
                    bench.sent_times.append(bench.now)
        ready.drive(int(bench.open and bench.rng.random() >= bench.stall))


class Receiver:
    """The driver's side of a receive queue."""

    def __init__(self, bench: NetBench, pair: int, size: int = 256, vector: int = 0xFFFF):
        self.bench, self.pair, self.number = bench, pair, 2 * pair
        self.queue = Queue(bench.memory, self.number, size, vector)
        bench.queues[self.number] = self.queue
        self.posted: dict[int, list[tuple[int, int]]] = {}
        self.seen, self.frames, self.headers = 0, [], []
        self.lengths: list[int] = []

    def post(self, *lengths: int, indirect: bool = False, shift: int | None = None) -> None:
        """A chain of buffers of these lengths."""
        memory, rng = self.bench.memory, self.bench.rng
        parts = []
        for length in lengths:
            addr = memory.alloc(length + 64)
            parts.append((addr + (rng.randrange(64) if shift is None else shift), length))
        head = self.queue.chain(
            [(addr, length, True) for addr, length in parts], indirect_from=0 if indirect else None
        )
        self.posted[head] = parts
        self.queue.offer(head)

    def reap(self) -> int:
        """Look at what has come; returns how many frames have."""
        queue, index = self.queue, self.queue.used_index()
        while self.seen != index:
            whole, chains, done = b"", 1, 0
            while done < chains or len(whole) < HEADER:
                assert self.seen != index, "a frame's buffers are not all there"
                head, length = queue.used(self.seen)
                self.seen, done = (self.seen + 1) & 0xFFFF, done + 1
                rest = length
                for addr, size in self.posted.pop(head):
                    whole += self.bench.memory.get(addr, min(size, rest)) if rest else b""
                    rest -= min(size, rest)
                assert rest == 0, "more written than there is room"
                if len(whole) >= HEADER:
                    chains = struct.unpack_from("<H", whole, 10)[0]
            self.headers.append(whole[:HEADER])
            self.frames.append(whole[HEADER:])
        return len(self.frames)


class Sender:
    """The driver's side of a transmit queue."""

    def __init__(self, bench: NetBench, pair: int, size: int = 256, vector: int = 0xFFFF):
        self.bench, self.pair, self.number = bench, pair, 2 * pair + 1
        self.queue = Queue(bench.memory, self.number, size, vector)
        bench.queues[self.number] = self.queue
        self.sent = 0

    def post(self, data: bytes, cuts: tuple[int, ...] = (), indirect_from: int | None = None):
        """A chain with these bytes, header and frame, cut at ``cuts``."""
        memory, rng = self.bench.memory, self.bench.rng
        edges = [0, *cuts, len(data)]
        parts = []
        for start, end in pairwise(edges):
            addr = memory.alloc(end - start + 64) + rng.randrange(64)
            memory.put(addr, data[start:end])
            parts.append((addr, end - start, False))
        head = self.queue.chain(parts, indirect_from=indirect_from)
        self.queue.offer(head)
        self.sent += 1

    def send(self, frame: bytes, **cut: Any) -> None:
        self.post(bytes(HEADER) + frame, **cut)

    def returned(self) -> int:
        return self.queue.used_index()
