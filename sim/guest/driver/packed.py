"""The driver's half of a packed virtqueue.

Spec: Virtio 1.2, 2.8. Its only ring holds available descriptors and, in their places, used ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence

import numpy as np

from hdl.abi import virtio_pci as abi
from hdl.abi.layout import Struct
from hdl.abi.virtio_pci import DescFlags, EventFlags, PackedFlags
from sim.guest.driver.memory import view
from sim.guest.driver.platform import Memory
from sim.guest.driver.virtqueue import Chain, Ring, RingPolicy, Segment, Used

_TURN = PackedFlags.AVAIL | PackedFlags.USED


def _dtype(struct: Struct) -> np.dtype:
    return np.dtype([(field.name, f"<u{field.kind.size}") for field in struct.fields])


class PackedQueue(Ring):
    """A packed virtqueue.

    Places in the ring are counted on over its end: place ``n % size``, and in which lap ``n //
    size``. The wrap counter is 1 in the first lap, and in each second one behind it.
    """

    def __init__(self, memory: Memory, *, index: int, size: int, policy: RingPolicy):
        super().__init__(memory, index=index, size=size, policy=policy)
        ring_bytes, event = abi.PACKED_DESC.size * size, abi.EVENT_SUPPRESS
        self.desc = memory.alloc(ring_bytes, abi.DESC_ALIGN)
        self.avail = memory.alloc(event.size, abi.EVENT_ALIGN)
        self.used = memory.alloc(event.size, abi.EVENT_ALIGN)
        memory.written_last(self.desc, ring_bytes)
        self._ring = view(memory, self.desc, ring_bytes).view(_dtype(abi.PACKED_DESC))
        self._ours, self._its = (
            view(memory, addr, event.size).view(_dtype(event)) for addr in (self.avail, self.used)
        )
        ids = np.arange(size)
        if policy.shuffle is not None:
            np.random.default_rng(policy.shuffle).shuffle(ids)
        self._ids = deque(ids.tolist())
        self._next = self._published = self._kicked = self._last_used = 0
        #: First descriptors that are not published: their places and flags.
        self._hidden: list[tuple[int, int]] = []
        self._must_kick = False

    def _wrap(self, place: int) -> int:
        """The wrap counter at a place."""
        return int(place // self.size % 2 == 0)

    def _off_wrap(self, place: int) -> int:
        return place % self.size | self._wrap(place) << 15

    @property
    def free_descriptors(self) -> int:
        """See ``Ring``."""
        return self.size - sum(len(chain.descriptors) for chain in self._chains.values())

    @property
    def next_avail(self) -> int:
        """See ``Ring``: the place in the ring, and its wrap counter in bit 15."""
        return self._off_wrap(self._next)

    def add(self, segments: Sequence[Segment], token: Hashable) -> int:
        """See ``Ring``. A chain's name is the id of its buffer."""
        pieces = self._pieces(segments)
        table = None
        if self.policy.indirect and len(pieces) > 1:
            table = self._memory.alloc(abi.PACKED_DESC.size * len(pieces), abi.DESC_ALIGN)
            self._write_table(table, pieces)
            top = [Segment(table, abi.PACKED_DESC.size * len(pieces))]
        else:
            top = pieces
        self._need(len(top), table)
        name = self._ids.popleft()
        places = range(self._next, self._next + len(top))
        for place, piece in zip(places, top, strict=True):
            flags = self._flags(place, piece.writable) | (DescFlags.INDIRECT if table else 0)
            if place != places[-1]:
                flags |= DescFlags.NEXT
            descriptor = self._ring[place % self.size]
            descriptor["addr"], descriptor["len"], descriptor["id"] = piece.addr, piece.size, name
            if place == self._next:
                self._hidden.append((place, int(flags)))
            else:
                descriptor["flags"] = int(flags)
        self._next += len(top)
        writable = sum(piece.size for piece in pieces if piece.writable)
        self._chains[name] = Chain(token, places, writable, table)
        self._order.append(name)
        return name

    def _flags(self, place: int, writable: bool) -> int:
        """Flags of an available descriptor (2.8.1)."""
        turn = PackedFlags.AVAIL if self._wrap(place) else PackedFlags.USED
        return turn | (DescFlags.WRITE if writable else 0)

    def _write_table(self, table: int, pieces: Sequence[Segment]) -> None:
        octets = view(self._memory, table, abi.PACKED_DESC.size * len(pieces))
        for row, piece in zip(octets.view(_dtype(abi.PACKED_DESC)), pieces, strict=True):
            row["addr"], row["len"], row["id"] = piece.addr, piece.size, 0
            row["flags"] = int(DescFlags.WRITE) if piece.writable else 0

    def publish(self) -> None:
        """See ``Ring`` (2.8.21.3)."""
        for place, flags in self._hidden:
            self._ring[place % self.size]["flags"] = flags
        self._hidden.clear()
        self._published = self._next

    def kick_due(self) -> bool:
        """See ``Ring``."""
        old, self._kicked = self._kicked, self._published
        if self._must_kick and self._chains:
            self._must_kick = False
            return True
        if self._published == old:
            return False
        flags, event = int(self._its["flags"][0]) & 3, int(self._its["desc"][0])
        if flags != EventFlags.DESC:
            return flags == EventFlags.ENABLE
        # Its distance from the first one that is new, by places of two laps.
        place = (event & 0x7FFF) + (0 if event >> 15 else self.size)
        return (place - old) % (2 * self.size) < self._published - old

    @property
    def ready(self) -> int:
        """See ``Ring``."""
        return self._look()[1]

    @property
    def used_index(self) -> int:
        """See ``Ring``."""
        return self._look()[0] & 0xFFFF

    def _look(self) -> tuple[int, int]:
        """The place behind the last used buffer, and how many of them nobody has taken."""
        place, found = self._last_used, 0
        while found < len(self._chains) and self._is_used(place):
            name = int(self._ring["id"][place % self.size])
            batch = self._batch(name, *self._where(place))
            batch = batch[found:] if self.policy.in_order else batch
            place += sum(len(self._chains[one].descriptors) for one in batch)
            found += len(batch)
        return place, found

    def has_used(self) -> bool:
        """See ``Ring``."""
        return bool(self._chains) and self._is_used(self._last_used)

    def _is_used(self, place: int) -> bool:
        turn = int(self._ring["flags"][place % self.size]) & _TURN
        return turn == (_TURN if self._wrap(place) else 0)

    def _where(self, place: int) -> tuple[str, str]:
        """For messages: which descriptor, and what its id is if no chain has it."""
        where = f"Queue {self.index}: used descriptor {place % self.size}"
        return where, "not that of an outstanding buffer"

    def reap(self, limit: int | None = None) -> list[Used]:
        """See ``Ring``."""
        result: list[Used] = []
        while (limit is None or len(result) < limit) and self.has_used():
            descriptor = self._ring[self._last_used % self.size]
            name, flags = int(descriptor["id"]), int(descriptor["flags"])
            where, nothing = self._where(self._last_used)
            batch = self._batch(name, where, nothing)
            written = int(descriptor["len"]) if flags & DescFlags.WRITE else 0
            for other in batch[:-1]:
                result.append(self._finish(other, self._chains[other].writable, where))
            result.append(self._finish(name, written, where))
        return result

    def _forget(self, name: int) -> Chain:
        chain = super()._forget(name)
        self._ids.append(name)
        self._last_used += len(chain.descriptors)
        return chain

    def enable_interrupts(self, after: int = 0) -> bool:
        """See ``Ring``."""
        if self.policy.event_idx:
            ahead = (len(self._chains[name].descriptors) for name in list(self._order)[:after])
            self._ours["desc"] = self._off_wrap(self._last_used + sum(ahead))
            self._ours["flags"] = int(EventFlags.DESC)
        else:
            self._ours["flags"] = int(EventFlags.ENABLE)
        return not self.has_used()

    def disable_interrupts(self) -> None:
        """See ``Ring``."""
        self._ours["flags"] = int(EventFlags.DISABLE)

    def abandon(self) -> list[Hashable]:
        """See ``Ring``."""
        tokens, end = self.pending, self._next
        self.reap()  # the device goes on behind what it has used
        last = self._last_used
        for name in list(self._order):
            self._forget(name)
        for place in range(last, end):
            # As one that was used in the lap before.
            self._ring["flags"][place % self.size] = 0 if self._wrap(place) else int(_TURN)
        self._hidden.clear()
        self._last_used = self._next = self._published = self._kicked = last
        self._must_kick = True  # the device may wait for a descriptor that was taken back
        return tokens
