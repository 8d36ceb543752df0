"""What a card sent against what was recorded: the closed list of differences that are free.

Everything else must agree: addresses, QP numbers, PSNs, keys, lengths, flags, payload, MSN, NAK
codes. The ICRC must be right for the frame as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sim.packets import Dissected, dissect
from sim.replay.trace import PSN_MASK, Op, Packet, Trace

__all__ = ["FREE", "Difference", "Report", "acks_agree", "differences"]

#: Difference -> why the protocol leaves it free.
FREE = {
    "udp source port": "RoCE v2, A17.9.1: any value that is constant for the QP",
    "ip identification": "RFC 6864, 4.1: without meaning in datagrams that are not fragmented",
    "ttl": "IBTA vol 1, 8.3 and A17: set by the address vector; not in the capture's QP",
    "ack coalescing": "IBTA vol 1, 9.7.5.1: one ACK acknowledges every request before it",
    "credit code": "IBTA vol 1, 9.7.7.2: credits are the responder's to give, or none",
    "migreq": "IBTA vol 1, 17.2.8: state of path migration, which neither side uses",
}
_IPV4_ID, _IPV4_TTL, _IPV4_SUM = slice(4, 6), slice(8, 9), slice(10, 12)


@dataclass(frozen=True)
class Difference:
    """Something that must agree and does not."""

    packet: int
    what: str
    recorded: object
    sent: object

    def __str__(self) -> str:
        return f"packet {self.packet}: {self.what}: recorded {self.recorded}, sent {self.sent}"


@dataclass
class Report:
    """Result of a replay of one side."""

    trace: str
    side: str
    packets: int = 0
    fed: int = 0
    agreed: int = 0
    free: dict[str, int] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    error: str = ""

    @property
    def good(self) -> bool:
        """Everything agreed."""
        return not self.error and not self.differences and self.agreed == self.packets

    def note(self, what: str) -> None:
        """Count a free difference."""
        if what not in FREE:
            raise KeyError(f"{what!r} is not a free difference")
        self.free[what] = self.free.get(what, 0) + 1


def _network_header(frame: bytes) -> tuple[bytes, list[str]]:
    """Ethernet to UDP with the free fields zeroed, and the free fields as text."""
    start = 18 if frame[12:14] == b"\x81\x00" else 14
    raw = bytearray(frame[start:])
    if raw[0] >> 4 == 4:
        free = [raw[20:22].hex(), raw[_IPV4_ID].hex(), raw[_IPV4_TTL].hex()]
        raw[_IPV4_ID], raw[_IPV4_TTL], raw[_IPV4_SUM] = bytes(2), bytes(1), bytes(2)
        udp = 20
    else:
        free = [raw[40:42].hex(), "", raw[7:8].hex()]
        raw[7:8] = bytes(1)
        udp = 40
    raw[udp : udp + 2] = bytes(2)
    return frame[:start] + bytes(raw[: udp + 8]), free


def _fields(parts: Dissected) -> dict[str, object]:
    """Fields that must agree; source address and MAC are compared as part of the network header."""
    skip = {"hop_limit", "src_gid", "src_mac", "traffic_class", "ipv6"}
    found = {name: value for name, value in parts.fields.items() if name not in skip}
    if "syndrome" in found and not parts.fields["syndrome"] >> 5:
        found["syndrome"] = 0  # an ACK's low bits are its credit code
    return found


def differences(packet: Packet, frame: bytes, report: Report) -> list[Difference]:
    """Differences of ``frame`` from the recorded packet; free ones are counted in ``report``."""
    found: list[Difference] = []
    index, recorded = packet.index, packet.parts
    sent = dissect(frame)
    if not sent.icrc_good:
        found.append(Difference(index, "ICRC", "right", "wrong"))
    network, free = _network_header(packet.frame)
    network_sent, free_sent = _network_header(frame)
    if network != network_sent:
        found.append(Difference(index, "Ethernet/IP/UDP", network.hex(), network_sent.hex()))
    for name, a, b in zip(
        ("udp source port", "ip identification", "ttl"), free, free_sent, strict=True
    ):
        if a != b:
            report.note(name)
    fields, fields_sent = _fields(recorded), _fields(sent)
    for name in sorted(fields.keys() | fields_sent.keys()):
        if fields.get(name) != fields_sent.get(name):
            found.append(Difference(index, name, fields.get(name), fields_sent.get(name)))
    if recorded.fields.get("syndrome") != sent.fields.get("syndrome"):
        report.note("credit code")
    for name in ("fecn", "becn", "version"):
        if recorded.bth[name] != sent.bth[name]:
            found.append(Difference(index, name, recorded.bth[name], sent.bth[name]))
    if recorded.bth["migreq"] != sent.bth["migreq"]:
        report.note("migreq")
    if recorded.payload != sent.payload:
        at = next(
            (
                i
                for i, (a, b) in enumerate(zip(recorded.payload, sent.payload, strict=False))
                if a != b
            ),
            min(len(recorded.payload), len(sent.payload)),
        )
        found.append(
            Difference(
                index,
                f"payload from byte {at}",
                recorded.payload[at : at + 8].hex(),
                sent.payload[at : at + 8].hex(),
            )
        )
    return found


def ack_like(packet: Packet, frame: bytes) -> Packet:
    """The recorded ACK as it would be for the PSN and MSN of ``frame``: what coalescing changes."""
    parts, sent = packet.parts, dissect(frame)
    fields = parts.fields | {name: sent.fields[name] for name in ("psn", "msn")}
    changed = Dissected(fields, parts.payload, parts.icrc_good, parts.bth)
    return Packet(packet.index, packet.frame, packet.side, changed)


def acks_agree(trace: Trace, responder: int, frame: bytes, index: int) -> list[Difference]:
    """An ACK's MSN against the messages that are complete up to its PSN."""
    fields = dissect(frame).fields
    done = trace.completed(responder, fields["psn"])
    want = trace.first_msn(responder) + done & PSN_MASK
    if fields["msn"] != want:
        return [
            Difference(index, f"MSN of the ACK for PSN {fields['psn']:#x}", want, fields["msn"])
        ]
    return []


def is_ack(op: int) -> bool:
    """A packet whose only content is an acknowledgement."""
    return op == Op.ACKNOWLEDGE
