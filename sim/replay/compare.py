"""What a card sent against what was recorded: the closed list of differences that are free.

Everything else must agree: addresses, VLAN tags, QP numbers, PSNs, keys, lengths, flags, payload,
MSN, NAK codes. The ICRC must be right for the frame as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hdl.wire.opcodes import Transport
from sim.replay.capture import Packet
from sim.wire.packets import Dissected, checksum_of_frame, dissect

__all__ = ["FREE", "Difference", "Report", "Verdict", "as_sent", "differences"]

#: Difference -> why the protocol leaves it free.
FREE = {
    "udp source port": "RoCE v2, A17.9.1: any value that is constant for the QP",
    "udp checksum": "RFC 768 and RFC 6935: 0 stands for none; the ICRC covers the packet",
    "ip identification": "RFC 6864, 4.1: without meaning in datagrams that are not fragmented",
    "congestion mark": "RFC 3168, 5: routers on the way mark packets that are ECN-capable",
    "frame padding": "IEEE 802.3, 3.2.8: any bytes up to the smallest frame, behind the IP packet",
    "ack coalescing": "IBTA vol 1, 9.7.5.1: one response acknowledges every request before it",
    "ack not asked for": "IBTA vol 1, 9.7.5.1: a responder need not answer a packet without AckReq",
    "ack request, unanswered": "IBTA vol 1, 9.8: nothing of UC and UD is acknowledged, so AckReq "
    "asks for nothing",
    "ack request": "IBTA vol 1, 9.7.5.1: a requester may ask for more ACKs, and at other packets "
    "inside of a message",
    "packets behind a loss": "IBTA vol 1, 9.7.5, 9.7.6: how many packets leave before a NAK or a "
    "time-out is known is a matter of timing; a requester sends them again",
    "sent again": "IBTA vol 1, 9.7.5.2.8, 9.7.6: a requester that has a reason goes back to its "
    "oldest packet that is not acknowledged, and on from there",
    "lost before the capture": "a packet that the network has lost on its way to where the capture "
    "was taken",
    "response repeated": "IBTA vol 1, 9.7.5.1.4: a responder answers a duplicate READ again, once "
    "or each time that it is asked for",
    "msn of a repetition": "IBTA vol 1, 9.7.7.1: a response has the MSN of the messages that are "
    "done when it is sent; how many more these are the second time is a matter of timing",
    "order on the network": "packets of UC and UD that have overtaken one another on their way to "
    "where the capture was taken; their PSNs say in which order they were sent",
    "nak repeated": "IBTA vol 1, 9.7.5.1.5: one NAK for each gap is enough",
    "credit code": "IBTA vol 1, 9.7.7.2: credits are the responder's to give, or none",
    "migreq": "IBTA vol 1, 17.2.8: state of path migration, which neither side uses",
    "order of QPs": "IBTA vol 1, 9.5: messages are ordered within a QP only",
    "order of requests and responses": "IBTA vol 1, 9.5: a QP's requests are ordered, and so are "
    "its responses; the two are not ordered with each other",
}
_IPV4_ID, _IPV4_SUM = slice(4, 6), slice(10, 12)
_SMALLEST = 60  # bytes of a frame without FCS
_CE = 3  # congestion experienced, in the low bits of the traffic class
#: UDP source ports of RoCE v2 (A17.9.1): the dynamic ones.
_FIRST_PORT = 0xC000
#: Names of the packets inside of a message end so.
_INSIDE = ("_FIRST", "_MIDDLE")
#: Bits of BTH and DETH that are no field of ``Dissected.fields``.
_BITS = ("fecn", "becn", "version", "resv6", "resv7", "deth_reserved")


@dataclass(frozen=True)
class Difference:
    """Something that must agree and does not; ``packet`` counts the capture's frames from 1, 0 for
    what is no packet.
    """

    packet: int
    what: str
    recorded: object
    sent: object

    def __str__(self) -> str:
        where = f"packet {self.packet}: " if self.packet else ""
        return f"{where}{self.what}: recorded {_text(self.recorded)}, sent {_text(self.sent)}"


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return f"{value:#x}" if isinstance(value, int) and value > 9 else str(value)


@dataclass
class Verdict:
    """One packet of the card's machine: what was found of it.

    ``result``: "equal", "free" (with ``free``), "different" (with ``differences``), "missing".
    """

    packet: int
    time: int
    connection: int
    name: str
    psn: int
    result: str = "missing"
    free: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)


@dataclass
class Report:
    """Result of a replay of one machine.

    ``packets`` were sent by it, ``agreed`` of them were as recorded; ``fed`` were sent to it.
    ``memory``: what else was compared (regions, bytes, completions).
    """

    trace: str
    side: str
    machine: str = ""
    connections: list[int] = field(default_factory=list)
    packets: int = 0
    fed: int = 0
    agreed: int = 0
    free: dict[str, int] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    error: str = ""
    stall: str = ""

    @property
    def good(self) -> bool:
        """Everything agreed."""
        return not self.error and not self.differences and self.agreed == self.packets

    def note(self, what: str) -> None:
        """Count a free difference."""
        if what not in FREE:
            raise KeyError(f"{what!r} is not a free difference")
        self.free[what] = self.free.get(what, 0) + 1

    def facts(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "trace": self.trace,
            "side": self.side,
            "machine": self.machine,
            "connections": self.connections,
            "good": self.good,
            "packets": self.packets,
            "fed": self.fed,
            "agreed": self.agreed,
            "free": {name: {"count": n, "clause": FREE[name]} for name, n in self.free.items()},
            "memory": self.memory,
            "differences": [str(one) for one in self.differences],
            "error": self.error,
            "stall": self.stall,
            "verdicts": [vars(one) for one in self.verdicts],
        }


def _network_header(frame: bytes) -> tuple[bytes, dict[str, bytes]]:
    """Ethernet to UDP with the free fields zeroed, and the free fields."""
    start = 18 if frame[12:14] == b"\x81\x00" else 14
    raw = bytearray(frame[start:])
    if raw[0] >> 4 == 4:
        udp, end = 20, int.from_bytes(raw[2:4], "big")
        free = {"ip identification": bytes(raw[_IPV4_ID])}
        marks = bytes(raw[1:2])
        raw[1] &= 0xFC
        raw[_IPV4_ID] = raw[_IPV4_SUM] = bytes(2)
    else:
        udp, end = 40, 40 + int.from_bytes(raw[4:6], "big")
        free = {}
        marks = bytes([raw[1] >> 4 & 3])
        raw[1] &= 0xCF
    free["congestion mark"] = bytes([marks[0] & 3])
    free["udp source port"] = bytes(raw[udp : udp + 2])
    free["udp checksum"] = bytes(raw[udp + 6 : udp + 8])
    free["frame padding"] = bytes(raw[end:])
    raw[udp : udp + 2] = raw[udp + 6 : udp + 8] = bytes(2)
    return frame[:start] + bytes(raw[: udp + 8]), free


def _fields(parts: Dissected) -> dict[str, object]:
    """Fields that must agree; source address and MAC are compared as part of the network header."""
    skip = {"hop_limit", "src_gid", "src_mac", "traffic_class", "ipv6", "ack_request"}
    found = {name: value for name, value in parts.fields.items() if name not in skip}
    if "syndrome" in found and not parts.fields["syndrome"] >> 5:
        found["syndrome"] = 0  # an ACK's low bits are its credit code
    return found


def _free_network(
    recorded: dict[str, bytes], sent: dict[str, bytes], size: int
) -> tuple[list[str], list]:
    """Which free fields differ; and (name, recorded, sent) of those that are beyond their rule.

    size: bytes of the frame that was sent. A recorded one may have what its recorder put behind it.
    """
    free, bad = [], []
    for name, value in recorded.items():
        if value == sent[name]:
            continue
        legal = True
        if name == "udp checksum":
            legal = sent[name] == bytes(2)
        elif name == "udp source port":
            legal = int.from_bytes(sent[name], "big") >= _FIRST_PORT
        elif name == "congestion mark":
            legal = value[0] == _CE and sent[name][0] in (1, 2)
        elif name == "frame padding":
            legal = not sent[name] or size <= _SMALLEST
        free.append(name) if legal else bad.append((name, value, sent[name]))
    return free, bad


def differences(packet: Packet, frame: bytes) -> tuple[list[Difference], list[str]]:
    """Differences of ``frame`` from the recorded packet that count, and names of those that do not.

    Whether an UDP source port is constant is the caller's to check.
    """
    found, free = _outer_differences(packet, frame)
    transport, free_transport = _transport_differences(packet, dissect(frame))
    return [Difference(packet.number, *one) for one in found + transport], free + free_transport


#: What differs, in the recorded packet and in the one that was sent.
_Other = tuple[str, object, object]


def _outer_differences(packet: Packet, frame: bytes) -> tuple[list[_Other], list[str]]:
    """Ethernet to UDP, and both checksums."""
    found: list[_Other] = []
    recorded, sent = packet.parts, dissect(frame)
    if not (recorded.icrc_good and sent.icrc_good):
        right, right_sent = ("right" if one.icrc_good else "wrong" for one in (recorded, sent))
        found.append(("ICRC", right, right_sent))
    if checksum_of_frame(frame) not in (None, 0):
        found.append(("IPv4 header checksum", "right", "wrong"))
    network, free_fields = _network_header(packet.frame)
    network_sent, free_sent = _network_header(frame)
    if network != network_sent:
        found.append(("Ethernet/IP/UDP", network, network_sent))
    free, bad = _free_network(free_fields, free_sent, len(frame))
    return [*found, *bad], free


def _transport_differences(packet: Packet, sent: Dissected) -> tuple[list[_Other], list[str]]:
    """BTH, what is behind it, and the payload."""
    found: list[_Other] = []
    free: list[str] = []
    recorded = packet.parts
    fields, fields_sent = _fields(recorded), _fields(sent)
    for name in sorted(fields.keys() | fields_sent.keys()):
        if fields.get(name) != fields_sent.get(name):
            found.append((name, fields.get(name), fields_sent.get(name)))
    if recorded.fields.get("syndrome") != sent.fields.get("syndrome"):
        free.append("credit code")
    asked, asks = recorded.fields["ack_request"], sent.fields["ack_request"]
    if asked != asks:
        reliable, inside = packet.service is Transport.RC, packet.name.endswith(_INSIDE)
        if (asks and not reliable) or not (asks or inside or not reliable):
            found.append(("ack_request", asked, asks))
        else:
            free.append("ack request" if reliable else "ack request, unanswered")
    for name in _BITS:
        if recorded.bth.get(name) != sent.bth.get(name):
            found.append((name, recorded.bth.get(name), sent.bth.get(name)))
    if recorded.bth["migreq"] != sent.bth["migreq"]:
        free.append("migreq")
    if recorded.pad != sent.pad:
        found.append(("pad", recorded.pad, sent.pad))
    if recorded.payload != sent.payload:
        at = _first_other(recorded.payload, sent.payload)
        a, b = recorded.payload[at : at + 8], sent.payload[at : at + 8]
        found.append((f"payload from byte {at}", a, b))
    return found, free


def _first_other(one: bytes, other: bytes) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def as_sent(packet: Packet, frame: bytes) -> Packet:
    """A recorded ACK as it would be for the PSN and MSN of ``frame``: what coalescing changes."""
    sent = dissect(frame).fields
    fields = {**packet.parts.fields, "psn": sent["psn"], "msn": sent["msn"]}
    return replace(packet, parts=replace(packet.parts, fields=fields))
