"""A host in plain Python: memory, and a driver's side of split virtqueues."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from itertools import pairwise

#: Addresses where no memory answers.
OUTSIDE, OUTSIDE_END = 4096, 1 << 18
#: Places where a memory lies.
PLACES = 16
NEXT, WRITE, INDIRECT = 1, 2, 4


class Memory:
    """``size`` bytes, a power of two. ``log``: writes in order.

    All of them lie at each of several random places, and what is allocated is known by one of
    these, so that a wrong bit of an address leads to where nobody answers. That fails the test, but
    for addresses from ``OUTSIDE`` on, and if ``wild``: a driver hands out any address. The places
    of an odd ``seed`` are the complements of those of the seed before it, so that each bit of an
    address is 0 in one of two such tests and 1 in the other.
    ``unreadable``: the addresses of what answers with an error and all the same with the bytes that
    lie there. ``owner``: whose is what is allocated from now on, 0 or 1, as its place tells."""

    def __init__(self, size: int = 1 << 20, seed: int = 1):
        assert size & (size - 1) == 0
        self.bytes, self._rng = bytearray(size), random.Random(seed // 2)
        most = (1 << 64) // size - 1
        self._places = [self._rng.randrange(1, most) * size for _ in range(PLACES)]
        if seed % 2:
            self._places = [most * size - place for place in self._places]
        self.unreadable: set[int] = set()
        self.wild, self.owner = False, 0
        self.log: list[tuple[int, bytes, int]] = []
        self.free = 0
        self.reads: list[tuple[int, int]] = []

    def offset(self, addr: int, length: int = 1) -> int | None:
        """Where the bytes at ``addr`` lie among all bytes; None: not all of them are here."""
        at = addr % len(self.bytes)
        return at if addr - at in self._places and at + length <= len(self.bytes) else None

    def owner_of(self, addr: int) -> int:
        """Whose memory is at ``addr``; what is nobody's is 0's."""
        place = addr - addr % len(self.bytes)
        return self._places.index(place) % 2 if place in self._places else 0

    def _reached(self, addr: int, length: int) -> int | None:
        at = self.offset(addr, length)
        assert at is not None or self.wild or OUTSIDE <= addr < OUTSIDE_END, hex(addr)
        return at

    def read(self, addr: int, length: int) -> tuple[bytes, bool]:
        """What a read brings, and whether it fails."""
        self.reads.append((addr, length))
        at = self._reached(addr, length)
        if at is None:
            return self._rng.randbytes(length), True
        return bytes(self.bytes[at : at + length]), addr in self.unreadable

    def write(self, addr: int, data: bytes, stream: int) -> None:
        self.log.append((addr, data, stream))
        at = self._reached(addr, len(data))
        if at is not None:
            self.bytes[at : at + len(data)] = data

    def put(self, addr: int, data: bytes) -> None:
        at = self.offset(addr, len(data))
        assert at is not None
        self.bytes[at : at + len(data)] = data

    def get(self, addr: int, length: int) -> bytes:
        at = self.offset(addr, length)
        assert at is not None
        return bytes(self.bytes[at : at + length])

    def alloc(self, size: int, align: int = 1) -> int:
        self.free = -(-self.free // align) * align
        at = self.free
        self.free += size
        assert self.free <= len(self.bytes), "the test's host memory is full"
        return self._rng.choice(self._places[self.owner :: 2]) + at


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

    @property
    def event(self) -> tuple[int, int]:
        """Where the device says which buffer is to bring a notification, and its bytes."""
        return self.device + 4 + 8 * self.size, 2

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
        spare = self.spare
        taken = [spare.pop(rng.randrange(len(spare)) if rng else 0) for _ in range(count)]
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

    def read_for(self, head: int) -> dict[str, int]:
        """The addresses that are read for the buffer ``head``, the first one offered."""
        at = self.desc + 16 * head
        (buffer,) = struct.unpack("<Q", self.memory.get(at, 8))
        ring = {"index": self.driver + 2, "entries": self.driver + 4}
        return {**ring, "descriptor": at, "buffer": buffer}

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
