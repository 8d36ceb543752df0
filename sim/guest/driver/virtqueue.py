"""The driver's half of a virtqueue, and of a split one.

Spec: Virtio 1.2, 2.7. Chains are added, published and (by the owner's notification) kicked; used
elements are checked against what is outstanding before anything is believed.
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hdl.abi import virtio_pci as abi
from hdl.abi.layout import Struct
from hdl.abi.virtio_pci import AvailFlags, DescFlags, UsedFlags
from sim.guest.driver.errors import RdmaError, RingError
from sim.guest.driver.memory import view
from sim.guest.driver.platform import Memory, Octets

_DESC = abi.DESC.codec()


@dataclass(frozen=True)
class Segment:
    """A piece of a buffer in guest memory."""

    addr: int
    size: int
    writable: bool = False


@dataclass(frozen=True)
class Used:
    """A buffer that came back: what was given to ``add`` and how many bytes were written."""

    token: Hashable
    size: int


@dataclass(frozen=True)
class RingPolicy:
    """How a queue is used. The default is what a simple driver does.

    ``split``: sizes in bytes at which each buffer is cut into descriptors, the rest is one piece.
    ``indirect``: tables of their own for chains of more than one descriptor.
    ``shuffle``: seed for the order in which descriptors are used; not with ``in_order``.
    ``event_idx``, ``in_order``: as negotiated. Packed queues take descriptors in ring order.
    """

    split: tuple[int, ...] = ()
    indirect: bool = False
    shuffle: int | None = None
    event_idx: bool = False
    in_order: bool = False


@dataclass
class Chain:
    """A chain in the ring: its token, its descriptors, its writable bytes, its indirect table."""

    token: Hashable
    descriptors: Sequence[int]
    writable: int
    table: int | None


def split_segments(segments: Iterable[Segment], sizes: Sequence[int]) -> list[Segment]:
    """The same bytes with cuts ``sizes[0]``, ``sizes[0] + sizes[1]`` ... bytes from the start."""
    if any(size < 1 for size in sizes):
        raise ValueError(f"Pieces must have at least 1 byte, not {tuple(sizes)}")
    cuts = deque(sizes)
    left = cuts.popleft() if cuts else 0
    result = []
    for segment in segments:
        addr, size = segment.addr, segment.size
        while left and size > left:
            result.append(Segment(addr, left, segment.writable))
            addr, size = addr + left, size - left
            left = cuts.popleft() if cuts else 0
        result.append(Segment(addr, size, segment.writable))
        if left:
            left = left - size or (cuts.popleft() if cuts else 0)
    return result


def _dtype(struct: Struct) -> np.dtype:
    return np.dtype([(field.name, f"<u{field.kind.size}") for field in struct.fields])


def _word(octets: Octets, offset: int) -> np.ndarray:
    return octets[offset : offset + 2].view("<u2")


class Ring(ABC):
    """A virtqueue of ``size`` entries in memory that it allocates itself.

    ``desc``, ``avail`` and ``used`` are the physical addresses for the device: what it calls
    queue_desc, queue_driver and queue_device. ``index`` is the queue's number, used in messages
    only. Errors: ValueError for a bad size or policy, RdmaError(ENOSPC) when a chain finds too few
    descriptors, RingError for what the device wrote.
    """

    desc: int
    avail: int
    used: int

    def __init__(self, memory: Memory, *, index: int, size: int, policy: RingPolicy):
        if not 1 <= size <= abi.MAX_QUEUE_SIZE or size & (size - 1):
            raise ValueError(f"Queue size must be a power of two up to 32768, not {size}")
        if policy.in_order and policy.shuffle is not None:
            raise ValueError("Descriptors must be used in ring order with IN_ORDER, not shuffled")
        self.index, self.size, self.policy = index, size, policy
        self._memory = memory
        #: Outstanding chains by what the device names them, and these names as they were added.
        self._chains: dict[int, Chain] = {}
        self._order: deque[int] = deque()

    @property
    @abstractmethod
    def free_descriptors(self) -> int:
        """Descriptors that no outstanding chain holds."""

    @property
    def outstanding(self) -> int:
        """Chains given to the device and not yet back."""
        return len(self._chains)

    @property
    def pending(self) -> list[Hashable]:
        """Tokens of the outstanding chains in the order in which they were added."""
        return [self._chains[name].token for name in self._order]

    @property
    @abstractmethod
    def next_avail(self) -> int:
        """Where the next chain will be available, 16 bits, as a notification says it (2.9)."""

    @abstractmethod
    def add(self, segments: Sequence[Segment], token: Hashable) -> int:
        """Puts a chain into the ring, not yet visible to the device; returns its name.

        ``token`` comes back in ``Used``. The policy's cuts are applied to readable and writable
        bytes together; readable segments must come first (Virtio 1.2, 2.7.4.2).
        """

    @abstractmethod
    def publish(self) -> None:
        """Makes the chains added so far visible to the device."""

    @abstractmethod
    def kick_due(self) -> bool:
        """Whether the device wants a doorbell for what was published since the last call."""

    @property
    @abstractmethod
    def ready(self) -> int:
        """Used buffers that ``reap`` would find."""

    @property
    @abstractmethod
    def used_index(self) -> int:
        """The device's position as far as it can be seen, 16 bits: behind the last used buffer."""

    @abstractmethod
    def has_used(self) -> bool:
        """Whether ``reap`` would find something."""

    @abstractmethod
    def reap(self, limit: int | None = None) -> list[Used]:
        """Takes up to ``limit`` used buffers (all without a limit), in the device's order.

        With IN_ORDER one element may stand for several buffers: all but the last then count as
        completely written (Virtio 1.2, 2.7.9), and the batch is taken whole.
        """

    @abstractmethod
    def enable_interrupts(self, after: int = 0) -> bool:
        """Asks for an interrupt once ``after`` + 1 more elements are used; False if some are.

        ``after`` counts with EVENT_IDX only. False means: reap again, no interrupt may come for
        what is there already (Virtio 1.2, 2.7.7.1).
        """

    @abstractmethod
    def disable_interrupts(self) -> None:
        """Asks for no interrupts; the device may still send some."""

    @abstractmethod
    def abandon(self) -> list[Hashable]:
        """Forgets all outstanding chains, for a device that has dropped them too.

        Both sides then go on behind the last used one (virtio-rdma E-18). Returns the tokens.
        """

    def close(self) -> None:
        """Frees the rings; the device must no longer use them."""
        self.abandon()
        for addr in (self.desc, self.avail, self.used):
            self._memory.free(addr)

    def _pieces(self, segments: Sequence[Segment]) -> list[Segment]:
        """What the descriptors of a chain describe."""
        pieces = split_segments(segments, self.policy.split)
        if not pieces:
            raise ValueError(f"Queue {self.index}: a chain needs at least one segment")
        if len(pieces) > self.size:  # Virtio 1.2, 2.7.5.3.1: indirect ones too
            raise RdmaError(
                errno.ENOSPC,
                f"Queue {self.index}: chains have at most {self.size} descriptors, "
                f"not {len(pieces)}",
            )
        return pieces

    def _need(self, count: int, table: int | None) -> None:
        """There must be ``count`` free descriptors; else ``table`` is given back."""
        if count > self.free_descriptors:
            if table is not None:
                self._memory.free(table)
            raise RdmaError(
                errno.ENOSPC,
                f"Queue {self.index}: {count} descriptors needed, {self.free_descriptors} free",
            )

    def _batch(self, name: int, where: str, nothing: str) -> list[int]:
        """The chains that a used element gives back which names ``name``. where, nothing: for
        messages, the latter what a name is that no chain has."""
        if name not in self._chains:
            raise RingError(f"{where} has id {name}, which is {nothing}")
        if not self.policy.in_order:
            return [name]
        return list(self._order)[: self._order.index(name) + 1]

    def _finish(self, name: int, written: int, where: str) -> Used:
        """A chain has come back; ``where`` is for messages."""
        chain = self._chains[name]
        if written > chain.writable:
            raise RingError(
                f"{where}, id {name}, says {written} bytes were written, but the chain has "
                f"{chain.writable} writable bytes"
            )
        self._forget(name)
        return Used(chain.token, written)

    def _forget(self, name: int) -> Chain:
        chain = self._chains.pop(name)
        if self._order[0] == name:
            self._order.popleft()
        else:
            self._order.remove(name)
        if chain.table is not None:
            self._memory.free(chain.table)
        return chain


