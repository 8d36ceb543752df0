"""Ways in which a guest can break a virtqueue of its own."""

from __future__ import annotations

import random
from collections.abc import Callable

from hdl.abi import virtio_pci as abi
from hdl.abi.virtio_pci import DescFlags
from sim.guest.driver.platform import Memory
from sim.guest.driver.virtqueue import SplitQueue

__all__ = ["KINDS", "break_ring"]


def _bytes(memory: Memory, addr: int, value: int, size: int) -> None:
    at = addr - memory.base
    memory.bytes[at : at + size] = list(value.to_bytes(size, "little"))


class _Newest:
    """The newest available entry of a ring and its first descriptor."""

    def __init__(self, ring: SplitQueue, memory: Memory, rng: random.Random):
        self.ring, self.memory, self.rng = ring, memory, rng
        header = abi.RING_HEADER
        self.entry = ring.avail + header.size + 2 * ((ring.next_avail - 1) % ring.size)
        at = self.entry - memory.base
        self.head = int.from_bytes(memory.bytes[at : at + 2].tobytes(), "little")
        self.descriptor = ring.desc + abi.DESC.size * self.head

    def index(self, value: int) -> None:
        at = self.ring.avail + abi.RING_HEADER.offset("idx")
        _bytes(self.memory, at, value & 0xFFFF, 2)

    def field(self, name: str, value: int) -> None:
        sizes = {field.name: field.kind.size for field in abi.DESC.fields}
        _bytes(self.memory, self.descriptor + abi.DESC.offset(name), value, sizes[name])


def _linked(newest: _Newest, following: int) -> None:
    newest.field("flags", DescFlags.NEXT.value)
    newest.field("next", following)


#: Name -> what it writes into the guest's memory.
_WAYS: dict[str, Callable[[_Newest], None]] = {
    "avail index": lambda n: n.index(n.ring.next_avail + 3 * n.ring.size),
    "head": lambda n: _bytes(n.memory, n.entry, n.ring.size + n.rng.randrange(1000), 2),
    "loop": lambda n: _linked(n, n.head),
    "length 0": lambda n: n.field("len", 0),
    "4 GiB chain": lambda n: n.field("len", 0xFFFFFFFF),
    "next": lambda n: _linked(n, 0xFFF0),
    "writable": lambda n: n.field("flags", DescFlags.WRITE.value),
    "bad indirect": lambda n: n.field("flags", DescFlags.NEXT.value | DescFlags.INDIRECT.value),
    "address": lambda n: n.field("addr", 1 << 50),
}
KINDS = tuple(_WAYS)


def break_ring(kind: str, ring: SplitQueue, memory: Memory, rng: random.Random) -> None:
    """Break the newest entry of ``ring``, which has been published; ``kind``: one of ``KINDS``."""
    _WAYS[kind](_Newest(ring, memory, rng))
