"""What is replayed of a capture: its connections, the two sides, and the runs of one card each.

A run is one card in the place of one machine with all of the connections that fit into its tables
together; what does not fit comes in a further run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from firmware.hints import Hints
from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import Access
from hdl.abi.limits import MAX_FAST_PAGES
from hdl.abi.virtio_rdma import PAGE_SIZE
from hdl.config import NicConfig
from hdl.wire.opcodes import Transport
from sim.replay.capture import SERVICES, LeftOut, Packet, read_packets
from sim.replay.exchange import Exchange
from sim.replay.facts import Facts
from sim.replay.messages import FATAL, End, Message, address
from sim.replay.pairing import Flow, flows, pairs
from sim.replay.trace import Connection
from sim.replay.uc import UnreliableConnection
from sim.replay.ud import conversations

__all__ = ["ALL_RIGHTS", "Place", "Plan", "Run"]

ALL_RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
#: Syndromes of NAKs, by what a card refuses: a QP's rights, a region, a receive that is too small.
_NO_RIGHT, _NO_REGION, _TOO_SMALL = FATAL

#: Where a region is that nobody uses.
_SOMEWHERE = (PAGE_SIZE, PAGE_SIZE + 1)
#: Bytes of one machine's memory that a simulation can hold.
MOST_MEMORY = 256 << 20
#: The largest tables that a card can be built with (hdl/config.py).
_QPS, _MRS, _READS = 16384, 65536, 128


@dataclass(frozen=True)
class Place:
    """One end of a connection that a card takes: ``side`` is the end's index."""

    connection: Exchange
    side: int

    @property
    def end(self) -> End:
        """The card's end."""
        return self.connection.ends[self.side]

    @property
    def peer(self) -> End:
        """The other end, of a service that connects two."""
        return self.connection.ends[1 - self.side]

    @property
    def service(self) -> Transport:
        """The service of its QP."""
        return self.connection.service

    @property
    def packets(self) -> list[Packet]:
        """The packets of this end, and those to it."""
        packets = self.connection.packets
        return [packet for packet in packets if self.side in (packet.side, packet.target)]

    @property
    def incoming(self) -> list[Message]:
        """The messages to the card."""
        return self.connection.incoming(self.side)

    def misfit(self, config: NicConfig) -> str:
        """Why a card cannot have the recorded numbers; empty if it can."""
        if why := self.connection.refusals[self.side] or self._cause_unknown():
            return why
        hints = Hints(config)
        try:
            if self.end.stated:
                hints.qpn(self.end.qpn)
            for rkey in self.regions():
                hints.mr_key(rkey)
        except ValueError as error:
            return str(error)
        for packet in self.packets:
            if packet.side != self.side and not packet.parts.icrc_good:
                return f"packet {packet.number}: a wrong ICRC, and no card takes such a packet"
        for side in range(len(self.connection.ends)):
            if (reads := self.connection.reads(side)) > config.max_rd_atomic:
                return f"{reads} READs outstanding, a QP has at most {config.max_rd_atomic}"
        return ""

    def refused(self) -> Message | None:
        """The peer's message that the card must refuse, if any."""
        return next((message for message in self.incoming if message.refused), None)

    def access(self) -> Access:
        """The rights of the QP: without the one for want of which it refuses a message."""
        message = self.refused()
        if message is None or message.refused != _NO_RIGHT:
            return ALL_RIGHTS
        return ALL_RIGHTS & ~_right(message)

    def _cause_unknown(self) -> str:
        """Why nothing is known that would make a card refuse what was refused; empty if it is."""
        message = self.refused()
        if message is None:
            return ""
        number, syndrome = message.packets[message.kept].number, message.refused
        alike = [m for m in self.incoming if m.kept and _right(m) == _right(message)]
        if syndrome == _TOO_SMALL:
            known = not message.read and not message.writes and message.receive_size >= 0
        else:
            known = (message.read or message.writes) and not message.kept and message.length > 0
            known &= syndrome != _NO_RIGHT or not alike
        return "" if known else f"packet {number}: NAK {syndrome:#04x} for a reason that is unknown"

    def broken(self) -> bool:
        """Whether the card's QP is in error when the capture has ended."""
        return self.refused() is not None or any(m.failure for m in self.end.messages)

    def pauses(self) -> list[int]:
        """The syndromes of the RNR NAKs that the card gets."""
        return self.connection.pauses(self.side)

    def retries(self) -> int:
        """How often the card's machine has gone back."""
        return self.connection.retries[self.side]

    def resources(self) -> int:
        """READ requests that the card must be able to hold for the peer, a power of two."""
        if self.service is not Transport.RC:
            return 0
        return 1 << max(0, self.connection.reads(1 - self.side) - 1).bit_length()

    def octets(self) -> int:
        """Bytes of all messages."""
        return sum(one.length for one in (*self.end.messages, *self.incoming))

    def invalidated(self) -> dict[int, int]:
        """The keys that the peer takes from the card: rkey -> number of the last packet with it."""
        found: dict[int, int] = {}
        for message in self.incoming:
            if message.invalidates is not None and message.received:
                found.setdefault(message.invalidates, message.packets[-1].number)
        return found

    def regions(self) -> dict[int, tuple[int, int]]:
        """What the peer touches: rkey -> (lowest, highest + 1) address.

        A key that is taken and never used names a region too, of a byte somewhere.
        """
        found: dict[int, tuple[int, int]] = {}
        for message in self.incoming:
            if message.length and (message.writes or message.read) and not message.refused:
                low, high = message.va, message.va + message.length
                before = found.get(message.rkey, (low, high))
                found[message.rkey] = (min(before[0], low), max(before[1], high))
        return dict.fromkeys(self.invalidated(), _SOMEWHERE) | found


