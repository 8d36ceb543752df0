"""The configuration of one NIC: what a user chooses, and what follows from it."""

from dataclasses import dataclass, fields, replace
from enum import Enum
from functools import cached_property

__all__ = [
    "CQ_BITS",
    "QP_BITS",
    "ACTIVATION_FLAGS",
    "SWITCHES",
    "NET_ADDRESSES",
    "TRACE_BYTES",
    "VERSION",
    "CardFeature",
    "LEAST_HOT",
    "NicConfig",
]

#: Version of the gateware and of all that comes with it: the package, the firmware.
VERSION = "0.1.0"
WIDTHS = (64, 128, 256, 512)
MTUS = (256, 512, 1024, 2048, 4096)

#: Most indirect keys of a function: the card has room for the entries of all.
MOST_LAYOUTS = 64
#: Entries of the network function's table of addresses, unicast and multicast.
NET_ADDRESSES = 16
#: Bytes of a frame that the trace holds: all headers of each packet.
TRACE_BYTES = 128
#: Fewest QPs whose rows are on chip on a card that has not all there: more than can be held there
#: at a time, as somebody may write them.
LEAST_HOT = 16
#: PCI function numbers on one card: the network function, and the first RDMA function. Behind the
#: last of these is the management function, which is out of a guest's reach.
FUNCTION_NET = 0
FUNCTION_RDMA = 1


class CardFeature(Enum):
    """What a card may have or lack. The value of each but BASE is the switch of ``NicConfig``."""

    BASE = "base"  # RC SEND, WRITE and READ: every card has it
    UC = "uc"  # unreliable connections
    UD = "ud"  # datagrams, with GSI
    ATOMICS = "atomics"  # compare and swap, fetch and add
    FAST_REGISTRATION = "fast_registration"  # REG_MR, and operations that invalidate a key
    SRQ = "srq"  # shared receive queues
    EVENTS = "events"  # the event virtqueue
    RESIZE = "resize"  # queues get other sizes while they are in use
    MW = "mw"  # memory windows; they need FAST_REGISTRATION
    PAGE_SIZES = "page_sizes"  # pages of 2 MiB and 1 GiB
    TWO_LEVEL = "two_level"  # page lists of two levels
    MCAST = "mcast"  # multicast groups of datagrams; they need UD
    LOOPBACK = "loopback"  # frames to the card itself do not leave it
    IPV6 = "ipv6"  # GIDs that are no IPv4 addresses, and their packets
    LATENCY = "latency"  # histograms of how long messages take inside the card
    PARITY = "parity"  # rows of queue pairs and regions are checked when they are read
    PACKED = "packed"  # packed virtqueues, beside split ones
    PLACEMENT = "placement"  # FLUSH and ATOMIC WRITE; they need ATOMICS
    PERSISTENCE = "persistence"  # FLUSH makes data persistent, as the host says; needs PLACEMENT
    MEMCPY = "memcpy"  # copies inside host memory
    XRC = "xrc"  # connections whose requests name the receive queue; they need SRQ
    MP_WR = "mp_wr"  # receive requests that take several packets
    MKEYS = "mkeys"  # indirect keys; they need FAST_REGISTRATION
    PUSH = "push"  # send WQEs that come with their doorbell
    DC = "dc"  # connections that come and go by themselves; they need SRQ


#: Features that the hardware is written for. The switch of another one must be off.
BUILT = frozenset(CardFeature)
#: Fields of ``NicConfig`` that are True or False.
SWITCHES = frozenset(feature.value for feature in CardFeature if feature is not CardFeature.BASE)

#: Name -> (lowest, highest, must be a power of two).
LIMITS: dict[str, tuple[int, int, bool]] = {
    "clock_hz": (1_000_000, 1_000_000_000, False),
    "qps": (4, 16384, True),
    "hot_qps": (0, 64, True),
    "cqs": (2, 16384, True),
    "mrs": (2, 65536, True),
    "gids": (1, 128, False),
    "groups": (1, 64, True),
    "functions": (1, 4, False),
    "vectors": (2, 2048, False),
    "queue_size": (2, 32768, True),
    "address_bits": (24, 64, False),
    "read_tags": (4, 256, True),
    "read_bytes": (64, 512, True),
    "write_bytes": (64, 512, True),
    "max_sge": (1, 32, False),
    "max_inline": (16, 512, False),
    "wqes_ahead": (1, 64, True),
    "packets_ahead": (1, 256, True),
    "send_lines": (2, 256, True),
    "recv_lines": (8, 4096, True),
    "outstanding": (4, 65536, True),
    "read_sinks": (2, 8192, True),
    "long_sinks": (2, 256, True),
    "read_resources": (4, 65536, True),
    "max_rd_atomic": (1, 128, True),
    "translation_lines": (0, 65536, True),
    "gather_bytes": (8192, 262144, True),
    "receive_bytes": (8192, 1048576, True),
    "quantum": (1, 256, False),
    "trace_frames": (0, 4096, True),
    "network": (0, 8, True),
    "commit": (0, (1 << 32) - 1, False),
}

