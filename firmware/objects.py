"""The firmware's objects: handles, limits, keys."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from firmware.dc.streams import Streams
from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import EventType, Mtu, MwType, QpState, QpType
from hdl.abi.limits import device_limits
from hdl.config import NicConfig

#: Tables with a row for each QP pair.
QP_TABLES = ("qp_cfg", "qp_fetch", "qp_tx", "qp_ack", "qp_sent", "qp_rx", "qp_reply")


class Refused(Exception):
    """A control command is answered with ERR; the text says why."""


@dataclass(frozen=True)
class Limits:
    """Limits of the device: those that it advertises, and those that have no field there."""

    config: NicConfig
    device: dict[str, int]
    mtu: Mtu
    qp_types: frozenset[QpType]

    @classmethod
    def of(cls, config: NicConfig, qp_types: frozenset[QpType]) -> Limits:
        """The limits of a configuration; ``qp_types`` are the transports that are served."""
        if QpType.SMI in qp_types:
            raise ValueError("There are no subnet management QPs on Ethernet")
        mtu = next(mtu for mtu in Mtu if mtu.octets == config.mtu)
        return cls(config, device_limits(config), mtu, qp_types)

    def check(self, name: str, value: int, lowest: int = 0) -> None:
        """Refuses ``value`` beyond the advertised limit ``name`` or below ``lowest``."""
        if not lowest <= value <= self.device[name]:
            raise Refused(f"{value} is not within {lowest} to {name} = {self.device[name]}")


@dataclass
class Pd:
    """A protection domain; ``users`` counts regions and QPs in it."""

    number: int = 0
    users: int = 0


@dataclass
class Cq:
    """A completion queue; ``users`` counts the send and receive sides that complete to it.
    ``told``: its error has been reported."""

    number: int = 0
    users: int = 0
    told: bool = False


@dataclass
class Mr:
    """A memory region. ``pages``: the most that MAP_MR_SG may give it; 0: it is not from CREATE_MR.
    ``zero_based``: what it maps begins at address 0. Or a memory ``window`` of that type; or an
    indirect key of up to so many ``entries``. ``kept``: its row as it was before the command that
    is taking it away."""

    pd: Pd
    number: int = 0
    pages: int = 0
    zero_based: bool = False
    window: MwType | None = None
    entries: int = 0
    kept: dict[str, int] | None = None


@dataclass
class Xrcd:
    """An XRC domain; ``users`` counts the targets and the receive queues in it."""

    number: int = 0
    users: int = 0


@dataclass(frozen=True)
class Pieces:
    """Of a receive queue whose requests take several packets (MP WR): ``buffer`` bytes of each, and
    ``align_log2`` of the bytes of a segment."""

    buffer: int
    align_log2: int


@dataclass
class Srq:
    """A shared receive queue, which has the receive virtqueue of pair ``number``; ``users`` counts
    the QPs that take from it. ``limit``: fewer requests than that are an event, once; 0: none.
    ``told``: its error has been reported. One of an XRC domain (``xrcd``) has a ``cq``, and
    ``srq_num``, by which packets name it. ``pieces``: its requests take several packets."""

    pd: Pd
    max_wr: int
    max_sge: int
    number: int = 0
    users: int = 0
    limit: int = 0
    told: bool = False
    xrcd: Xrcd | None = None
    cq: Cq | None = None
    srq_num: int = 0
    pieces: Pieces | None = None


@dataclass
class Qp:
    """A queue pair: what it was created with, and its attributes as last set.

    ``attrs`` has the fields of ``virtio_rdma_qp_attr``, unpacked. ``slice`` is the QP's part of the
    pool of READ requests. ``start`` has more row fields, for replays. ``srq``: where its receive
    WQEs come from, instead of its own receive queue. ``told``: the events that it has had.
    ``notify_drained``: there will be one when its send queue is drained. ``binds``: it may bind
    memory windows. ``placement``: the flags of FLUSH that it may have; 0: it has neither FLUSH nor
    ATOMIC WRITE. ``copies``: it may have MEMCPY. ``layouts``: it may give indirect keys
    layouts. ``pieces``: the requests of its own receive queue
    take several packets. An XRC initiator has no ``recv_cq``, and a target
    has its domain ``xrcd`` in place of ``pd`` and both CQs. Of an end of a connection of DC,
    ``connected`` has what its row of ``qp_cfg`` says instead. ``stream``: that an initiator is at,
    or that failed last; ``streams``: None, it has none.
    """

    pd: Pd | None
    send_cq: Cq | None
    recv_cq: Cq | None
    init: dict[str, int]
    attrs: dict[str, Any]
    srq: Srq | None = None
    number: int = 0
    qpn: int = 0
    slice: Slice | None = None
    start: dict[str, dict[str, int]] = field(default_factory=dict)
    told: set[EventType] = field(default_factory=set)
    notify_drained: bool = False
    binds: bool = False
    placement: int = 0
    copies: bool = False
    layouts: bool = False
    xrcd: Xrcd | None = None
    pieces: Pieces | None = None
    connected: dict[str, int] = field(default_factory=dict)
    stream: int = 0
    streams: Streams | None = None

    @property
    def takes_pieces(self) -> Pieces | None:
        """How the requests that it takes take several packets, if they do."""
        return self.srq.pieces if self.srq else self.pieces

    @property
    def holds_shared(self) -> bool:
        """Whether it may hold a receive WQE of a queue that is not its own."""
        return self.srq is not None or self.xrcd is not None

    @property
    def uses(self) -> list[Pd | Cq | Srq | Xrcd]:
        """What it uses, each as often as it does."""
        found = (self.pd, self.send_cq, self.recv_cq, self.srq, self.xrcd)
        return [one for one in found if one is not None]

    @property
    def type(self) -> QpType:
        """Transport type."""
        return QpType(self.init["qp_type"])

    @property
    def state(self) -> QpState:
        """The state last set; the hardware may have gone to error since."""
        return QpState(self.attrs["qp_state"])


@dataclass
class Destination:
    """Where requests of an initiator of DC go: a target ``dctn`` with its ``key`` at an address
    ``ah``, as in the attributes of a queue pair."""

    pd: Pd
    dctn: int
    key: int
    ah: dict[str, Any]
    number: int = 0


@dataclass
class Group:
    """A multicast group: its address and the QP numbers of its members."""

    gid: bytes
    members: list[int] = field(default_factory=list)
    number: int = 0


T = TypeVar("T", Pd, Cq, Mr, Qp, Srq, Group, Xrcd, Destination)


class Handles(Generic[T]):
    """Objects by number, the lowest free one first; those below ``reserved`` only on demand.

    A number may also be lent to somebody else's object, the highest free one first. ``touched``:
    the objects that may have changed; whoever keeps a journal of them empties it.
    """

    def __init__(self, what: str, count: int, reserved: int = 0):
        self._what, self._count, self._reserved = what, count, reserved
        self._objects: dict[int, T] = {}
        self._free = list(range(reserved, count))  # a heap
        self._lent: set[int] = set()
        self.touched: set[int] = set()

    def __len__(self) -> int:
        return len(self._objects)

    def add(self, make: Callable[[], T], number: int | None = None) -> T:
        """Makes an object with a free number, or with ``number``; Refused when there is none."""
        if number is None:
            self._check_free()
            number = heapq.heappop(self._free)
        elif not 0 <= number < self._count or number in self._objects or number in self._lent:
            raise Refused(f"{self._what} {number} is in use or does not exist")
        elif number >= self._reserved:
            self._drop_free(number)
        made = make()
        made.number = number
        self._objects[number] = made
        self.touched.add(number)
        return made

    def _check_free(self) -> None:
        if not self._free:
            raise Refused(f"All {self._count - self._reserved} {self._what}s are in use")

    def _drop_free(self, number: int) -> None:
        self._free.remove(number)
        heapq.heapify(self._free)

    @property
    def scarce(self) -> bool:
        """Whether no more than an eighth of the numbers is free."""
        return 8 * len(self._free) <= self._count - self._reserved

    def lend(self, number: int | None = None) -> int:
        """The highest free number, or ``number``, which nobody gets until ``give_back``; Refused
        without one."""
        self._check_free()
        if number is None:
            number = max(self._free)
        self._drop_free(number)
        self._lent.add(number)
        return number

    def give_back(self, number: int) -> None:
        """Frees a number that was lent."""
        self._lent.remove(number)
        heapq.heappush(self._free, number)

    def get(self, number: int) -> T:
        """The object; Refused when it does not exist."""
        found = self._objects.get(number)
        if found is None:
            raise Refused(f"No {self._what} {number:#x}")
        self.touched.add(number)
        return found

    def find(self, number: int) -> T | None:
        """The object, which is only looked at; None when it does not exist."""
        return self._objects.get(number)

    def remove(self, number: int) -> None:
        """Frees a number."""
        del self._objects[number]
        self.touched.add(number)
        if number >= self._reserved:
            heapq.heappush(self._free, number)

    def all(self) -> list[T]:
        """All objects."""
        return list(self._objects.values())


@dataclass(frozen=True)
class Slice:
    """``size`` entries of the pool of READ requests from ``base`` on; a power of two, or none."""

    base: int
    size: int


class SlicePool:
    """The READ requests that responders hold, in slices whose base is a multiple of their size.

    ``total``, a power of two, is halved again and again (buddies), so that a slice among thousands
    takes no longer than the first. The lowest of the smallest free blocks is taken.
    """

    def __init__(self, total: int):
        self._total = total
        self._taken: set[Slice] = set()
        #: Size -> bases of the free blocks.
        self._free: dict[int, set[int]] = {1 << i: set() for i in range(total.bit_length())}
        self._free[total].add(0)

    def take(self, entries: int) -> Slice:
        """A slice for at least ``entries``; Refused when the pool has none left."""
        if not entries:
            return Slice(0, 0)
        size = 1 << (entries - 1).bit_length()
        block = next((s for s, bases in self._free.items() if s >= size and bases), None)
        if block is None:
            raise Refused(f"No {size} READ requests left of {self._total}")
        return self._split(min(self._free[block]), block, Slice(min(self._free[block]), size))

    def _split(self, base: int, block: int, wanted: Slice) -> Slice:
        """Takes ``wanted`` out of the free block at ``base``; what is left of it stays free."""
        self._free[block].remove(base)
        while block > wanted.size:
            block //= 2
            half = base + block
            self._free[block].add(base if wanted.base >= half else half)
            base = half if wanted.base >= half else base
        self._taken.add(wanted)
        return wanted

    def take_again(self, wanted: Slice) -> None:
        """Takes this very slice; ValueError unless it is free."""
        if not wanted.size:
            return
        for block in (size for size in self._free if size >= wanted.size):
            base = wanted.base & ~(block - 1)
            if base in self._free[block]:
                self._split(base, block, wanted)
                return
        raise ValueError(f"{wanted} is not free")

    def give(self, slice_: Slice) -> None:
        """Frees a slice."""
        if slice_ not in self._taken:
            return
        self._taken.remove(slice_)
        base, size = slice_.base, slice_.size
        while base ^ size in self._free[size]:  # its other half
            self._free[size].remove(base ^ size)
            base, size = base & ~size, 2 * size
        self._free[size].add(base)


class Objects:
    """Everything that a function has."""

    def __init__(self, limits: Limits):
        config = limits.config
        self.limits = limits
        self.pds: Handles[Pd] = Handles("PD", limits.device["max_pd"])
        self.cqs: Handles[Cq] = Handles("CQ", config.cqs)
        self.mrs: Handles[Mr] = Handles("MR", config.mrs)
        self.qps: Handles[Qp] = Handles("QP pair", config.qps, reserved=abi.FIRST_USER_QP_INDEX)
        #: A shared receive queue has the number of the pair that is lent to it.
        self.srqs: Handles[Srq] = Handles("SRQ", config.qps, reserved=config.qps)
        #: Domain 0 is none.
        self.xrcds: Handles[Xrcd] = Handles("XRC domain", limits.device["max_xrcd"] + 1, reserved=1)
        #: Destination 0 is none.
        self.destinations: Handles[Destination] = Handles(
            "destination", limits.device["max_dc_destinations"] + 1, reserved=1
        )
        #: Ends of connections of DC, by the pair that is lent to each.
        self.contexts: dict[int, Qp] = {}
        self.groups: Handles[Group] = Handles("multicast group", limits.device["max_mcast_grp"])
        self.slices = SlicePool(config.read_resources)
        #: The GIDs that are set, by index.
        self.gids: dict[int, bytes] = {}
        #: ... as a journal has them.
        self.gids_told: dict[str, str] | None = None
        #: The last tag of each region's keys, and the next generation of each pair's QPN.
        self.tags: dict[int, int] = {}
        self.generations: dict[int, int] = {}
        #: The command that is served may have been begun by a firmware before this one.
        self.redoing = False
        #: Writes down what has changed, in the middle of a command.
        self.checkpoint: Callable[[], None] = lambda: None

    def next_tag(self, mrn: int) -> int:
        """A key tag other than the last ones of this region, never 0: old keys and key 0 fail."""
        tag = self.tags.get(mrn, 0) % 255 + 1
        self.tags[mrn] = tag
        return tag

    def next_qpn(self, pair: int) -> int:
        """A QPN for a pair, other than its last ones: late packets miss. 0xFFFFFF is multicast."""
        if pair == abi.GSI_QP_INDEX:
            return pair
        bits = (self.limits.config.qps - 1).bit_length()
        generation = self.generations.get(pair, 0)
        self.generations[pair] = (generation + 1) % ((1 << (abi.QPN_BITS - bits)) - 1)
        return generation << bits | pair

    def group_of(self, gid: bytes) -> Group | None:
        """The multicast group with this address, which the command may change."""
        found = next((group for group in self.groups.all() if group.gid == gid), None)
        return None if found is None else self.groups.get(found.number)

    def forget(self) -> list[tuple[str, int]]:
        """Removes all objects, as a device reset does; returns (table, row) of each."""
        rows: list[tuple[str, int]] = []
        for qp in self.qps.all():
            if qp.slice is not None:
                self.slices.give(qp.slice)
            self.qps.remove(qp.number)
            rows += [(table, qp.number) for table in QP_TABLES]
        for srq in self.srqs.all():
            self.srqs.remove(srq.number)
            self.qps.give_back(srq.number)
            if srq.xrcd is not None:
                rows.append(("qp_cfg", srq.number))
        for context in self.contexts.values():
            if context.slice is not None:
                self.slices.give(context.slice)
            self.qps.give_back(context.number)
            rows += [(table, context.number) for table in QP_TABLES]
        self.contexts.clear()
        for destination in self.destinations.all():
            self.destinations.remove(destination.number)
        for xrcd in self.xrcds.all():
            self.xrcds.remove(xrcd.number)
        for mr in self.mrs.all():
            self.mrs.remove(mr.number)
            rows.append(("mr", mr.number))
        for cq in self.cqs.all():
            self.cqs.remove(cq.number)
            rows.append(("cq", cq.number))
        for group in self.groups.all():
            self.groups.remove(group.number)
            rows.append(("group", group.number))
        for pd in self.pds.all():
            self.pds.remove(pd.number)
        rows += [("gid", index) for index in self.gids]
        self.gids.clear()
        return rows
