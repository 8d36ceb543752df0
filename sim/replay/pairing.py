"""Which two flows are the directions of one connection.

An RC packet names the QP that it goes to, not the one it comes from. What tells the two flows of a
connection from others between the same machines: each answers the PSNs of the other, its MSNs
count the other's messages, and often its UDP source port is the other's. Flows that nothing tells
apart are paired in the order in which they begin.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property

from hdl.wire.opcodes import Operation as Op
from sim.replay.capture import Packet

__all__ = ["MTUS", "PSN_MASK", "RESPONSES", "Flow", "after", "flows", "pairs"]

MTUS = (256, 512, 1024, 2048, 4096)
PSN_MASK = 0xFFFFFF
RESPONSES = {*range(Op.READ_RESP_FIRST, Op.READ_RESP_ONLY + 1), Op.ACKNOWLEDGE, Op.ATOMIC_ACK}
_ENDS = ("_LAST", "_LAST_IMM", "_LAST_INV", "_ONLY", "_ONLY_IMM", "_ONLY_INV")
_IN_PARTS = {op for op in Op if op.name.startswith(("SEND", "WRITE"))}
_WHOLE = {op for op in Op if op.name.endswith(("_FIRST", "_MIDDLE"))}


def after(psn: int, base: int) -> int:
    """How far ``psn`` lies behind ``base``: negative before it, modulo 2**24."""
    return ((psn - base + (1 << 23)) & PSN_MASK) - (1 << 23)


@dataclass
class Flow:
    """All RC packets from one address to one QP of another."""

    source: bytes
    destination: bytes
    qpn: int
    packets: list[Packet] = field(default_factory=list)

    @cached_property
    def requests(self) -> list[Packet]:
        """Those that ask for something."""
        return [packet for packet in self.packets if packet.op not in RESPONSES]

    @cached_property
    def responses(self) -> list[Packet]:
        """Those that answer."""
        return [packet for packet in self.packets if packet.op in RESPONSES]

    @cached_property
    def mtu(self) -> int:
        """Payload of packets that carry a whole path MTU; 0 when there is none."""
        return next((len(p.parts.payload) for p in self.packets if p.op in _WHOLE), 0)

    @cached_property
    def ports(self) -> set[int]:
        """UDP source ports."""
        return {int(packet.parts.path["udp_source"]) for packet in self.packets}


def flows(packets: list[Packet]) -> list[Flow]:
    """The flows of a capture, in the order in which they begin."""
    found: dict[tuple[bytes, bytes, int], Flow] = {}
    for packet in packets:
        fields = packet.parts.fields
        key = (fields["src_gid"], packet.parts.path["dst_gid"], fields["dest_qp"])
        found.setdefault(key, Flow(*key)).packets.append(packet)
    return list(found.values())


def pairs(
    found: list[Flow], known: set[tuple[bytes, int, bytes, int]]
) -> list[tuple[Flow, Flow | None]]:
    """The connections: pairs of flows, the one that begins first ahead.

    known: pairs that are certain, as (address, QPN, address, QPN) of the two ends, either way
    round. A flow whose other direction is not in the capture is paired with None.
    """
    candidates = []
    for i, one in enumerate(found):
        for j in range(i + 1, len(found)):
            other = found[j]
            if (one.source, one.destination) == (other.destination, other.source):
                ends = (other.destination, other.qpn, one.destination, one.qpn)
                stated = ends[:2] + ends[2:] in known or ends[2:] + ends[:2] in known
                candidates.append((not stated, *_misfit(one, other), i, j))
    taken: dict[int, int] = {}
    for *_, i, j in sorted(candidates):
        if i not in taken and j not in taken:
            taken[i] = j
            taken[j] = i
    joined: list[tuple[Flow, Flow | None]] = []
    for i, one in enumerate(found):
        if i not in taken:
            joined.append((one, None))
        elif i < taken[i]:
            joined.append((one, found[taken[i]]))
    return joined


def _misfit(one: Flow, other: Flow) -> tuple[int, int, int, int]:
    """How badly two flows fit as directions of a connection, worst matter first."""
    mtu = one.mtu or other.mtu or MTUS[-1]
    unmatched, matched, bases = 0, 0, 0
    for ask, answer in ((one, other), (other, one)):
        bad, good, values = _answers(ask, answer, mtu)
        unmatched += bad
        matched += good
        bases += max(0, len(values) - 1)
    return unmatched, bases, int(one.ports != other.ports), -matched


def _answers(ask: Flow, answer: Flow, mtu: int) -> tuple[int, int, set[int]]:
    """Responses without and with a request before them, and the MSNs that they count from."""
    if not ask.requests:
        return len(answer.responses), 0, set()
    base = ask.requests[0].psn
    ends: list[int] = []  # PSNs at which a message counts, ascending
    begins: list[tuple[int, int, int]] = []  # (PSN, PSN behind it, packet number)
    for packet in _once(ask.requests, base):
        psn, op = after(packet.psn, base), packet.op
        read = op == Op.READ_REQUEST
        span = max(1, -(-packet.parts.fields["dma_length"] // mtu)) if read else 1
        if begins and psn < begins[-1][1]:
            continue  # the tail of a READ, asked for again
        begins.append((psn, psn + span, packet.number))
        if op not in _IN_PARTS or Op(op).name.endswith(_ENDS):
            ends.append(psn)
    bad = good = 0
    values: set[int] = set()
    for packet in answer.responses:
        psn = after(packet.psn, base) - bool(packet.nak)  # a NAK acknowledges what is before it
        at = bisect_right(begins, (psn, 1 << 30, 0)) - 1
        if at < 0:
            continue  # from before the capture, perhaps
        if psn >= begins[at][1] or packet.number < begins[at][2]:
            bad += 1
            continue
        good += 1
        if "msn" in packet.parts.fields:
            values.add(packet.parts.fields["msn"] - bisect_right(ends, psn) & PSN_MASK)
    return bad, good, values


def _once(requests: list[Packet], base: int) -> list[Packet]:
    """The requests in PSN order, each as it was first sent."""
    first: dict[int, Packet] = {}
    for packet in requests:
        first.setdefault(after(packet.psn, base), packet)
    return [first[psn] for psn in sorted(first)]
