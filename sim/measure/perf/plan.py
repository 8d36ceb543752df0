"""What one run of ``perf`` does: its options, checked once, and what follows for each size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hdl.abi.enums import WrOpcode
from hdl.abi.virtio_pci import Feature
from hdl.abi.virtio_rdma import GRH_SIZE, PAGE_SIZE
from hdl.bounds import WORD, within
from hdl.config import LIMITS, MTUS, NicConfig
from sim.guest.driver.device import ALL_FEATURES
from sim.measure.flow import PIECES, Shape
from sim.measure.perf.verbs import ATOMIC_TYPES, CONNECTIONS, OPERATIONS, VERBS, Verb
from sim.models.impairments import Impairments

__all__ = ["IN_FLIGHT", "MANY", "MEMORY", "SWEEP", "USUAL_QPS", "Plan"]

#: Virtio features that a driver can do without.
OPTIONAL = ("notification_data", "in_order", "event_idx", "indirect_desc")
#: Largest message, bytes: perftest's.
MAX_SIZE = 1 << 23
#: Most QPs of a card as it is measured otherwise; pair 0 is never used and pair 1 is QP1
#: (virtio-rdma, max_qp). Beyond, the card is another one: ``MANY``.
USUAL_QPS = NicConfig().qps - 2
#: Receive queues of a domain of XRC that initiators name in turn, if they share them.
XRC_QUEUES = 4
#: The card for more QPs: as many as can be, and what goes with each of them.
MANY: dict[str, Any] = {
    "qps": 16384,
    "outstanding": 65536,
    "read_resources": 65536,
    "read_sinks": 8192,
    "translation_lines": 16384,
}
#: Message sizes of ``--all``: perftest goes on to 2**23, where simulated time is all that changes.
SWEEP = tuple(1 << n for n in range(1, 21))
#: Requests of all QPs together are not posted beyond these bytes: many times what the line holds.
IN_FLIGHT = 8 << 20
#: A service without answers completes what has left. So much of the line's time may pass, in bytes,
#: until the last of it is in the peer's memory and its place can be used again.
ON_THE_WAY = 1 << 15
#: Payload of the timed part unless ``--iters`` says otherwise, bytes; and messages.
TIMED_BYTES, TIMED_MESSAGES = 8 << 20, 4096
#: Bytes that one line of the card's translation cache covers: eight pages.
LINE_BYTES = 8 * PAGE_SIZE
#: Memory of a host, and what one region of it may take, bytes.
MEMORY, LARGEST_REGION = 1 << 30, 224 << 20
#: More receives than a card fetches ahead of their packets. The warm-up of a SEND test takes what
#: a card can have fetched before the first message, this many times over. It ends earlier, at so
#: many bytes, with long messages: the line limits those.
AHEAD, AHEAD_TURNS, AHEAD_BYTES = 1024, 4, 1 << 20
#: Turns of the queues before the timed part when translations always miss.
MISS_TURNS = 8
#: Messages of a latency test, and those before them.
LAT_ITERS, LAT_WARM = 100, 10
#: Entries of a latency test's CQs: with few the card would often come to the end of what it knows
#: of the ring, and the time to read on would be in the figures.
LAT_CQ = 256
#: PCIe's packets with ``tlp_headers``: largest payload of one, largest read of one request, bytes.
TLP_PAYLOAD, TLP_READ = 256, 512
LAT_SLOTS = 8
#: How long nothing may happen before a run counts as stalled, us of simulated time; and how often a
#: packet may be sent (1 + retry_cnt), each time for up to twice the time-out.
PATIENCE_US, TRIES = 500, 8


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Options of a run; ValueError names a bad one. All sizes of a run use the same QPs.

    Fields are named as the options; times in ns, rates in Gb/s, ``clock_mhz`` in MHz, ``iters``
    messages of each QP (None: as many as the size deserves), ``host_gbps`` 0 for no limit,
    ``tlp_headers`` whether the headers of PCIe's packets count in it,
    ``without`` virtio features that the driver does not ask for, ``places`` of a message in each
    QP's memory (None: as many as are outstanding and a few), ``place_step`` bytes from one to the
    next (None: whole 64-byte blocks), ``miss_qps`` QPs, the first ones, whose translations are
    never in the card's cache. ``impair``: the network both ways, as ``Impairments`` reads it;
    ``qp_timeout``: code of the QPs' time-out, which lasts ``timer_scale`` times as long as it says.
    ``atomic_type``: which atomic; ``one_word``: all QPs change the same word. ``connection``: a key
    of ``CONNECTIONS``; ``use_srq``: all QPs of a node receive from one shared receive queue, or
    of XRC from ``XRC_QUEUES``; ``targets``: of each initiator of DC, which its messages go to in
    turn; ``mp_wr``: each receive takes several messages, of a packet each;
    ``push``: short requests to an empty queue go with their doorbell; ``busy``: the parts of the
    cards are looked at while messages are timed;
    ``mkey``: entries of the indirect key that each place of a message has, 0: it has none;
    ``sges``: of each request and of each receive, which cut a message into equal pieces.
    ``cold``: no warm-up, so the first packets meet an idle card. ``card``: the other
    fields of the cards' ``NicConfig``; without them the default card, or that for more QPs.
    """

    op: str
    sizes: tuple[int, ...]
    mtu: int = 4096
    qps: int = 1
    tx_depth: int = 128
    post_list: int = 16
    cq_mod: int = 16
    iters: int | None = None
    inline: int = 0
    bidirectional: bool = False
    width: int = 512
    clock_mhz: float = 250
    host_latency_ns: float = 500
    host_gbps: float = 110
    line_gbps: float = 100
    tlp_headers: bool = False
    seed: int = 1
    without: tuple[str, ...] = ()
    places: int | None = None
    place_step: int | None = None
    miss_qps: int = 0
    impair: str = ""
    qp_timeout: int = 14
    timer_scale: float = 1.0
    atomic_type: str = next(iter(ATOMIC_TYPES))
    one_word: bool = False
    connection: str = "RC"
    busy: bool = False
    use_srq: bool = False
    targets: int = 1
    mp_wr: bool = False
    push: bool = False
    mkey: int = 0
    sges: int = 1
    cold: bool = False
    card: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_options()
        self._check_service()
        self._check_kinds()
        if self.mp_wr:
            self._check_pieces()
        if self.mkey:
            self._check_layouts()
        for size in self.sizes:
            self._check_size(size)

    def _check_options(self) -> None:
        """Each option by itself is one that there is, or within its bounds."""
        within("--clock-mhz", self.clock_mhz, *(hz / 1e6 for hz in LIMITS["clock_hz"][:2]))
        if self.op not in OPERATIONS:
            raise ValueError(f"Operation must be one of {', '.join(OPERATIONS)}, not {self.op!r}")
        config = self.config
        for size in self.sizes:
            within("--size", size, 1, MAX_SIZE)
        if self.mtu not in MTUS or self.mtu > config.mtu:
            raise ValueError(f"--mtu must be one of {', '.join(map(str, MTUS))}, not {self.mtu}")
        within("--qps", self.qps, 1, (config.qps if self.card else MANY["qps"]) - 2)
        # The send queue has twice as many entries: they come back a little after completions.
        within("--tx-depth", self.tx_depth, 1, config.queue_size // (2 * self.kind.requests))
        within("--post-list", self.post_list, 1, config.queue_size)
        within("--cq-mod", self.cq_mod, 1, config.queue_size)
        within("--inline", self.inline, 0, config.max_inline)
        within("--sges", self.sges, 1, min(config.max_sge, *self.sizes))
        if self.iters is not None:
            within("--iters", self.iters, 1, 10_000_000)
        within("--host-latency-ns", self.host_latency_ns, 0, 1_000_000)
        within("--host-gbps", self.host_gbps, 0.1 if self.host_gbps else 0, 10_000)
        within("--line-gbps", self.line_gbps, 0.1, 1000)
        within("--qp-timeout", self.qp_timeout, 0, 31)
        within("--seed", self.seed, 0, WORD - 1)
        if self.atomic_type not in ATOMIC_TYPES:
            raise ValueError(
                f"--atomic-type must be {' or '.join(ATOMIC_TYPES)}, not {self.atomic_type!r}"
            )
        Impairments.parse(self.impair)
        for name in self.without:
            if name not in OPTIONAL:
                raise ValueError(f"--without must be one of {', '.join(OPTIONAL)}, not {name!r}")

    def _check_kinds(self) -> None:
        """Options go with the operation."""
        if self.inline and (self.fetches or self.local or self.kind.placement):
            raise ValueError(f"--inline is for what is sent: not with {self.op}")
        if self.kind.size and set(self.sizes) != {self.kind.size}:
            raise ValueError(f"--size of an atomic must be {self.kind.size}, not {self.sizes}")
        if self.use_srq and self.op != "send_bw":
            raise ValueError(f"--use-srq is for send_bw: not with {self.op}")
        if self.sges > 1 and (self.latency or self.inline or self.kind.word or self.local):
            raise ValueError(f"--sges is for bandwidth out of memory: not with {self.op}, --inline")
        if self.one_word and (self.op != "atomic_bw" or self.bidirectional):
            raise ValueError("--one-word is for atomic_bw in one direction")
        if self.one_word and self.atomic_type != (counting := next(iter(ATOMIC_TYPES))):
            raise ValueError(f"--one-word is for {counting}: each result tells its turn")
        if self.latency:
            for name in ("qps", "bidirectional", "busy"):
                if getattr(self, name) > 1 or getattr(self, name) is True:
                    raise ValueError(f"--{name} is for bandwidth: not with {self.op}")
        for name, value in (("places", self.places), ("miss-qps", self.miss_qps or None)):
            if value is not None and (self.latency or self.verb not in ("write", "read")):
                raise ValueError(f"--{name} is for write_bw and read_bw: not with {self.op}")

    def _check_pieces(self) -> None:
        """Receives that take several messages go with the operation."""
        others = self.use_srq or self.sges > 1 or self.place_step is not None
        if self.op != "send_bw" or others or self.connection not in ("RC", "UC"):
            raise ValueError(f"--mp-wr is for send_bw of RC and UC alone: not with {self.op}")
        if max(self.sizes) > self.mtu:
            raise ValueError(f"--size with --mp-wr must be at most --mtu {self.mtu}")

    def _check_layouts(self) -> None:
        """Messages out of indirect keys go with the operation, and there are enough keys."""
        others = self.sges > 1 or self.mp_wr or self.inline or len(self.sizes) > 1
        if self.op not in ("write_bw", "send_bw") or others or self.connection != "RC":
            raise ValueError(f"--mkey is for one size of write_bw and send_bw: not with {self.op}")
        within("--mkey", self.mkey, 1, min(self.config.max_sge, *self.sizes))
        (size,) = self.sizes
        keys = self.qps * self.shape(size).slots
        within("the number of places with --mkey", keys, 1, self.config.layouts)

    def _check_service(self) -> None:
        """The operation is one of the service's."""
        if self.connection not in CONNECTIONS:
            raise ValueError(
                f"--connection must be {', '.join(CONNECTIONS)}, not {self.connection!r}"
            )
        if self.verb not in CONNECTIONS[self.connection]:
            raise ValueError(f"{self.connection} has no {self.verb}: not with {self.op}")
        if self.connection in ("XRC", "DC") and (self.latency or self.bidirectional):
            raise ValueError(f"--connection {self.connection} goes one way: not with {self.op}")
        if self.dynamic and (self.use_srq or self.miss_qps):
            raise ValueError("--connection DC: not with --use-srq, --miss-qps")
        most = self.config.qps // 2 // self.qps - 2 if self.dynamic else 1
        within("--targets (of DC)", self.targets, 1, max(most, 1))
        if not self.answered and self.impair:
            raise ValueError(f"--impair needs RC: {self.connection} sends nothing again")
        if self.connection == "UD" and max(self.sizes) > self.mtu:
            raise ValueError(f"--size of a datagram must be at most --mtu {self.mtu}")

    def _check_size(self, size: int) -> None:
        """Places, queues and memory are enough for messages of ``size`` bytes."""
        config, shape = self.config, self.shape(size)
        within("--places", shape.slots, shape.least_slots, 1 << 20)
        within("--place-step", shape.stride, shape.size, 1 << 24)
        most = 2 * config.translation_lines // shape.least_slots
        within("--miss-qps", self.miss_qps, 0, min(self.qps, most))
        if self.miss_qps:
            within("--size with --miss-qps", shape.size, 1, LINE_BYTES)
        within("the number of CQs", self.cqs, 1, config.cqs)
        if shape.slots > config.queue_size and self.places is None:
            raise ValueError(
                f"--tx-depth {self.tx_depth} with --post-list {self.post_list} and --cq-mod "
                f"{self.cq_mod} needs {shape.slots} receives, the queue has {config.queue_size}"
            )
        if self.region(size) > LARGEST_REGION:
            raise ValueError(
                f"{self.qps} QPs with messages of {size} bytes need {self.region(size) >> 20} "
                f"MiB, at most {LARGEST_REGION >> 20}"
            )

    @property
    def config(self) -> NicConfig:
        """The cards that are measured."""
        more = self.card or (MANY if self.qps > USUAL_QPS else {})
        switches = {"xrc": self.connection == "XRC", "mp_wr": self.mp_wr, "mkeys": self.mkey > 0}
        switches |= {"push": self.push, "dc": self.dynamic}
        more = {**self.kind.card, **{name: on for name, on in switches.items() if on}, **more}
        return NicConfig(width=self.width, clock_hz=round(self.clock_mhz * 1e6), **more)

    @property
    def dynamic(self) -> bool:
        """Whether connections come and go, which is the firmware's work: it goes on."""
        return self.connection == "DC"

    @property
    def answered(self) -> bool:
        """Whether a request completes when the peer has answered, not when it has left."""
        return self.connection in ("RC", "XRC", "DC")

    @property
    def area(self) -> int:
        """Bytes in front of a received message: a datagram's GRH area."""
        return GRH_SIZE if self.connection == "UD" else 0

    @property
    def max_rd_atomic(self) -> int:
        """READs outstanding on a QP, either way: its share of the card's."""
        share = self.config.read_resources // self.qps
        return min(self.config.max_rd_atomic, 1 << share.bit_length() - 1)

    @property
    def features(self) -> int:
        """What the driver asks for."""
        return ALL_FEATURES & ~sum(Feature[name.upper()].mask for name in self.without)

    @property
    def patience_us(self) -> int:
        """How long nothing may happen before a run counts as stalled: twice the time in which all
        messages up to the next completion pass the slowest part, and time to recover from loss."""
        lost = TRIES * 2 * 4.096 * 2**self.qp_timeout * self.timer_scale if self.impair else 0
        slowest_gbps = min(self.line_gbps, self.host_gbps or self.line_gbps)
        bits = 8 * max(self.sizes) * self.qps * max(self.cq_mod, self.post_list)
        passing = 2 * bits / (1000 * slowest_gbps)
        return math.ceil(PATIENCE_US + self.host_latency_ns / 10 + passing + lost)

    @property
    def port(self) -> float:
        """The rate of the host's port in Gb/s, each way."""
        rate = self.width * self.clock_mhz / 1000
        return min(rate, self.host_gbps) if self.host_gbps else rate

    @property
    def local(self) -> bool:
        """Whether what moves stays in the host: no packet carries it."""
        return self.kind.copies

    @property
    def verb(self) -> str:
        """Which of ``VERBS``, by its name."""
        return self.op.rpartition("_")[0]

    @property
    def kind(self) -> Verb:
        """What the messages are."""
        return VERBS[self.verb]

    @property
    def opcode(self) -> WrOpcode:
        """Of the work requests."""
        return ATOMIC_TYPES[self.atomic_type] if self.verb == "atomic" else self.kind.opcode

    @property
    def fetches(self) -> bool:
        """Whether what moves is brought back to the requester."""
        return self.kind.fetches

    @property
    def latency(self) -> bool:
        """Whether latency is what the operation measures."""
        return self.op.endswith("_lat")

    @property
    def line(self) -> float:
        """The line's rate in Gb/s as the wire model has it: whole ps for a byte."""
        return 8000 / round(8000 / self.line_gbps)

    def sweep(self) -> Plan:
        """The same with the sizes of ``--all`` that fit into memory; an atomic has only one."""
        if self.kind.size:
            return self
        most = self.mtu if self.connection == "UD" or self.mp_wr else MAX_SIZE
        sizes = [size for size in SWEEP if self.sges <= size <= most]
        fitting = [size for size in sizes if self.region(size) <= LARGEST_REGION]
        return replace(self, sizes=tuple(fitting))

    def scan(self) -> list[Plan]:
        """The same for each power of two of QPs, but what ``sweep`` has already; none for a latency
        test."""
        if self.latency:
            return []
        powers = [1 << n for n in range(USUAL_QPS.bit_length())]
        seen = self.qps if self.sizes[0] in self.sweep().sizes else 0
        return [replace(self, qps=count) for count in powers if count != seen]

    @property
    def cqs(self) -> int:
        """CQs of each node: as many as can take the completions of all QPs."""
        return -(-self.qps // max(1, self.config.queue_size // self._completions))

    @property
    def cq_entries(self) -> int:
        """Entries of each CQ."""
        if self.latency:
            return LAT_CQ
        return min(self.config.queue_size, -(-self.qps // self.cqs) * self._completions)

    @property
    def _completions(self) -> int:
        """Completions that one QP may have outstanding on one node."""
        shapes = [self.shape(size) for size in self.sizes]
        sends = max(shape.depth // shape.signal for shape in shapes) + 2
        return sends + (max(shape.slots for shape in shapes) if self.verb == "send" else 0)

    def region(self, size: int) -> int:
        """Bytes of memory that the messages of one size and direction take."""
        return self._known(size) + self.miss_qps * self._miss_places * LINE_BYTES

    def places_of(self, number: int, size: int) -> range:
        """Offsets at which QP ``number`` has its messages, one after the other."""
        shape, misses = self.shape(size), self.miss_qps
        if number >= misses:
            own = shape.slots * shape.stride
            return range(own * number, own * (number + 1), shape.stride)
        first, step = self._known(size) + number * LINE_BYTES, misses * LINE_BYTES
        return range(first, first + self._miss_places * step, step)

    def _known(self, size: int) -> int:
        """Bytes for messages whose translations are known, in whole lines of the cache."""
        shape = self.shape(size)
        return -(-self.qps * shape.slots * shape.stride // LINE_BYTES) * LINE_BYTES

    @property
    def _miss_places(self) -> int:
        """Places of each QP of ``miss_qps``, in a line each: twice as many as the card's direct-
        mapped cache has, so each line is forgotten before it is used again."""
        return -(-2 * self.config.translation_lines // max(1, self.miss_qps))

    def shape(self, size: int) -> Shape:
        """How messages of ``size`` bytes are sent."""
        stride = -(-(size + self.area) // 64) * 64 if self.place_step is None else self.place_step
        if self.mp_wr:  # the segment of all sizes
            stride = max(64, 1 << (max(self.sizes) - 1).bit_length())
        if self.latency:
            iters = LAT_ITERS if self.iters is None else self.iters
            return Shape(size, 1, 1, 1, LAT_SLOTS, stride, 0 if self.cold else LAT_WARM, iters)
        depth = self.tx_depth
        batch, signal = min(self.post_list, depth), min(self.cq_mod, depth)
        room = max(1, max(2, IN_FLIGHT // size) // self.qps)
        if self.use_srq:  # all of them, and half as many again, fit into the one queue
            room = max(1, min(room, 2 * self.config.queue_size // self.qps // 3))
        if depth > room:  # completions and doorbells often enough that the queue never runs dry
            depth = room
            batch, signal = (min(value, max(1, depth // 4)) for value in (batch, signal))
        slots = self.places or depth + 2 * max(batch, signal)
        if not self.answered and self.verb == "write":
            slots += -(-ON_THE_WAY // (size + stride))
        if self.mp_wr:  # whole receives, and one more as the others are used up
            slots = (-(-slots // PIECES) + 1) * PIECES
        share = TIMED_BYTES // size // self.qps
        iters = max(min(share, TIMED_MESSAGES // self.qps), 2 * signal, depth, 4)
        iters = iters if self.iters is None else self.iters
        # Every slot once: then all translations are known. Few when one line holds many slots.
        warm = slots if slots * stride > LINE_BYTES else 2 * max(batch, signal)
        if self.miss_qps:  # until the checks of all packets that are on their way wait for misses
            warm = max(warm, MISS_TURNS * depth)
        if self.verb == "send" and self.targets == 1:
            ahead = AHEAD_TURNS * min(slots, -(-AHEAD // self.qps))
            warm = max(warm, min(ahead, AHEAD_BYTES // size // self.qps))
        if self.targets > 1:  # each message takes a connection
            warm = 2 * max(batch, signal)
        warm = 0 if self.cold else warm
        return Shape(size, depth, batch, signal, slots, stride, warm, iters * self.qps)

    def to_json(self) -> dict[str, Any]:
        """The options, for ``from_json``."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Plan:
        """The plan that ``to_json`` described."""
        lists = {name: tuple(values[name]) for name in ("sizes", "without")}
        return cls(**(values | lists))
