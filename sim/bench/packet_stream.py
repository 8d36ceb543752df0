"""Packets as beats of ``hdl.common.packet``, and cocotb drivers for streams of plain integers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sim.bench.pins import reader

__all__ = [
    "Sink",
    "Source",
    "always",
    "beats",
    "every",
    "never",
    "packets",
    "sometimes",
]


def beats(packet: bytes, width: int, *, error: bool = False) -> list[int]:
    """A packet as payload integers of a packet stream."""
    size = width // 8
    out = []
    for at in range(0, len(packet), size):
        part = packet[at : at + size]
        last = at + size >= len(packet)
        beat = int.from_bytes(part, "little")
        beat |= ((1 << len(part)) - 1) << width
        beat |= (int(at == 0) | int(last) << 1 | int(last and error) << 2) << (width + size)
        out.append(beat)
    return out


def packets(words: Iterable[int], width: int) -> Iterator[tuple[bytes, bool]]:
    """(packet, error) for payload integers; AssertionError where they break the contract."""
    size = width // 8
    current: bytearray | None = None
    for word in words:
        keep = word >> width & ((1 << size) - 1)
        flags = word >> (width + size)
        first, last, error = flags & 1, flags >> 1 & 1, flags >> 2 & 1
        assert keep and keep & (keep + 1) == 0, f"keep {keep:#x} is not contiguous"
        assert last or keep + 1 == 1 << size, f"keep {keep:#x} before last"
        assert bool(first) == (current is None), "first is in the wrong place"
        current = current or bytearray()
        current += (word & ((1 << width) - 1)).to_bytes(size, "little")[: keep.bit_length()]
        if last:
            yield bytes(current), bool(error)
            current = None
    assert current is None, "the last packet has no end"


Pattern = Callable[[], bool]


def never() -> bool:
    """No cycle is a gap."""
    return False


def always() -> bool:
    """Every cycle is a gap."""
    return True


def every(count: int) -> Pattern:
    """Each ``count``-th cycle is no gap."""
    state = [0]

    def gap() -> bool:
        state[0] = (state[0] + 1) % count
        return state[0] != 0

    return gap


def sometimes(share: float, seed: int) -> Pattern:
    """That share of the cycles, at random, is a gap."""
    generator = random.Random(seed)
    return lambda: generator.random() < share


class Source:
    """Drives words into the stream ``name`` of ``dut``; ``run`` returns when all are accepted.

    ``sent``: words accepted; ``stalls``: cycles in which a word waited.
    """

    def __init__(self, dut: Any, name: str, *, idle: Pattern = never):
        self._clock = dut.clk
        self._valid = getattr(dut, f"{name}__valid")
        self._ready = reader(getattr(dut, f"{name}__ready"))
        self._payload = getattr(dut, f"{name}__payload")
        self._valid.value = 0
        self.idle = idle
        self.sent = 0
        self.stalls = 0

    async def run(self, words: Iterable[int]) -> None:
        """Send all words."""
        from cocotb.triggers import RisingEdge

        edge = RisingEdge(self._clock)
        idle, valid, ready, payload = self.idle, self._valid, self._ready, self._payload
        driven = False
        for word in words:
            while idle():
                if driven:
                    valid.value, driven = 0, False
                await edge
            payload.value = word
            if not driven:
                valid.value, driven = 1, True
            await edge
            while not ready():
                self.stalls += 1
                await edge
            self.sent += 1
        valid.value = 0


class Sink:
    """Takes words from the stream ``name``: ``words``, and the clock cycle of each in ``cycles``.

    Checks that a word that waits does not change and does not go away.
    """

    def __init__(self, dut: Any, name: str, *, stall: Pattern = never):
        self._clock = dut.clk
        self._valid = reader(getattr(dut, f"{name}__valid"))
        self._ready = getattr(dut, f"{name}__ready")
        self._payload = reader(getattr(dut, f"{name}__payload"))
        self._ready.value = 0
        self.name = name
        self.stall = stall
        self.words: list[int] = []
        self.cycles: list[int] = []
        self.cycle = 0
        self._waiting: int | None = None

    def forget(self) -> None:
        """A reset takes back the word that waits."""
        self._waiting = None

    async def run(self) -> None:
        """Take words for ever."""
        from cocotb.triggers import RisingEdge

        edge = RisingEdge(self._clock)
        valid, ready, payload = self._valid, self._ready, self._payload
        taking = False
        while True:
            want = not self.stall()
            if want != taking:
                ready.value, taking = int(want), want
            await edge
            self.cycle += 1
            if valid():
                word = payload()
                assert self._waiting in (None, word), f"{self.name}: a waiting word has changed"
                if taking:
                    self.words.append(word)
                    self.cycles.append(self.cycle)
                    self._waiting = None
                else:
                    self._waiting = word
            else:
                assert self._waiting is None, f"{self.name}: a waiting word has gone"
