"""Plain-integer read and write clients, and what the engines' benches share."""

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from hdl.ports.host import placed_beat
from sim.bench.pins import number
from tests.host.dma import PLACED

__all__ = ["PlacedWriter", "Reader", "Request", "Writer", "make_writer"]


@dataclass
class Request:
    """A client's read and what came back. ``cycles``: when each beat came."""

    addr: int
    length: int
    function: int = 1
    data: bytearray = field(default_factory=bytearray)
    cycles: list[int] = field(default_factory=list)
    error: bool = False
    accepted: int = -1


class Reader:
    """One read client: issues requests in order, takes the beats, checks their form.

    ``address_lanes``: as of ReadEngine."""

    def __init__(self, dut: Any, index: int, width: int, address_lanes: bool = False):
        self._bytes, self._address_lanes = width // 8, address_lanes
        self._width = width
        self._clk = dut.clk
        prefix = f"nic0_reader{index}__"
        self._valid, self._ready, self._payload, self._rsp_valid, self._rsp = (
            getattr(dut, prefix + name)
            for name in ("req__valid", "req__ready", "req__payload", "rsp__valid", "rsp__payload")
        )
        self._valid.value = 0
        self.waiting: deque[tuple[Request, int]] = deque()
        self.pending: deque[Request] = deque()
        self.done: list[Request] = []
        self.cycle = 0
        cocotb.start_soon(self._send())
        cocotb.start_soon(self._watch())

    def read(self, addr: int, length: int, gap: int = 0) -> Request:
        """Queue a request, to be offered ``gap`` cycles after the one before was accepted."""
        request = Request(addr, length)
        self.waiting.append((request, gap))
        return request

    async def _send(self) -> None:
        while True:
            if not self.waiting:
                await RisingEdge(self._clk)
                continue
            request, gap = self.waiting.popleft()
            for _ in range(gap):
                await RisingEdge(self._clk)
            self._payload.value = request.function | request.addr << 8 | request.length << 72
            self._valid.value = 1
            self.pending.append(request)
            while True:
                await RisingEdge(self._clk)
                if number(self._ready):
                    break
            request.accepted = self.cycle
            self._valid.value = 0

    async def _watch(self) -> None:
        count, width = self._bytes, self._width
        while True:
            await RisingEdge(self._clk)
            self.cycle += 1
            if not number(self._rsp_valid):
                continue
            beat = number(self._rsp)
            keep = beat >> width & ((1 << count) - 1)
            first, last, error = (beat >> (width + count + bit) & 1 for bit in range(3))
            assert self.pending, "a response without a request"
            request = self.pending[0]
            left = request.length - len(request.data)
            assert first == (not request.data), "first"
            skipped = request.addr % count if first and self._address_lanes else 0
            size = min(left, count - skipped)
            assert last == (left == size), "last"
            if not self._address_lanes:
                assert keep == (1 << size) - 1, f"keep {keep:#x}, {left} bytes left"
            assert last or not error, "error before last"
            beat >>= 8 * skipped
            request.data += (beat & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
            request.cycles.append(self.cycle)
            if last:
                request.error = bool(error)
                self.done.append(self.pending.popleft())


class Writer:
    """One write client: sends bursts in order. Bursts whose last beat went are put into ``log``,
    which all clients of a bench share: that is the order in which they were issued."""

    def __init__(self, dut: Any, index: int, width: int, log: list[Any]):
        self._bytes, self._width = width // 8, width
        self._clk, self._log = dut.clk, log
        prefix = f"nic0_writer{index}__beat__"
        self._valid, self._ready, self._payload = (
            getattr(dut, prefix + name) for name in ("valid", "ready", "payload")
        )
        self._valid.value = 0
        self.waiting: deque[tuple[int, bytes, int, float, int]] = deque()
        self.busy = False
        self.beats = 0
        self._rng = random.Random(index)
        cocotb.start_soon(self._send())

    def write(self, addr: int, data: bytes, stream: int = 0, idle: float = 0, cut: int = 0) -> None:
        """Queue a burst; ``idle``: share of cycles without a beat; ``cut``: stop before it."""
        self.waiting.append((addr, data, stream, idle, cut))

    async def _send(self) -> None:
        rng = self._rng
        while True:
            self.busy = bool(self.waiting)
            if not self.waiting:
                await RisingEdge(self._clk)
                continue
            addr, data, stream, idle, cut = self.waiting.popleft()
            for i, value in enumerate(self._values(addr, data, stream)):
                if cut and i == cut:
                    break
                while idle and rng.random() < idle:
                    await RisingEdge(self._clk)
                self._payload.value = value
                self._valid.value = 1
                while True:
                    await RisingEdge(self._clk)
                    if number(self._ready):
                        break
                self._valid.value = 0
                self.beats += 1
            else:
                self._log.append((addr, data, stream))

    def _values(self, addr: int, data: bytes, stream: int) -> Iterator[int]:
        """The beats of a burst."""
        rng, count, width = self._rng, self._bytes, self._width
        for at in range(0, len(data), count):
            piece = data[at : at + count]
            first, last = at == 0, at + count >= len(data)
            # Addresses are valid on ``first`` only: anything else must not matter.
            where = addr if first else rng.getrandbits(64)
            value = (stream if first else rng.getrandbits(4)) | 1 << 4 | where << 12
            value |= int.from_bytes(piece, "little") << 76
            value |= ((1 << len(piece)) - 1) << (76 + width)
            yield value | (first | last << 1) << (76 + width + count)


class PlacedWriter(Writer):
    """A client that places its bytes: what is one burst elsewhere are two here, if that is possible
    so that the second begins with bytes of a beat that the first has begun."""

    def _values(self, addr: int, data: bytes, stream: int) -> Iterator[int]:
        rng, count = self._rng, self._bytes
        layout = placed_beat(self._width)
        cut = rng.randrange(len(data))
        cut = cut if cut % count else 0
        beats = [data[at : at + count] for at in range(0, len(data), count)]
        place, current = 0, b""  # from this lane of the current beat on nothing is used
        for begin, end in ((0, cut), (cut, len(data))):
            at = begin
            while at < end:
                first = at == begin
                start = (addr + begin) % count if first else 0
                size = min(count - start, end - at)
                if not place or place + size > count:
                    current = beats.pop(0)
                up, place = (start - place) % count, (place + size) % count
                at += size
                value = {
                    "stream_id": stream if first else rng.getrandbits(4),
                    "function": 1,
                    "addr": addr + begin if first else rng.getrandbits(64),
                    "data": int.from_bytes(current, "little"),
                    "up": up,
                    "start": start,
                    "stop": start + size,
                    "first": first,
                    "last": at == end,
                    "more": place != 0 and at < len(data),
                }
                yield layout.const(value).as_bits()


def make_writer(dut: Any, index: int, width: int, log: list[Any]) -> Writer:
    """The client of this number of the test's engine."""
    return (PlacedWriter if index == PLACED else Writer)(dut, index, width, log)
