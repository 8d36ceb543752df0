"""What a capture file holds: packets of RC, UC and UD, and the rest with the reason why it is left
out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from hdl.abi.enums import WrOpcode
from hdl.wire.constants import MULTICAST_QPN
from hdl.wire.headers import AETH, ATOMIC_ACK_ETH, ATOMIC_ETH, DETH, IETH, IMM_DT, RETH
from hdl.wire.opcodes import ATOMIC_BYTES, ROCE_OPCODES, Transport
from hdl.wire.opcodes import Operation as Op
from sim.wire.packets import ROCE_PORT, Dissected, dissect
from sim.wire.pcap import Record, records

__all__ = [
    "ATOMICS",
    "FETCHES",
    "SERVICES",
    "MOST_PACKETS",
    "Frames",
    "LeftOut",
    "Packet",
    "Spans",
    "brought",
    "numbers_text",
    "read_packets",
]

#: Services that are replayed.
SERVICES = (Transport.RC, Transport.UC, Transport.UD)
#: Packets that a replay holds, about 4 KB each without their payload.
MOST_PACKETS = 250_000
#: Reasons that are told apart, and runs of numbers that a text has.
_MOST_REASONS, _MOST_SPANS = 256, 5
#: BTH; it and the ICRC, which are the smallest packet.
_BTH, _LEAST = 12, 16
#: A field of each extended header, which a packet that has the header shows.
_SHOWN = {
    AETH: "msn",
    ATOMIC_ACK_ETH: "swap_add",
    ATOMIC_ETH: "compare",
    DETH: "qkey",
    IETH: "imm",
    IMM_DT: "imm",
    RETH: "rkey",
}
#: Atomics, and the WR opcode of each.
ATOMICS = {
    Op.CMP_SWAP: WrOpcode.ATOMIC_CMP_AND_SWP,
    Op.FETCH_ADD: WrOpcode.ATOMIC_FETCH_AND_ADD,
}
#: Requests that data answer.
FETCHES = {Op.READ_REQUEST, *ATOMICS}
#: Packets with immediate, and with a key to invalidate.
WITH_IMM = {Op.SEND_LAST_IMM, Op.SEND_ONLY_IMM, Op.WRITE_LAST_IMM, Op.WRITE_ONLY_IMM}
WITH_KEY = {Op.SEND_LAST_INV, Op.SEND_ONLY_INV}
_KINDS = {0x0806: "ARP", 0x8915: "RoCE v1", 0x88CC: "LLDP", 0x8808: "MAC control (pause)"}
_PROTOCOLS = {1: "ICMP", 2: "IGMP", 6: "TCP", 44: "IPv6 fragments", 58: "ICMPv6"}
#: Bytes of the longest IPv4 header and a UDP header.
_HEADERS = 60 + 8
_IPV4, _IPV6, _UDP, _TAGS = 0x0800, 0x86DD, 17, (0x8100, 0x88A8)


@dataclass
class Packet:
    """One packet of a capture.

    ``number`` counts all frames of the file from 1; ``time`` in ns since the first frame; ``side``
    is the end of its connection that sent it, ``target`` the one that it goes to; ``flaw`` says why
    it cannot be replayed.
    """

    number: int
    time: int
    frame: bytes
    parts: Dissected
    side: int = 0
    target: int = 1
    flaw: str = ""

    @property
    def service(self) -> Transport:
        """The service that it belongs to."""
        return Transport(self.parts.fields["opcode"] >> 5)

    @property
    def op(self) -> int:
        """Operation of the opcode."""
        return int(self.parts.fields["opcode"]) & 0x1F

    @property
    def name(self) -> str:
        """Name of the operation, or its number if the standard has none."""
        return Op(self.op).name if self.op in list(Op) else f"opcode {self.op:#04x}"

    @property
    def psn(self) -> int:
        """PSN of the BTH."""
        return int(self.parts.fields["psn"])

    @property
    def data(self) -> bytes:
        """What a response brings into memory: payload, or the number that an atomic has found."""
        return brought(self.parts)

    @property
    def nak(self) -> int:
        """Syndrome of a NAK or RNR NAK; 0 for any other packet."""
        syndrome = int(self.parts.fields.get("syndrome", 0))
        return syndrome if self.op == Op.ACKNOWLEDGE and syndrome >> 5 else 0


def brought(parts: Dissected) -> bytes:
    """Bytes that a response brings into the memory of the requester."""
    if parts.fields["opcode"] & 0x1F == Op.ATOMIC_ACK:
        return int(parts.fields["swap_add"]).to_bytes(ATOMIC_BYTES, "little")
    return parts.payload


class Spans:
    """How many packet numbers there are, and the first runs of them; they come in order."""

    def __init__(self) -> None:
        self._count, self._spans = 0, list[list[int]]()

    def append(self, number: int) -> None:
        """One more."""
        self._count += 1
        if self._spans and number == self._spans[-1][1] + 1:
            self._spans[-1][1] = number
        elif len(self._spans) <= _MOST_SPANS + 1:
            self._spans.append([number, number])

    def __len__(self) -> int:
        return self._count

    def __str__(self) -> str:
        texts = [str(a) if a == b else f"{a}-{b}" for a, b in self._spans]
        if len(texts) > _MOST_SPANS + 1:
            texts = [*texts[:_MOST_SPANS], f"... ({self._count} in all)"]
        return f"packet{'s' if self._count > 1 else ''} {', '.join(texts)}"


@dataclass
class LeftOut:
    """Packets without part in the replay, and why."""

    reason: str
    numbers: list[int] | Spans = field(default_factory=list)

    def __str__(self) -> str:
        return f"{numbers_text(self.numbers)}: {self.reason}"


def numbers_text(numbers: Iterable[int] | Spans) -> str:
    """Packet numbers as a person writes them: ``packets 1-3, 7``."""
    if isinstance(numbers, Spans):
        return str(numbers)
    spans = Spans()
    for number in sorted(numbers):
        spans.append(number)
    return str(spans)


@dataclass
class Frames:
    """The frames of a capture: packets, and the others by the reason why they are left out."""

    packets: list[Packet] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)


def read_packets(path: Path | str, say: Callable[[int, int], None] | None = None) -> Frames:
    """Read a capture; ``say`` is that of ``sim.wire.pcap.records``.

    Packets are kept; of other frames only how many there are, and the numbers of the first. Raises
    ValueError, with one line, when the file is not a whole one or has more than ``MOST_PACKETS``.
    """
    packets: list[Packet] = []
    others: dict[str, LeftOut] = {}
    began = None
    for record in records(path, say):
        began = record.time if began is None else began
        found = _roce(record)
        if isinstance(found, str):
            if found not in others and len(others) >= _MOST_REASONS:
                found = "other traffic"
            others.setdefault(found, LeftOut(found, Spans())).numbers.append(record.number)
            continue
        packet = Packet(record.number, record.time - began, record.frame, found)
        if record.cut:
            packet.flaw = f"the capture holds {len(record.frame)} of its {record.length} bytes"
        packets.append(packet)
        if len(packets) > MOST_PACKETS:
            raise ValueError(
                f"{path}: more than {MOST_PACKETS:,} packets of RoCE v2: cut it into parts"
            )
    return Frames(packets, list(others.values()))


def _roce(record: Record) -> Dissected | str:
    """The packet taken apart, or why it is none that can be replayed."""
    try:
        return _parts(record)
    except Exception as error:  # scapy's dissectors raise anything on broken packets
        return f"a packet that cannot be taken apart ({type(error).__name__})"


def _parts(record: Record) -> Dissected | str:  # noqa: PLR0911 - one for each reason
    """Look at the bytes first: taking other traffic apart would take long."""
    frame = record.frame
    if len(frame) < 14:
        return "a frame without Ethernet header"
    start, kind, tags = 14, int.from_bytes(frame[12:14], "big"), 0
    while kind in _TAGS and start + 4 <= len(frame):
        kind, tags = int.from_bytes(frame[start + 2 : start + 4], "big"), tags + 1
        start += 4
    if kind not in (_IPV4, _IPV6):
        return f"no RoCE v2: {_KINDS.get(kind, f'EtherType {kind:#06x}')}"
    ip, v4 = frame[start : start + _HEADERS], kind == _IPV4
    if len(ip) < 20:
        return "a cut IP packet"
    protocol, header = (ip[9], 4 * (ip[0] & 15)) if v4 else (ip[6], 40)
    if protocol != _UDP:
        return f"no RoCE v2: {_PROTOCOLS.get(protocol, f'IP protocol {protocol}')}"
    if protocol == _UDP and len(ip) < header + 8:
        return "a cut UDP packet"
    fragment = int.from_bytes(ip[6:8], "big") & 0x3FFF if v4 else 0
    udp = ip[header : header + 8]
    if fragment & 0x1FFF or int.from_bytes(udp[2:4], "big") != ROCE_PORT:
        return "no RoCE v2: UDP"
    if tags > 1 or frame[12:14] == b"\x88\xa8":
        return "RoCE v2 with more than one VLAN tag, which the card does not take"
    if fragment:
        return "RoCE v2 in IP fragments"
    if header != 20 and v4:
        return "RoCE v2 behind IPv4 options, which the card does not take"
    size = int.from_bytes(udp[4:6], "big")
    if size < 8 + _LEAST or (start + header + size > len(frame) and not record.cut):
        return "RoCE v2 with a wrong length"
    bth = frame[start + header + 8 :][:_BTH]
    return _checked(frame, bth) if len(bth) == _BTH else "a cut RoCE v2 packet"


def _checked(frame: bytes, bth: bytes) -> Dissected | str:
    """Whether the packet has the form of one that a card sends: by its BTH, then by all of it."""
    opcode, qp = bth[0], int.from_bytes(bth[5:8], "big")
    transport = opcode >> 5
    if transport not in SERVICES:
        return _other(transport, qp)
    row = ROCE_OPCODES.get(opcode)
    if row is None:
        return f"RoCE v2 with the reserved opcode {opcode:#04x}"
    if transport == Transport.UD and qp == MULTICAST_QPN:
        return "multicast datagrams, which are not replayed"
    parts = dissect(frame)
    if any(_SHOWN[header] not in parts.fields for header in row.headers):
        return f"{row.name} packets without all their headers"
    return parts


def _other(transport: int, qp: int) -> str:
    """RoCE traffic of other transports."""
    if transport == Transport.CNP:
        return f"congestion notifications (CNP) to QP {qp:#x}"
    name = Transport(transport).name if transport in list(Transport) else f"transport {transport}"
    return f"{name} to QP {qp:#x}: only RC, UC and UD are replayed"
