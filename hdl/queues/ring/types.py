"""Rows that the readers of rings pass on, and the constants of a split ring."""

from functools import cache

from amaranth.hdl import Array, Cat, Const, Value
from amaranth.lib import data

from hdl.abi import virtio_pci
from hdl.common.address import OFFSET_BITS
from hdl.ports.jobs import (
    WQE_LINE_BITS,
    FetchRequest,
    FetchStatus,
    QueueErrorCause,
)
from hdl.ports.rows import QueueRow, RingRules

__all__ = [
    "BlockRead",
    "FlowRead",
    "ChainJob",
    "Segment",
    "RingJob",
    "RingResult",
    "UsedRing",
    "FastPathJob",
    "Table",
    "HeadFound",
    "Element",
    "element",
    "avail_event",
    "used_event",
    "used_element",
    "DESC_BYTES",
    "MOST_READ",
    "INDEX_OFFSET",
    "RING_OFFSET",
    "NO_VECTOR",
]

#: Bytes of a descriptor; offsets of the index and of the first entry in either ring.
DESC_BYTES = virtio_pci.DESC.size
INDEX_OFFSET = virtio_pci.RING_HEADER.offset("idx")
RING_OFFSET = virtio_pci.RING_HEADER.size
#: Bytes of the longest element that is read at once, and so of any read of the rings.
MOST_READ = 1023
#: QueueRow.vector of a queue without an interrupt.
NO_VECTOR = 0xFFFF


def used_event(size_log2):
    """Offset of ``used_event``, behind the entries of the avail ring (Virtio 1.2, 2.7.6)."""
    # Looked up: a carry chain would stand in front of the address's own.
    sizes = Array(RING_OFFSET + (virtio_pci.AVAIL_ELEMENT.size << log2) for log2 in range(16))
    return Value.cast(sizes[size_log2])


def avail_event(size_log2):
    """Offset of ``avail_event``, behind the elements of the used ring (Virtio 1.2, 2.7.8)."""
    # The sum: an element has more bytes than stand in front of the first.
    return (RING_OFFSET | (virtio_pci.USED_ELEMENT.size << size_log2))[:OFFSET_BITS]


def used_element(slot):
    """Offset of element ``slot`` of the used ring (Virtio 1.2, 2.7.8)."""
    # The sum: an element has more bytes than stand in front of the first.
    return Cat(Const(RING_OFFSET, 3), slot)[:OFFSET_BITS]


class BlockRead(data.Struct):
    """A read of 1 to ``MOST_READ`` bytes."""

    function: 8
    addr: 64
    length: 10


class FlowRead(data.Struct):
    """A read of 1 to ``MOST_READ`` bytes at ``addr`` + ``offset``."""

    function: 8
    addr: 64
    offset: OFFSET_BITS
    length: 10


class ChainJob(data.Struct):
    """Walk the chain at ``head``. ``limit``: most bytes it may have; a longer one is an error."""

    function: 8
    desc: 64
    size_log2: 4
    rules: RingRules
    head: 16
    limit: 32
    readable: 1  # device-readable buffers are allowed
    writable: 1  # device-writable buffers are allowed


class Segment(data.Struct):
    """One buffer of a chain. With a ``cause`` the chain is broken: ``last`` is set, no buffer."""

    addr: 64
    length: 32
    writable: 1
    first: 1
    last: 1
    cause: QueueErrorCause


class RingJob(data.Struct):
    """Find the head at ``position``; ``known`` as in FetchRequest."""

    function: 8
    queue: 16
    row: QueueRow
    position: 16
    known: 16


class RingResult(data.Struct):
    """OK with ``head``, EMPTY, or QUEUE_ERROR with ``cause``; ``available`` as now known."""

    status: FetchStatus
    cause: QueueErrorCause
    available: 16
    head: 16


class UsedRing(data.Struct):
    """What returning a buffer to its queue needs of the queue."""

    queue: 16
    size_log2: 4
    rules: RingRules
    driver: 64  # where the driver says whether it wants an interrupt: no CQ's (VR-3.34)
    device: 64
    vector: 16


class FastPathJob(data.Struct):
    """A request for a position that is known to be available, and what it needs of its queue.
    ``line``: where a receive WQE is to lie."""

    request: FetchRequest
    line: WQE_LINE_BITS
    size_log2: 4
    rules: RingRules
    desc: 64
    driver: 64


class Table(data.Struct):
    """Where the descriptors of a job's queue lie."""

    function: 8
    desc: 64
    size_log2: 4
    rules: RingRules


class HeadFound(data.Struct):
    """The head of the chain of a job. ``failed``: the ring could not be read. ``guessed``: the
    descriptor at ``guess`` has been asked for already."""

    head: 16
    failed: 1
    guessed: 1
    guess: 16


@cache
def element(most: int = MOST_READ) -> data.StructLayout:
    """The buffer of a chain of one descriptor; ``odd``: it is something else, or could not be
    read, and has to be looked at by the slow path. ``head``: its name in the used ring; ``place``:
    of its descriptor. ``table``: of the job. ``length``: of one of up to ``most`` bytes."""
    return data.StructLayout(
        {
            "head": 16,
            "place": 16,
            "failed": 1,
            "table": Table,
            "addr": 64,
            "length": max(most, MOST_READ).bit_length(),
            "odd": 1,
        }
    )


#: That of a WQE, which is short.
Element = element()