class SplitQueue(Ring):
    """A split virtqueue."""

    def __init__(self, memory: Memory, *, index: int, size: int, policy: RingPolicy):
        super().__init__(memory, index=index, size=size, policy=policy)
        avail_size, used_size = abi.avail_ring_size(size), abi.used_ring_size(size)
        self.desc = memory.alloc(abi.desc_table_size(size), abi.DESC_ALIGN)
        self.avail = memory.alloc(avail_size, abi.AVAIL_ALIGN)
        self.used = memory.alloc(used_size, abi.USED_ALIGN)

        avail, used = view(memory, self.avail, avail_size), view(memory, self.used, used_size)
        header = abi.RING_HEADER
        memory.written_last(self.avail + header.offset("idx"), 2)
        self._avail_flags = _word(avail, header.offset("flags"))
        self._avail_idx = _word(avail, header.offset("idx"))
        self._avail_ring = avail[header.size : abi.used_event_offset(size)].view("<u2")
        self._used_event = _word(avail, abi.used_event_offset(size))
        self._used_flags = _word(used, header.offset("flags"))
        self._used_idx = _word(used, header.offset("idx"))
        self._used_ring = used[header.size : abi.avail_event_offset(size)].view(
            _dtype(abi.USED_ELEMENT)
        )
        self._avail_event = _word(used, abi.avail_event_offset(size))

        order = np.arange(size)
        if policy.shuffle is not None:
            np.random.default_rng(policy.shuffle).shuffle(order)
        self._free = deque(order.tolist())
        self._next_avail = self._kicked = self._last_used = 0
        self._must_kick = False

    @property
    def free_descriptors(self) -> int:
        """See ``Ring``."""
        return len(self._free)

    @property
    def next_avail(self) -> int:
        """See ``Ring``: the available index as published by the next ``publish``."""
        return self._next_avail & 0xFFFF

    def add(self, segments: Sequence[Segment], token: Hashable) -> int:
        """See ``Ring``. A chain's name is its head."""
        pieces = self._pieces(segments)
        table = None
        if self.policy.indirect and len(pieces) > 1:
            table = self._memory.alloc(abi.DESC.size * len(pieces), abi.DESC_ALIGN)
            self._write_chain(table, pieces, list(range(len(pieces))))
            top = [Segment(table, abi.DESC.size * len(pieces))]
        else:
            top = pieces
        self._need(len(top), table)
        taken = [self._free.popleft() for _ in top]
        self._write_chain(self.desc, top, taken, 0 if table is None else DescFlags.INDIRECT)
        writable = sum(piece.size for piece in pieces if piece.writable)
        head = taken[0]
        self._chains[head] = Chain(token, taken, writable, table)
        self._order.append(head)
        self._avail_ring[self._next_avail % self.size] = head
        self._next_avail += 1
        return head

    def _write_chain(
        self, table: int, pieces: Sequence[Segment], places: Sequence[int], extra: int = 0
    ) -> None:
        octets = self._memory.bytes.data
        origin = table - self._memory.base
        last = len(pieces) - 1
        for i, (piece, place) in enumerate(zip(pieces, places, strict=True)):
            flags = (DescFlags.WRITE.value if piece.writable else 0) | int(extra)
            following = 0
            if i < last:
                flags |= DescFlags.NEXT.value
                following = places[i + 1]
            _DESC.pack_into(
                octets, origin + place * _DESC.size, piece.addr, piece.size, flags, following
            )

    def publish(self) -> None:
        """See ``Ring`` (Virtio 1.2, 2.7.13.3)."""
        self._avail_idx[0] = self._next_avail & 0xFFFF

    def kick_due(self) -> bool:
        """See ``Ring``."""
        old, self._kicked = self._kicked, self._next_avail
        if self._must_kick and self._chains:
            self._must_kick = False
            return True
        if self._next_avail == old:
            return False
        if self.policy.event_idx:  # Virtio 1.2, 2.7.10
            passed = (self._next_avail - int(self._avail_event[0]) - 1) & 0xFFFF
            return passed < min(self._next_avail - old, 0x10000)
        return not int(self._used_flags[0]) & UsedFlags.NO_NOTIFY

    @property
    def ready(self) -> int:
        """See ``Ring``."""
        return (int(self._used_idx[0]) - self._last_used) & 0xFFFF

    @property
    def used_index(self) -> int:
        """See ``Ring``."""
        return int(self._used_idx[0])

    def has_used(self) -> bool:
        """See ``Ring``."""
        return int(self._used_idx[0]) != self._last_used & 0xFFFF

    def reap(self, limit: int | None = None) -> list[Used]:
        """See ``Ring``."""
        ready = self.ready
        if ready > len(self._chains):
            raise RingError(
                f"Queue {self.index}: used index {int(self._used_idx[0])} is {ready} past the last "
                f"one seen, but only {len(self._chains)} chains are outstanding"
            )
        result: list[Used] = []
        while ready and (limit is None or len(result) < limit):
            element = self._used_ring[self._last_used % self.size]
            head, written = int(element["id"]), int(element["len"])
            where = f"Queue {self.index}: used element {self._last_used % self.size}"
            kind = "no descriptor" if head >= self.size else "not the head of an outstanding chain"
            batch = self._batch(head, where, kind)
            if len(batch) > ready:
                raise RingError(
                    f"{where} has id {head}, a batch of {len(batch)}, but the used index allows "
                    f"{ready}"
                )
            for other in batch[:-1]:
                result.append(self._finish(other, self._chains[other].writable, where))
            result.append(self._finish(head, written, where))
            ready -= len(batch)
            self._last_used += len(batch)
        return result

    def _forget(self, name: int) -> Chain:
        chain = super()._forget(name)
        self._free.extend(chain.descriptors)
        return chain

    def enable_interrupts(self, after: int = 0) -> bool:
        """See ``Ring``."""
        self._avail_flags[0] = 0
        self._used_event[0] = (self._last_used + after) & 0xFFFF
        return not self.has_used()

    def disable_interrupts(self) -> None:
        """See ``Ring``."""
        self._avail_flags[0] = AvailFlags.NO_INTERRUPT
        self._used_event[0] = (self._last_used - 1) & 0xFFFF

    def abandon(self) -> list[Hashable]:
        """See ``Ring``."""
        tokens = self.pending
        for head in list(self._order):
            self._forget(head)
        self._last_used = self._next_avail = self._kicked = int(self._used_idx[0])
        self._must_kick = True  # avail_event may be ahead of the index that was taken back
        self.publish()
        return tokens
