"""What the firmware needs from the hardware, as operations with a meaning.

``registers`` implements them on a register bus. Tables and their fields are those of
``hdl.ports.rows`` and ``hdl.ports.headers``; a row here is a mapping of field to number, nested
fields with a dot (``av.dgid``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from hdl.abi.virtio_net import HASH_KEY_BYTES

Row = Mapping[str, int]


class HardwareError(RuntimeError):
    """The hardware does not do what it must; the firmware stops."""


@dataclass(frozen=True)
class Request:
    """One control request. ``data`` may be cut at the mailbox's size; ``length`` is the whole.

    Attributes that the mask of MODIFY_QP does not name may be 0 in it.
    """

    function: int
    data: bytes
    length: int
    writable: int


@dataclass(frozen=True)
class FunctionState:
    """Device resets of a guest function since power-on, and whether one is going on.

    ``waits``: for the end of it (``reset_done``). ``features``: of the extensions (``RdmaFeature``)
    those that the driver has negotiated, as a mask. ``status``: virtio's device status; 0: there is
    no driver, and the function has nothing.
    """

    resets: int
    resetting: bool
    waits: bool = False
    features: int = 0
    status: int = 0


@dataclass(frozen=True)
class Posted:
    """What has become of ``begin_post``: whether an event has found a buffer, or an avail index,
    which is ``available``, could be read."""

    success: bool
    available: int


class Operations(Protocol):
    """The tables and the commands that control requests need.

    Every method may raise HardwareError. Rows are written whole, in one step.
    """

    async def link_up(self) -> bool:
        """Whether the port has a link."""

    async def counter(self, name: str) -> int:
        """One counter of the card, 32 bits, which wraps."""

    async def read_row(self, table: str, index: int) -> dict[str, int]:
        """A copy of one row."""

    async def read_fields(self, table: str, index: int, *names: str) -> dict[str, int]:
        """Some fields of one row, read together in one step."""

    async def write_row(self, table: str, index: int, row: Row) -> None:
        """Replaces one row; fields that are not given become 0."""

    async def arm_cq(self, cqn: int, flags: int) -> None:
        """Lets the next completion (or solicited completion) interrupt, once."""

    async def wake(self, pair: int) -> None:
        """The QP's state has changed: both its queues are looked at again."""

    async def flush(self, pair: int) -> None:
        """The QP is in ERR: the receive WQE that it holds ends flushed."""

    async def drop(self, pair: int) -> None:
        """Gives back everything the QP has outstanding, without completions."""

    async def drop_queue(self, queue: int, *, restart: bool = False) -> None:
        """Forgets all that was fetched of a virtqueue, which goes on at its used index, or with
        ``restart`` at 0; returns when its DMA has landed."""

    async def clear_counters(self, pair: int) -> None:
        """Lets the QP's counters begin at 0."""

    async def drain(self) -> None:
        """Returns when all DMA admitted before has landed."""

    async def invalidate(self, mrn: int) -> None:
        """Forgets a region's translations; returns when all DMA under it has landed."""

    async def begin_post(
        self, queue: int, *, record: bytes | None = None, position: int = 0
    ) -> bool:
        """Begins to write ``record`` to the event queue, or without one to read the avail index of
        a virtqueue that has been used up to ``position``. Returns whether it has begun: there is
        one at a time, for all functions. It waits while a request is pending, so the firmware does
        not wait for it."""

    async def post_result(self) -> Posted | None:
        """The result of ``begin_post``, once; None while it is not there."""


@dataclass(frozen=True)
class Filter:
    """What the function receives. ``modes``: those of ``NET_MODES`` that are on; ``mac``: its
    address, None: the port's."""

    modes: frozenset[str] = frozenset()
    mac: bytes | None = None


@dataclass(frozen=True)
class Steering:
    """Which pair of queues a frame goes to. ``types``: what has a hash (``HashType``), ``key``: of
    the hash, HASH_KEY_BYTES; ``table``: the pair of each hash modulo its length, which is a power
    of two up to RSS_TABLE; ``other``: the pair of frames without a hash."""

    types: int = 0
    key: bytes = bytes(HASH_KEY_BYTES)
    table: tuple[int, ...] = (0,)
    other: int = 0


class NetworkHardware(Protocol):
    """The network function. Every method may raise HardwareError."""

    async def state(self) -> FunctionState:
        """Its device resets, and what its driver has set."""

    async def reset_done(self) -> None:
        """Lets a device reset that waits go on."""

    async def request(self) -> Request | None:
        """The control request that waits, None when there is none."""

    async def respond(self, response: bytes) -> None:
        """Answers the waiting request."""

    async def filter(self) -> Filter:
        """What ``set_filter`` has set; the default after a reset of the whole card."""

    async def set_filter(self, chosen: Filter) -> None:
        """Sets what the function receives, beside the addresses."""

    async def set_steering(self, steering: Steering) -> None:
        """Sets which pair of queues a frame goes to."""

    async def set_addresses(self, addresses: list[bytes]) -> None:
        """Sets the addresses that are received beside the function's own: at most
        ``NET_ADDRESSES``, others are forgotten."""


class ConnectionHardware(Protocol):
    """The packets that open and close connections of DC, and the initiators that wait for one.
    Rows are those of ``hdl.ports.headers``. Every method may raise HardwareError."""

    async def asks(self) -> int:
        """How many requests have been held, modulo 256."""

    async def received(self) -> dict[str, int] | None:
        """Takes the oldest packet that has come, a ``ReceivedControl``; None: there is none."""

    async def send(self, packet: Row) -> None:
        """Sends a packet, a ``SentControl``."""

    async def asked(self, pair: int) -> tuple[int, int] | None:
        """The destination that an initiator waits for, and the stream, if it does."""

    async def forget(self, pair: int) -> None:
        """An initiator waits for nothing any more."""


class Hardware(Operations, Protocol):
    """One NIC: the operations of all functions by the card's numbers, and the mailbox.

    ``network``: the network function, None: the card has none. ``connections``: of DC, likewise.
    """

    @property
    def network(self) -> NetworkHardware | None:
        """See above."""

    @property
    def connections(self) -> ConnectionHardware | None:
        """See above."""

    async def function_state(self, function: int) -> FunctionState:
        """Resets of a guest function, by its PCI number."""

    async def resets(self, function: int) -> int:
        """``FunctionState.resets`` of a function, behind all rows that were written."""

    async def reset_done(self, function: int) -> None:
        """Ends the device reset of a function that has no objects any more; without effect on a
        card with one function, whose reset ends by itself."""

    async def request(self) -> Request | None:
        """The control request that waits, None when there is none."""

    async def respond(self, response: bytes) -> None:
        """Answers the waiting request with ``response``; the mailbox is free then."""

    async def mark(self) -> int:
        """The number that ``set_mark`` has set; 0 after a reset of the whole card."""

    async def broken_queue(self) -> int | None:
        """A virtqueue whose ring is broken, by the card's number, if there was one when ``request``
        was called last; the same one until ``broken_queue_done``, or until it is dropped."""

    async def broken_queue_done(self) -> None:
        """That has been seen to. It is not told of again before the virtqueue has been dropped."""

    async def set_mark(self, number: int) -> None:
        """Sets a number that the card keeps through the resets of its functions."""

    async def beat(self) -> None:
        """Beats: tells the hardware that the firmware runs."""
