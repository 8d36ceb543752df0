"""A driver's side of a packed virtqueue in plain Python (Virtio 1.2, 2.8)."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field

from tests.queues.host import INDIRECT, NEXT, WRITE, Queue

AVAIL, USED = 1 << 7, 1 << 15
ENABLE, DISABLE, DESC = range(3)


@dataclass
class PackedQueue(Queue):
    """Positions count descriptors. ``counts``: id of a buffer -> how many it has in the ring."""

    rng: random.Random = field(default_factory=lambda: random.Random(5))
    counts: dict[int, int] = field(default_factory=dict)
    returned: int = 0  # position of the next used descriptor

    def __post_init__(self) -> None:
        self.desc = self.memory.alloc(16 * self.size, 16)
        self.driver = self.memory.alloc(4, 4)
        self.device = self.memory.alloc(4, 4)
        self.hidden: dict[int, tuple[int, int]] = {}
        self.ahead = 0  # descriptors written and not offered

    @property
    def event(self) -> tuple[int, int]:
        return self.device, 4

    def wrap(self, position: int) -> int:
        """The wrap counter at a position."""
        return int(position // self.size % 2 == 0)

    def off_wrap(self, position: int) -> int:
        """Place and wrap counter as in the event structures."""
        return position % self.size | self.wrap(position) << 15

    def place(self, position: int) -> int:
        """Address of the descriptor at a position."""
        return self.desc + 16 * (position % self.size)

    def turn(self, position: int) -> int:
        """The flags of an available descriptor there."""
        return AVAIL if self.wrap(position) else USED

    def chain(self, buffers, *, indirect_from=None, rng=None) -> int:
        """Describe ``buffers``; returns their id. indirect_from: 0 for an indirect table, or None
        (those in front of it are left out, as a list is of one kind)."""
        while (name := self.rng.randrange(1 << 16)) in self.counts:
            pass
        if indirect_from is not None:
            table = self.memory.alloc(16 * len(buffers), 16)
            rows = (
                struct.pack("<QIHH", a, n, self.rng.randrange(1 << 16), WRITE if w else 0)
                for a, n, w in buffers
            )
            self.memory.put(table, b"".join(rows))
            top = [(table, 16 * len(buffers), INDIRECT)]
        else:
            top = [(a, n, WRITE if w else 0) for a, n, w in buffers]
        first = self.avail + self.ahead
        for k, (addr, length, flags) in enumerate(top):
            last = k == len(top) - 1
            all_flags = flags | self.turn(first + k) | (0 if last else NEXT)
            # The id of the last one counts.
            shown = name if last else self.rng.randrange(1 << 16)
            place = self.place(first + k)
            self.memory.put(place, struct.pack("<QIH", addr, length, shown))
            if k == 0:
                self.hidden[name] = (first, all_flags)
            else:
                self.memory.put(place + 14, struct.pack("<H", all_flags))
        self.counts[name] = len(top)
        self.ahead += len(top)
        return name

    def offer(self, head: int) -> int:
        """Make the buffer with that id available; returns its position."""
        position, flags = self.hidden.pop(head)
        assert position == self.avail, "not in the order of the ring"
        self.memory.put(self.place(position) + 14, struct.pack("<H", flags))
        self.offered[position & 0xFFFF] = head
        self.avail += self.counts[head]
        self.ahead -= self.counts[head]
        return position

    def used(self, position: int) -> tuple[int, int]:
        """(id, length) of the used descriptor at a position; it must be one."""
        length, name, flags = struct.unpack("<IHH", self.memory.get(self.place(position) + 8, 8))
        turn = AVAIL | USED if self.wrap(position) else 0
        assert flags & ~WRITE == turn, f"flags {flags:04x} at {position}"
        assert bool(flags & WRITE) == bool(length)
        return name, length

    def is_used(self, position: int) -> bool:
        flags = struct.unpack("<H", self.memory.get(self.place(position) + 14, 2))[0]
        return flags & (AVAIL | USED) == (AVAIL | USED if self.wrap(position) else 0)

    def take(self) -> tuple[int, int] | None:
        """The next used descriptor, if there is one; its buffer is the driver's again."""
        if self.returned == self.avail or not self.is_used(self.returned):
            return None
        name, length = self.used(self.returned)
        self.returned += self.counts.pop(name)
        return name, length

    def give_back(self, name: int, length: int = 0) -> None:
        """What the device does when it has used a buffer."""
        flags = (AVAIL | USED if self.wrap(self.returned) else 0) | (WRITE if length else 0)
        self.memory.put(self.place(self.returned) + 8, struct.pack("<IHH", length, name, flags))
        assert self.take() == (name, length)

    def suppress(self, how: int, position: int = 0) -> None:
        """What the driver wants of interrupts."""
        self.memory.put(self.driver, struct.pack("<HH", self.off_wrap(position), how))

    def asked(self) -> tuple[int, int]:
        """What the device wants of notifications."""
        return struct.unpack("<HH", self.memory.get(self.device, 4))
