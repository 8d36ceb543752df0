"""What a scenario is: queue pairs, their messages, the network, and what goes wrong on purpose.

Plain data, made by ``sim.bench.scenario.draw`` from a name and a seed, played inside a simulation
by ``sim.bench.scenario.play``. Times are in ns of simulated time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from hdl.abi.enums import Mtu, QpType, SendFlags, WrOpcode
from hdl.abi.operations import WORK_REQUESTS
from hdl.wire.opcodes import Kind
from sim.models.impairments import Impairments

__all__ = [
    "DONE",
    "INITIATORS",
    "RNR_NS",
    "SENDS",
    "Attributes",
    "Batch",
    "Ending",
    "Guest",
    "Life",
    "Message",
    "Scenario",
    "Shared",
    "Stranger",
    "Way",
    "Wrong",
    "delay_ns",
    "loses",
    "of_initiator",
    "reads",
]

#: Services in which one end alone has requests.
INITIATORS = (QpType.XRC_INI, QpType.DCI)
#: Operations whose data go where a receive says.
SENDS = tuple(WrOpcode(c) for c, row in WORK_REQUESTS.items() if row.kind is Kind.SEND)
#: Code of an RNR timer -> ns (IBTA vol 1, table 46), as far as scenarios use them.
RNR_NS = {1: 10_000, 2: 20_000, 3: 30_000, 4: 40_000, 5: 60_000, 6: 80_000}


class Wrong(Enum):
    """What is wrong with a request."""

    NOTHING = ""
    LKEY = "bad lkey"
    RKEY = "bad rkey"
    RANGE = "beyond the region"
    OPCODE = "no such opcode"
    SHORT = "receive too short"
    ALIGN = "a word that is not aligned"
    LENGTH = "not 8 bytes for the result"
    KEY = "no such key to invalidate"
    PEER_KEY = "no such key to invalidate at the peer"
    TAKEN = "registers what is registered"
    BOUNDS = "a window that is larger than its region"
    STALE = "a key that was invalidated"
    PEER_STALE = "a key of the peer that was invalidated"
    QKEY = "another Q_Key than the peer's"
    QUEUE = "no such receive queue"


@dataclass(frozen=True)
class Message:
    """One send request. ``pieces``: lengths of its SGEs; ``landing``: those of the peer's receive.

    ``own``, ``peer``: number in the way of the key of its own side that it changes or that its SGEs
    have, and of the peer's key that it reaches or invalidates; None: regions that stay.
    ``window``: that key is a memory window's, ``layout``: an indirect one. ``word``: which word of
    its class an atomic changes. ``queue``: which of the peer's receive queues a request of XRC
    names, ``target`` which of its targets one of DC goes to. Only the last message of a ``Way``
    must be signalled.
    """

    opcode: WrOpcode
    length: int
    pieces: tuple[int, ...]
    landing: tuple[int, ...] = ()
    flags: SendFlags = SendFlags.SIGNALED
    wrong: Wrong = Wrong.NOTHING
    own: int | None = None
    peer: int | None = None
    window: bool = False
    layout: bool = False
    word: int = 0
    queue: int = 0
    target: int = 0

    @property
    def kind(self) -> Kind:
        """The class of its operation."""
        return WORK_REQUESTS[self.opcode].kind

    @property
    def placement(self) -> bool:
        """Whether it is a FLUSH, of ``length`` bytes at the peer, or an ATOMIC WRITE."""
        return WORK_REQUESTS[self.opcode].placement

    @property
    def atomic(self) -> bool:
        """Whether it changes a word and brings back what that was."""
        return self.kind is Kind.ATOMIC and not self.placement

    @property
    def taker(self) -> bool:
        """Whether it takes a receive of the peer."""
        return WORK_REQUESTS[self.opcode].receive

    @property
    def marked(self) -> bool:
        """Whether it carries an immediate."""
        return self.opcode.name.endswith("WITH_IMM")

    def __str__(self) -> str:
        words = [self.opcode.name, str(self.length)]
        words += [f"in {len(self.pieces)}"] if len(self.pieces) > 1 else []
        words += [flag.name or "" for flag in SendFlags if flag & self.flags]
        kind = "window" if self.window else "layout" if self.layout else "key"
        words += [f"own {kind} {self.own}"] if self.own is not None else []
        words += [f"peer's {kind} {self.peer}"] if self.peer is not None else []
        words += [f"word {self.word}"] if self.atomic else []
        words += [f"queue {self.queue}"] if self.queue else []
        words += [f"target {self.target}"] if self.target else []
        words += [self.wrong.value] if self.wrong != Wrong.NOTHING else []
        return " ".join(words)


@dataclass(frozen=True)
class Batch:
    """Messages that are posted with one doorbell, ``pause`` after the batch before."""

    pause: int
    messages: tuple[Message, ...]


@dataclass(frozen=True)
class Way:
    """What one end of a connection sends. ``late``: when the peer posts the receives; 0: before.

    ``depth``: a batch is not posted before so few requests are outstanding; 0: at once.
    """

    batches: tuple[Batch, ...]
    late: int = 0
    depth: int = 0

    @property
    def messages(self) -> tuple[Message, ...]:
        """All of them, in order."""
        return tuple(message for batch in self.batches for message in batch.messages)

    def psns(self, mtu: int) -> int:
        """How many PSNs they take at a path MTU, in bytes (IBTA vol 1, 9.7.2)."""
        sent = [message for message in self.messages if message.kind is not Kind.LOCAL]
        moved = [0 if message.placement else message.length for message in sent]
        return sum(max(1, -(-length // mtu)) for length in moved)


class Ending(Enum):
    """How a connection ends."""

    FINISH = "all is done, and both ends stay"
    LEAVE = "all is done, then both ends are destroyed"
    RESET = "both ends go to RESET and are connected again"
    DESTROY = "both ends are destroyed in mid-run"
    ERROR = "one end goes to ERR"
    GONE = "one end is destroyed: the other's peer is dead"


#: Endings that come when nothing is left to do.
DONE = (Ending.FINISH, Ending.LEAVE)


@dataclass(frozen=True)
class Attributes:
    """Attributes of both ends, in the units of ``sim.bench.system.QpOptions``.

    ``initiator``: the end that has the requests of a connection of XRC, or of DC, which has so many
    ``targets``.
    """

    mtu: Mtu
    psns: tuple[int, int]
    timeout: int
    retry_cnt: int
    rnr_retry: int
    min_rnr_timer: int
    max_rd_atomic: int
    service: QpType = QpType.RC
    initiator: int = 0
    targets: int = 1

    @property
    def timeout_ns(self) -> int:
        """Time after which a missing answer makes an end go back (nominal)."""
        return 4096 << self.timeout

    @property
    def rnr_ns(self) -> int:
        """How long an end pauses for a peer that is not ready."""
        return RNR_NS[self.min_rnr_timer]

    def __str__(self) -> str:
        return (
            f"{self.service.name + ', ' if self.service != QpType.RC else ''}"
            f"MTU {self.mtu.octets}, PSNs {self.psns[0]:#x} {self.psns[1]:#x}, time-out "
            f"{self.timeout}, retries {self.retry_cnt}, RNR retries {self.rnr_retry}, RNR timer "
            f"{self.min_rnr_timer}, READs {self.max_rd_atomic}"
        )


@dataclass(frozen=True)
class Life:
    """One connection, from RTS to its ``ending``, which comes ``at`` after that by ``side``."""

    attributes: Attributes
    ways: tuple[Way, Way]
    ending: Ending = Ending.FINISH
    at: int = 0
    side: int = 0


@dataclass(frozen=True)
class Stranger:
    """A hostile frame of a ``kind`` of ``sim.bench.scenario.strangers``, to ``side`` ``at`` a time.

    It looks as if it were for queue pair ``pair``. ``seed``: of its contents.
    """

    at: int
    side: int
    kind: str
    pair: int
    seed: int


@dataclass(frozen=True)
class Guest:
    """A guest of ``side`` that breaks a ring of a QP of its own: ``kind`` of
    ``sim.bench.broken_rings``, ``at`` a time.
    """

    at: int
    side: int
    kind: str
    receive: bool


@dataclass(frozen=True)
class Shared:
    """A shared receive queue of ``depth`` requests for all queue pairs of a side.

    After one of ``pauses`` up to ``together`` idle ones are posted. ``domain``: of XRC, and so many
    queues, which have the requests together; 0: one that is of no domain. ``segment``: bytes of a
    segment of requests of ``buffer`` bytes, which take several packets; 0: they take a message.
    """

    depth: int
    together: int
    pauses: tuple[int, ...]
    domain: int = 0
    segment: int = 0
    buffer: int = 0


@dataclass(frozen=True)
class Scenario:
    """All that happens. ``networks``: what becomes of what each side sends; ``pairs``: the lives of
    each queue pair, one after the other.
    """

    name: str
    kind: str
    seed: int
    networks: tuple[Impairments, Impairments]
    pairs: tuple[tuple[Life, ...], ...]
    strangers: tuple[Stranger, ...] = ()
    guest: Guest | None = None
    #: A pair that strangers may break: all that is asked of it is that it does no harm.
    victim: int | None = None
    #: The shared receive queue of each side, if all receive from one.
    shared: tuple[Shared, Shared] | None = None
    #: Guest functions of each card, which have the pairs in turn.
    functions: int = 1
    #: All pairs are connected before any of them posts something.
    together: bool = False
    #: What good networks and cards take at most until an answer has come, ns.
    round_ns: int = 100_000

    @property
    def lives(self) -> Iterator[Life]:
        """Of all pairs."""
        return (life for pair in self.pairs for life in pair)

    def text(self) -> str:
        """Return the scenario for a reader."""
        lines = [f"{self.name} {self.seed} ({self.kind})"]
        lines += [f"{len(self.pairs)} pairs begin together"] if self.together else []
        if self.functions > 1:
            lines.append(f"{self.functions} functions, which have the pairs in turn")
        for side, network in enumerate(self.networks):
            lines.append(f"network from {'ab'[side]}: {_network(network)}")
        for side, shared in enumerate(self.shared or ()):
            lines.append(
                f"shared receive queue of {'ab'[side]}: {shared.depth}, up to {shared.together} "
                f"after {', '.join(map(str, shared.pauses))} ns"
                + (f", in {shared.domain} queues of a domain" if shared.domain else "")
                + (f", {shared.buffer} bytes by {shared.segment}" if shared.segment else "")
            )
        for number, lives in enumerate(self.pairs):
            for life in lives:
                lines.append(f"pair {number}: {life.attributes}")
                for side, way in enumerate(life.ways):
                    late = f", receives after {way.late} ns" if way.late else ""
                    depth = f", {way.depth} outstanding" if way.depth else ""
                    lines.append(f"  from {'ab'[side]}{depth}{late}:")
                    lines += [
                        f"    +{batch.pause} ns: {'; '.join(map(str, batch.messages))}"
                        for batch in way.batches
                    ]
                where = "" if life.ending in DONE else f" ({'ab'[life.side]}, {life.at} ns)"
                lines.append(f"  end: {life.ending.value}{where}")
        lines += [
            f"stranger at {one.at} ns to {'ab'[one.side]}, pair {one.pair}: {one.kind}"
            for one in self.strangers
        ]
        if self.guest:
            ring = "receive" if self.guest.receive else "send"
            lines.append(
                f"guest {'ab'[self.guest.side]} at {self.guest.at} ns: {self.guest.kind} ({ring})"
            )
        return "\n".join(lines)


def _network(network: Impairments) -> str:
    plain = Impairments()
    names = [name for name in vars(network) if getattr(network, name) != getattr(plain, name)]
    return (
        ", ".join(f"{name}={getattr(network, name)}" for name in names if name != "seed") or "good"
    )


def of_initiator(life: Life, side: int, service: QpType = QpType.XRC_INI) -> Life:
    """Return it as one of XRC, or of DC, in which the end ``side`` alone has requests."""
    attributes = replace(life.attributes, service=service, initiator=side)
    none = Way(())
    ways = (none, life.ways[1]) if side else (life.ways[0], none)
    return replace(life, attributes=attributes, ways=ways)


def reads(opcode: WrOpcode) -> bool:
    """Tell whether data come back to whoever posts it."""
    row = WORK_REQUESTS[opcode]
    return row.data and not row.placement


def loses(network: Impairments) -> bool:
    """Tell whether packets may be lost, or arrive so that the receiver takes one for lost."""
    return bool(
        network.loss
        or network.every
        or network.drop
        or network.corrupt
        or network.reorder
        or network.queue
    )


def delay_ns(network: Impairments) -> int:
    """Return the longest time from a frame's last bit until it has arrived."""
    queued = network.queue * 8 / network.gbps if network.gbps else 0
    return round(1000 * (2 + network.delay_us + network.jitter_us + network.reorder) + queued)
