"""What the writes of completions must be, in which order: a model of the rings beside the log."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from tests.queues.completion_bench import CQE, CompletionBench, cqe_bytes
from tests.queues.host import Queue


@dataclass
class _Expected:
    """A used element to come; of a CQ with the bytes of its CQE and the WQE it tells of."""

    element: tuple[int, int]
    bytes_left: int = 0
    wqe: tuple[int, int] | None = None  # queue, how many elements of it have to be seen


@dataclass
class _Ring:
    queue: Queue
    start: int
    expected: list[_Expected] = field(default_factory=list)
    written: int = 0  # elements
    seen: int = 0  # elements the used index tells of
    indices: int = 0  # writes of it


class Order:
    """Expects completions, and finds every one of them whole and in order in the log of writes.

    Elements come in the order of the completions, an index behind its elements, an element behind
    its CQE, the index of a CQ behind that of the WQE's queue. Elements may share a burst."""

    def __init__(self, bench: CompletionBench):
        self.bench = bench
        self.rings: dict[int, _Ring] = {}
        self.pieces: dict[int, tuple[bytes, _Expected]] = {}
        self.longest = 0  # elements of a burst

    def ring(self, queue: Queue, start: int = 0) -> _Ring:
        ring = self.rings.setdefault(queue.number, _Ring(queue, start))
        assert ring.queue is queue
        return ring

    def expect(
        self,
        c: dict[str, Any],
        cq: Queue | None = None,
        parts: list[tuple[int, int]] | None = None,
        wqe: Queue | None = None,
    ) -> None:
        """``parts``: the buffers of a chain of ``cq``, where its CQE goes."""
        returned = None
        if wqe is not None:
            ring = self.ring(wqe)
            ring.expected.append(_Expected((c["head"], 0)))
            returned = (wqe.number, len(ring.expected))
        if cq is None or parts is None:
            return
        head = next(head for head, chain in reversed(cq.heads) if chain is parts)
        expected = _Expected((head, CQE), CQE, returned)
        self.ring(cq).expected.append(expected)
        rest = cqe_bytes(c)
        for addr, length in parts:
            if rest:
                self.pieces[addr] = (rest[:length], expected)
                rest = rest[length:]

    def check(self) -> None:
        """Everything expected is in the log, which is cleared."""
        for addr, data, stream in self.bench.memory.log:
            assert stream == 0
            self._write(addr, data)
        self.bench.memory.log.clear()
        for ring in self.rings.values():
            assert ring.written == ring.seen == len(ring.expected), ring.queue.number
        assert not self.pieces

    def _write(self, addr: int, data: bytes) -> None:
        if addr in self.pieces:
            wanted, expected = self.pieces.pop(addr)
            assert data == wanted
            expected.bytes_left -= len(data)
            return
        for ring in self.rings.values():
            at = addr - ring.queue.device
            if at == 2:
                return self._index(ring, data)
            if 4 <= at < 4 + 8 * ring.queue.size:
                return self._elements(ring, at - 4, data)
        raise AssertionError(f"a write of {len(data)} bytes at {addr:#x}")

    def _elements(self, ring: _Ring, at: int, data: bytes) -> None:
        self.longest = max(self.longest, len(data) // 8)
        for element in struct.iter_unpack("<II", data):
            expected = ring.expected[ring.written]
            assert at == 8 * ((ring.start + ring.written) % ring.queue.size)
            assert element == expected.element
            assert expected.bytes_left == 0, "a used element before its CQE"
            ring.written += 1
            at += 8

    def _index(self, ring: _Ring, data: bytes) -> None:
        (index,) = struct.unpack("<H", data)
        count = (index - ring.start) & 0xFFFF
        assert ring.seen < count <= ring.written, "a used index before its element, or in vain"
        for expected in ring.expected[ring.seen : count]:
            if expected.wqe is not None:
                number, seen = expected.wqe
                assert self.rings[number].seen >= seen, "a CQE is seen before its WQE is back"
        ring.seen = count
        ring.indices += 1