#: Bits of the card's number of a QP and of a CQ, on the largest card.
QP_BITS, CQ_BITS = ((LIMITS[name][1] - 1).bit_length() for name in ("qps", "cqs"))
#: Bits of the flags with which a QP is activated; ``hdl/ports/activations.py`` names them.
ACTIVATION_FLAGS = 4


@dataclass(frozen=True, kw_only=True)
class NicConfig:
    """What a user chooses. Frozen; a bad value raises ValueError naming field and value.

    Attributes:
        width: data path width, bits.
        clock_hz: core clock, Hz (simulated time and timers are derived from it).
        qps: queue pairs of the card. Each function has its share of these and of the next three
            (``guest``). Of a function's pairs, pair 0 is never used and pair 1 is QP1 (virtio-rdma,
            max_qp). cqs: completion queues of the card. mrs: memory regions of the card. gids:
            entries of the card's GID table.
        hot_qps: queue pairs whose rows are on chip at a time, those of all others being in memory
            that the firmware gives (docs/context.md). 0: all rows are on chip.
        groups: multicast groups of the card, of which each function has its share.
        functions: guest functions. vectors: MSI-X vectors of a guest function.
        queue_size: largest virtqueue, descriptors.
        address_bits: bits of a bus address, and of an address in a region, that the card keeps. It
            takes those above for 0; a region must lie below them, and so must a peer's access.
        mtu: largest path MTU, bytes of payload.
        read_tags: host reads in flight. read_bytes: largest single host read, bytes; each tag
            owns that much reorder storage. write_bytes: largest single host write burst, bytes.
        max_sge: SGEs of a WQE. max_inline: bytes of inline payload of a WQE.
        wqes_ahead: WQEs that are read from host memory at a time, of receive queues half as many,
            but two at least. 1: one after the other, and so are the buffers of CQEs, without parts
            that read many.
        packets_ahead: packets that wait in one stage of a pipeline, with wide rows, at most. 1: one
            is in each stage, in registers instead of memories.
        send_lines: decoded WQEs held on the card for sending. recv_lines: decoded WQEs held for
            receiving; the last quarter, at most 32, is for WQEs that messages hold.
        outstanding: unacknowledged WQEs over all QPs.
        read_sinks: outstanding READs and atomics over all QPs whose WQEs have up to four SGEs.
            long_sinks: those whose WQEs have more SGEs.
        read_resources: READ requests held by the responder over all QPs; each function has its
            share.
        max_rd_atomic: outstanding READs of one QP, either direction.
        translation_lines: lines of the translation cache, eight pages each, per direction. 0: there
            is no cache, and each chunk waits for a read of its page's address.
        gather_bytes: payload fetched ahead of the wire, bytes: the rate of the wire times the
            latency of the host. receive_bytes: receive buffer, bytes.
        quantum: packets one QP may send before another waiting QP gets its turn. A request of more
            than 512 bytes, and a response of more than 256 bytes, counts as several.
        trace_frames: frames of each direction whose first ``TRACE_BYTES`` the trace holds; 0: there
            is none.
        network: pairs of a receive and a transmit queue of the network function, PCI function 0; 0:
            there is none. A card that has one has one guest function for RDMA.
        commit: first 32 bits of the hash of the commit that the card is generated from; 0: unknown.
            Only what is generated for a card has one, so that models of equal gateware are equal.
        uc, ud, atomics, fast_registration, srq, events, resize, mw, page_sizes, two_level, mcast,
            loopback, ipv6, latency, parity, packed, placement, persistence, memcpy, xrc, mp_wr,
            mkeys, push, dc: switches of ``CardFeature``. A card without a feature refuses what
            needs it and costs nothing for it. persistence: whether the host keeps what reaches its
            memory when the power fails.
    """

    width: int = 512
    clock_hz: int = 250_000_000
    qps: int = 128
    hot_qps: int = 0
    cqs: int = 32
    mrs: int = 1024
    gids: int = 16
    groups: int = 32
    functions: int = 1
    vectors: int = 32
    queue_size: int = 4096
    address_bits: int = 64
    mtu: int = 4096
    read_tags: int = 256
    read_bytes: int = 512
    write_bytes: int = 256
    max_sge: int = 32
    max_inline: int = 512
    wqes_ahead: int = 64
    packets_ahead: int = 256
    send_lines: int = 64
    recv_lines: int = 1024
    outstanding: int = 1024
    read_sinks: int = 1024
    long_sinks: int = 32
    read_resources: int = 1024
    max_rd_atomic: int = 16
    translation_lines: int = 2048
    gather_bytes: int = 65536
    receive_bytes: int = 262144
    quantum: int = 16
    trace_frames: int = 0
    network: int = 0
    commit: int = 0
    uc: bool = True
    ud: bool = True
    atomics: bool = True
    fast_registration: bool = True
    srq: bool = True
    events: bool = True
    resize: bool = True
    mw: bool = True
    page_sizes: bool = True
    two_level: bool = True
    mcast: bool = True
    loopback: bool = True
    ipv6: bool = True
    latency: bool = False
    parity: bool = False
    packed: bool = False
    placement: bool = False
    persistence: bool = False
    memcpy: bool = False
    xrc: bool = False
    mp_wr: bool = False
    mkeys: bool = False
    push: bool = False
    dc: bool = False

    def __post_init__(self) -> None:
        self._check_types()
        if self.width not in WIDTHS:
            raise ValueError(f"width must be one of {WIDTHS} bits, not {self.width!r}")
        if self.mtu not in MTUS:
            raise ValueError(f"mtu must be one of {MTUS} bytes, not {self.mtu!r}")
        for name, (low, high, power) in LIMITS.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} must be {low} to {high}, not {value!r}")
            if power and value & (value - 1):
                raise ValueError(f"{name} must be a power of two, not {value!r}")
        self._check_hot()
        self._check_switches()
        if 0 < self.translation_lines < 8:
            raise ValueError(
                f"translation_lines must be 0 or at least 8, not {self.translation_lines!r}"
            )
        if self.trace_frames == 1:
            raise ValueError("trace_frames must be 0 or at least 2, not 1")
        if self.network and self.functions != 1:
            raise ValueError(
                f"network must be 0 with functions {self.functions!r}, not {self.network!r}: "
                "it is not built yet"
            )
        if self.gather_bytes < 2 * self.mtu:
            raise ValueError(
                f"gather_bytes must hold two packets of mtu {self.mtu}, not {self.gather_bytes!r}"
            )
        if self.receive_bytes < 2 * self.mtu:
            raise ValueError(
                f"receive_bytes must hold two packets of mtu {self.mtu}, not {self.receive_bytes!r}"
            )
        try:
            self.guest  # noqa: B018 - each function's share is checked too
        except ValueError as bad:
            raise ValueError(
                f"functions {self.functions!r} leave too little to each: {bad}"
            ) from None

    def _check_switches(self) -> None:
        for name, without, is_so in (
            ("packed", "wqes_ahead is 1", self.wqes_ahead == 1),
            ("push", "wqes_ahead is 1", self.wqes_ahead == 1),
            ("two_level", "translation_lines is 0", not self.translation_lines),
            ("placement", "atomics is False", not self.atomics),
            ("persistence", "placement is False", not self.placement),
            ("memcpy", "max_sge is 1", self.max_sge == 1),
            ("xrc", "srq is False", not self.srq),
            ("xrc", "atomics is False", not self.atomics),
            ("xrc", "fast_registration is False", not self.fast_registration),
            ("mkeys", "fast_registration is False", not self.fast_registration),
            ("dc", "srq is False", not self.srq),
            ("dc", "atomics is False", not self.atomics),
            ("dc", "fast_registration is False", not self.fast_registration),
            ("parity", "network is not 0", self.network != 0),
        ):
            if getattr(self, name) and is_so:
                raise ValueError(f"{name} must be False where {without}, not True")

    def _check_hot(self) -> None:
        if self.hot_qps and not LEAST_HOT <= self.hot_qps < self.qps:
            raise ValueError(
                f"hot_qps must be 0, or at least {LEAST_HOT} and fewer than qps {self.qps}, "
                f"not {self.hot_qps!r}"
            )
        if self.hot_qps and self.parity:
            raise ValueError("parity must be False where hot_qps is not 0, not True")

    def _check_types(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) != (field.name in SWITCHES) or not isinstance(value, int):
                kind = "True or False" if field.name in SWITCHES else "a whole number"
                raise ValueError(f"{field.name} must be {kind}, not {value!r}")
        for feature in self._switched_on - BUILT:
            raise ValueError(f"{feature.value} must be False, not True: it is not built yet")

    @cached_property
    def features(self) -> frozenset[CardFeature]:
        """What the card has."""
        # Without fast registration there is nothing that could bind a window.
        lacking = {CardFeature.MW} if not self.fast_registration else set()
        if not self.ud:
            lacking |= {CardFeature.MCAST}
        return frozenset({CardFeature.BASE, *self._switched_on}) - lacking

    @property
    def _switched_on(self) -> frozenset[CardFeature]:
        return frozenset(CardFeature(name) for name in SWITCHES if getattr(self, name))

    @cached_property
    def windows(self) -> bool:
        """Whether the card has memory windows."""
        return CardFeature.MW in self.features

    @cached_property
    def multicast(self) -> bool:
        """Whether the card has multicast groups."""
        return CardFeature.MCAST in self.features

    @cached_property
    def keeps_destinations(self) -> bool:
        """Whether what a send WQE has in the place of an address vector is kept on the card: that
        of a datagram, or operands that lie there."""
        return self.ud or self.windows or self.xrc or self.mkeys or self.dc

    @cached_property
    def layouts(self) -> int:
        """Indirect keys of one guest function of a card that has any, a power of two. They have the
        last numbers of its regions, and room for ``max_sge`` entries each."""
        return min(MOST_LAYOUTS, self.guest.mrs // 2)

    @cached_property
    def bytes_per_beat(self) -> int:
        """Bytes of one beat of the data path."""
        return self.width // 8

    @cached_property
    def recv_wqes_ahead(self) -> int:
        """WQEs of receive queues that are read from host memory at a time; see ``wqes_ahead``."""
        return 1 if self.wqes_ahead == 1 else max(2, self.wqes_ahead // 2)

    @cached_property
    def guest(self) -> "NicConfig":
        """What one guest function has, as if it had a card of its own.

        The functions share the card's objects out in parts of a power of two. With three functions
        a quarter of the card is nobody's.
        """
        if self.functions == 1:
            return self
        share = 1 << self.ordinal_bits
        names = ("qps", "cqs", "mrs", "gids", "groups", "read_resources")
        shares = {name: getattr(self, name) // share for name in names}
        return replace(self, functions=1, hot_qps=0, **shares)

    @cached_property
    def ordinal_bits(self) -> int:
        """Bits of the ordinal of a function, which counts the guest functions from 0."""
        return (self.functions - 1).bit_length()

    @cached_property
    def driven(self) -> int:
        """Functions with a driver: the guest functions, and the network function if there is one.
        Signals with a bit for each of them have that of the network function last."""
        return self.functions + (self.network > 0)

    @property
    def driven_functions(self) -> tuple[int, ...]:
        """PCI function numbers of those, in the order of their bits."""
        guests = tuple(range(FUNCTION_RDMA, FUNCTION_RDMA + self.functions))
        return guests + (FUNCTION_NET,) * (self.network > 0)

    @cached_property
    def shared(self) -> bool:
        """Whether several functions share the card: a device reset of one leaves the rooms alone,
        and the firmware takes away what the function has."""
        return self.driven > 1

    @cached_property
    def network_queues(self) -> int:
        """Virtqueues of the network function: of its pairs, and the control queue (Virtio 1.2,
        5.1.2)."""
        return 2 * self.network + 1

    @cached_property
    def network_vectors(self) -> int:
        """MSI-X vectors of the network function: one for each virtqueue, one for changes."""
        return self.network_queues + 1

    @cached_property
    def management_function(self) -> int:
        """PCI number of the management function, behind those of the guests."""
        return FUNCTION_RDMA + self.functions

    @cached_property
    def number_bits(self) -> dict[str, int]:
        """Bits of an object's number in its function, by kind of object.

        The card's number of the object has the ordinal of its function above these bits.
        """
        sizes = {name: getattr(self.guest, name) for name in ("qps", "cqs", "mrs")}
        sizes["queues"] = self._guest_queues
        return {name: (size - 1).bit_length() for name, size in sizes.items()}

    @cached_property
    def queues(self) -> int:
        """Virtqueue numbers. Of a function: the control queue, CQs, pairs of SQ and RQ (VR-1.2),
        the event queue if there are events. Of a card with more functions the last numbers of each
        are no queue's."""
        first = (self.functions - 1) << self.number_bits["queues"]
        return first + self._guest_queues

    @property
    def _guest_queues(self) -> int:
        return self.event_queue + self.events

    def cq_queue(self, cqn: int) -> int:
        """Number in its function of the virtqueue of completion queue ``cqn`` (VR-3.11)."""
        return 1 + cqn

    def sq_queue(self, qp: int) -> int:
        """Number in its function of the send queue of pair ``qp`` (VR-3.22)."""
        return 1 + self.guest.cqs + 2 * qp

    def rq_queue(self, qp: int) -> int:
        """Number in its function of the receive queue of pair ``qp`` (VR-3.22)."""
        return self.sq_queue(qp) + 1

    @cached_property
    def event_queue(self) -> int:
        """Number in its function of the event queue, behind the last pair (E-20)."""
        return self.sq_queue(self.guest.qps)
