"""A host in plain Python: memory, and a driver's side of split virtqueues."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from itertools import pairwise

BASE = 0x1_2345_6000
NEXT, WRITE, INDIRECT = 1, 2, 4


class Memory:
    """Bytes from ``BASE`` on; everything else does not answer. ``log``: writes in order."""

    def __init__(self, size: int = 1 << 20):
        self.bytes = bytearray(size)
        self.log: list[tuple[int, bytes, int]] = []
        self.free = 0
        self.reads: list[tuple[int, int]] = []
        self.strays = 0

    def read(self, addr: int, length: int) -> bytes | None:
        self.reads.append((addr, length))
        at = addr - BASE
        if at < 0 or at + length > len(self.bytes):
            return None
        return bytes(self.bytes[at : at + length])

    def write(self, addr: int, data: bytes, stream: int) -> None:
        self.log.append((addr, data, stream))
        at = addr - BASE
        if at < 0 or at + len(data) > len(self.bytes):
            self.strays += 1
            return
        self.bytes[at : at + len(data)] = data

    def put(self, addr: int, data: bytes) -> None:
        at = addr - BASE
        assert at >= 0 and at + len(data) <= len(self.bytes)
        self.bytes[at : at + len(data)] = data

    def get(self, addr: int, length: int) -> bytes:
        at = addr - BASE
        assert at >= 0 and at + length <= len(self.bytes)
        return bytes(self.bytes[at : at + length])

    def alloc(self, size: int, align: int = 1) -> int:
        self.free = -(-self.free // align) * align
        at = self.free
        self.free += size
        assert self.free <= len(self.bytes), "the test's host memory is full"
        return BASE + at


@dataclass
class Queue:
    """One virtqueue as its driver sees it."""

    memory: Memory
    number: int
    size: int
    vector: int = 0xFFFF
    enabled: bool = True
    desc: int = 0
    driver: int = 0
    device: int = 0
    avail: int = 0
    spare: list[int] = field(default_factory=list)
    #: Position -> head of what was offered there last.
    offered: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.desc = self.memory.alloc(16 * self.size, 16)
        self.driver = self.memory.alloc(6 + 2 * self.size, 2)
        self.device = self.memory.alloc(6 + 8 * self.size, 4)
        self.spare = list(range(self.size))

    @property
    def row(self) -> dict[str, int]:
        return {
            "enabled": self.enabled,
            "size_log2": self.size.bit_length() - 1,
            "desc": self.desc,
            "driver": self.driver,
            "device": self.device,
            "vector": self.vector,
        }

    def set_desc(self, table: int, index: int, addr: int, length: int, flags: int, next_: int):
        self.memory.put(table + 16 * index, struct.pack("<QIHH", addr, length, flags, next_))

    def chain(
        self,
        buffers: list[tuple[int, int, bool]],
        *,
        indirect_from: int | None = None,
        rng: random.Random | None = None,
    ) -> int:
        """Describe ``buffers`` (address, length, writable); returns the head.

        indirect_from: buffers from that one on go to an indirect table. rng: scattered indices.
        """
        direct = buffers if indirect_from is None else buffers[:indirect_from]
        count = len(direct) + (indirect_from is not None)
        if rng:
            rng.shuffle(self.spare)
        taken = [self.spare.pop(0) for _ in range(count)]
        for k, (addr, length, writable) in enumerate(direct):
            last = k == count - 1
            flags = (0 if last else NEXT) | (WRITE if writable else 0)
            self.set_desc(self.desc, taken[k], addr, length, flags, 0 if last else taken[k + 1])
        if indirect_from is not None:
            inner = buffers[indirect_from:]
            order = list(range(len(inner)))
            if rng:
                tail = order[1:]
                rng.shuffle(tail)
                order = [0, *tail]
            table = self.memory.alloc(16 * len(inner), 16)
            for k, (addr, length, writable) in enumerate(inner):
                last = k == len(inner) - 1
                flags = (0 if last else NEXT) | (WRITE if writable else 0)
                self.set_desc(table, order[k], addr, length, flags, 0 if last else order[k + 1])
            self.set_desc(self.desc, taken[-1], table, 16 * len(inner), INDIRECT, 0)
        return taken[0]

    def offer(self, head: int) -> int:
        """Make ``head`` available; returns its position."""
        position = self.avail
        self.memory.put(self.driver + 4 + 2 * (position % self.size), struct.pack("<H", head))
        self.offered[position] = head
        self.avail = (self.avail + 1) & 0xFFFF
        self.set_index(self.avail)
        return position

    def set_index(self, index: int) -> None:
        self.memory.put(self.driver + 2, struct.pack("<H", index))

    def set_flags(self, flags: int) -> None:
        self.memory.put(self.driver, struct.pack("<H", flags))

    def set_used_event(self, index: int) -> None:
        self.memory.put(self.driver + 4 + 2 * self.size, struct.pack("<H", index))

    def avail_event(self) -> int:
        return struct.unpack("<H", self.memory.get(self.device + 4 + 8 * self.size, 2))[0]

    def used_index(self) -> int:
        return struct.unpack("<H", self.memory.get(self.device + 2, 2))[0]

    def used(self, index: int) -> tuple[int, int]:
        return struct.unpack("<II", self.memory.get(self.device + 4 + 8 * (index % self.size), 8))


def pieces(memory: Memory, data: bytes, cuts: list[int], rng: random.Random | None = None):
    """Store ``data`` cut at ``cuts`` in separate places; returns (address, length) of each."""
    edges = [0, *sorted(cuts), len(data)]
    out = []
    for start, end in pairwise(edges):
        if end == start:
            continue
        if rng:
            memory.alloc(rng.randrange(7))
        addr = memory.alloc(end - start)
        memory.put(addr, data[start:end])
        out.append((addr, end - start))
    return out