@dataclass
class Run:
    """One card in the place of one machine."""

    letter: str
    places: list[Place] = field(default_factory=list)

    @property
    def mac(self) -> bytes:
        """The machine's MAC address."""
        return self.places[0].end.mac

    def regions(self) -> dict[int, tuple[int, int]]:
        """All that the peers touch: rkey -> (lowest, highest + 1) address."""
        found: dict[int, tuple[int, int]] = {}
        for place in self.places:
            for rkey, (low, high) in place.regions().items():
                before = found.get(rkey, (low, high))
                found[rkey] = (min(before[0], low), max(before[1], high))
        return found

    def invalidated(self) -> dict[int, int]:
        """All keys that peers take from the card: rkey -> number of the packet that does."""
        taken = [one for place in self.places for one in place.invalidated().items()]
        return dict(sorted(taken, key=lambda one: one[1], reverse=True))  # the first one stays

    def pages_taken(self) -> int:
        """Pages of the largest region whose key peers take."""
        spans = self.regions()
        taken = [spans[rkey] for rkey in self.invalidated()]
        pages = [(high - 1) // PAGE_SIZE - low // PAGE_SIZE + 1 for low, high in taken]
        return max(pages, default=0)

    def rights(self) -> dict[int, Access]:
        """The rights of the regions: without those for want of which messages are refused."""
        found, taken = dict.fromkeys(self.regions(), ALL_RIGHTS), self.invalidated()
        for place in self.places:
            message = place.refused()
            if message is None or message.refused != _NO_REGION or _gone(message, taken):
                continue
            if self._inside(message):
                found[message.rkey] &= ~_right(message)
        return found

    def _inside(self, message: Message) -> bool:
        """Whether a message stays inside of the region that it names."""
        low, high = self.regions().get(message.rkey, (0, 0))
        return low <= message.va and message.va + message.length <= high

    def _contradiction(self) -> str:
        """Why no region can be accessible to some messages and not to others; empty if it can."""
        rights, taken = self.rights(), self.invalidated()
        for place in self.places:
            for message in place.incoming:
                needs = _right(message) if message.kept and message.length else Access(0)
                if needs & ~rights.get(message.rkey, ALL_RIGHTS):
                    return f"rkey {message.rkey:#x} is refused now and then"
                if needs and _gone(message, taken):
                    return f"rkey {message.rkey:#x} is used after it has been invalidated"
        return ""

    def octets(self) -> int:
        """Bytes of memory that the run needs."""
        regions = sum(high - low for low, high in self.regions().values())
        return regions + sum(place.octets() for place in self.places)

    def misfit(self, place: Place, config: NicConfig) -> str:
        """Why a further place does not fit into the tables of this run's card; empty if it does."""
        places = [*self.places, place]
        if self.places and place.end.mac != self.mac:
            return "another machine"
        if any(one.end.gid == place.end.gid and one.end.vlan != place.end.vlan for one in places):
            return f"{place.end.address} in another VLAN"  # a card knows an address once
        pairs = [abi.qp_index(one.end.qpn, config.qps) for one in places if one.end.qpn]
        if len(set(pairs)) < len(pairs):
            return f"QP {place.end.qpn:#x} shares its place in the table with another QP"
        together = Run(self.letter, places)
        regions = together.regions()
        numbers = [rkey >> abi.KEY_TAG_BITS for rkey in regions]
        if len(set(numbers)) < len(numbers):
            return "keys share a place in the table of regions"
        for what, count, most in (
            ("bytes of memory", together.octets(), MOST_MEMORY),
            ("addresses", len({(one.end.gid, one.end.vlan) for one in places}), config.gids),
            ("QPs", len(places), config.qps - abi.FIRST_USER_QP_INDEX),
            ("regions", len(regions), config.mrs - 1),
            ("pages of a region that is invalidated", together.pages_taken(), MAX_FAST_PAGES),
            ("READ requests", sum(one.resources() for one in places), config.read_resources),
        ):
            if count > most:
                return f"{count} {what}, a card has {most}"
        return together._contradiction()


class Plan:
    """A capture, what can be replayed of it and what not.

    ``say`` is told how much of the file has been read (``sim.wire.pcap.records``). Raises
    ValueError, with one line, for a file that is no capture, is cut, or has too many packets.
    """

    def __init__(
        self,
        path: Path | str,
        facts: Facts | None = None,
        say: Callable[[int, int], None] | None = None,
    ):
        self.path = Path(path)
        self.facts = facts or Facts()
        frames = read_packets(path, say)
        self.left_out: list[LeftOut] = frames.left_out
        self.roce = len(frames.packets)
        self.connections = self._exchanges(frames.packets)
        self._check_facts()
        #: (connection number, end) -> 0 for side A, 1 for side B.
        self._letters = self._choose_sides()

    def _exchanges(self, packets: list[Packet]) -> list[Exchange]:
        """The connections of all services, numbered as they begin."""
        by_service = {
            service: [one for one in packets if one.service is service] for service in SERVICES
        }
        known = {one.key for one in self.facts.connections}
        found: list[Exchange] = list(conversations(by_service[Transport.UD]))
        for service, kind in ((Transport.RC, Connection), (Transport.UC, UnreliableConnection)):
            for pair in pairs(flows(by_service[service]), known):
                found.append(self._connection(kind, *pair))
        found.sort(key=lambda one: one.first)
        for number, one in enumerate(found, 1):
            one.number = number
        return found

    def _check_facts(self) -> None:
        """That everything which is stated is of this capture."""
        ends = [{(end.gid, end.qpn or None) for end in one.ends} for one in self.connections]
        for stated in self.facts.connections:
            if set(stated.ends) not in ends:
                names = " - ".join(f"{address(gid)} QP {qpn:#x}" for gid, qpn in stated.ends)
                raise ValueError(f"{self.path}: the side file's connection {names} is not in it")
        known = {end.gid for one in self.connections for end in one.ends}
        for gid in [*self.facts.side_a, *(one.gid for one in self.facts.regions)]:
            if gid not in known:
                raise ValueError(f"{self.path}: the side file's {address(gid)} is not in it")

    def _connection(
        self, kind: type[Connection | UnreliableConnection], one: Flow, other: Flow | None
    ) -> Exchange:
        ends = ((one.source, other.qpn if other else 0), (one.destination, one.qpn))
        stated = self.facts.of(ends)
        connection = kind(one, other, stated.path_mtu if stated else None)
        for end in connection.ends:
            if stated and (msn := stated.msns.get((end.gid, end.qpn))) is not None:
                end.first_msn = msn
        return connection

    @property
    def suitable(self) -> list[Exchange]:
        """The connections that can be taken part in."""
        return [one for one in self.connections if not one.reason]

    def _choose_sides(self) -> dict[tuple[int, int], int]:
        """Which end of each connection is of which side.

        The machine that sends the first packet is A, and so is everybody whose peers are B. A
        machine is known by its IP address, and by its MAC address where that tells the ends apart.
        """
        letters: dict[bytes, int] = dict.fromkeys(self.facts.side_a, 0)
        chosen = {}
        for connection in sorted(self.suitable, key=lambda one: one.packets[0].number):
            first = connection.packets[0].side
            known = {}
            for side in range(len(connection.ends)):
                found = [letters[name] for name in _names(connection, side) if name in letters]
                if found:
                    known[side] = found[0]
            if len(known) == len(connection.ends) and len(set(known.values())) == 1:
                known = {}  # three machines in a ring: each connection for itself
            for side, letter in _alternate(connection, known or {first: 0}).items():
                chosen[connection.number, side] = letter
                for name in _names(connection, side):
                    letters.setdefault(name, letter)
        return chosen

    def config(self, width: int) -> NicConfig:
        """The default configuration, with larger tables if the recorded numbers need them."""
        config = NicConfig(width=width)
        places = [Place(one, side) for one in self.suitable for side in range(len(one.ends))]
        qpns = [one.end.qpn for one in places if one.end.stated]
        while config.qps < _QPS and any(
            abi.qp_index(qpn, config.qps) < abi.FIRST_USER_QP_INDEX for qpn in qpns
        ):
            config = replace(config, qps=2 * config.qps)
        keys = [rkey >> abi.KEY_TAG_BITS for one in places for rkey in one.regions()]
        if any(config.mrs <= key < _MRS for key in keys):
            config = replace(config, mrs=_MRS)
        reads = [one.connection.reads(one.side) for one in places]
        if any(config.max_rd_atomic < count <= _READS for count in reads):
            config = replace(config, max_rd_atomic=_READS, read_resources=32 * _READS)
        return config

    def runs(self, letter: str, config: NicConfig) -> tuple[list[Run], dict[int, str]]:
        """The runs of one side, and connection number -> why no card can have this end of it."""
        runs: list[Run] = []
        refused: dict[int, str] = {}
        for place in self._places(letter):
            if why := place.misfit(config) or Run(letter).misfit(place, config):
                refused.setdefault(place.connection.number, why)
                continue
            for run in runs:
                if not run.misfit(place, config):
                    run.places.append(place)
                    break
            else:
                runs.append(Run(letter, [place]))
        return runs, refused

    def _places(self, letter: str) -> list[Place]:
        return [
            Place(connection, side)
            for connection in self.suitable
            for side in range(len(connection.ends))
            if self._letters[connection.number, side] == "AB".index(letter)
        ]


def _right(message: Message) -> Access:
    """What a message needs to be allowed on the other side; nothing for a SEND."""
    if message.read:
        return Access.REMOTE_ATOMIC if message.atomic else Access.REMOTE_READ
    return Access.REMOTE_WRITE if message.writes else Access(0)


def _gone(message: Message, taken: dict[int, int]) -> bool:
    """Whether the key that a message names is ``taken`` before: key -> packet that does so."""
    return message.begins > taken.get(message.rkey, message.begins)


def _names(connection: Exchange, side: int) -> list[bytes]:
    """What a machine is known by: what no other end has."""
    one = connection.ends[side]
    others = [end for at, end in enumerate(connection.ends) if at != side]
    if any(one.gid == other.gid for other in others):
        return []
    return [one.gid, one.mac] if all(one.mac != other.mac for other in others) else [one.gid]


def _alternate(connection: Exchange, known: dict[int, int]) -> dict[int, int]:
    """The sides of all ends: who talks to A is B, if nothing else is known of it."""
    found = dict(known)
    while len(found) < len(connection.ends):
        before = len(found)
        for packet in connection.packets:
            for one, other in ((packet.side, packet.target), (packet.target, packet.side)):
                if one in found:
                    found.setdefault(other, 1 - found[one])
        if len(found) == before:  # all that it has said is left out
            found.setdefault(next(at for at in range(len(connection.ends)) if at not in found), 0)
    return found
