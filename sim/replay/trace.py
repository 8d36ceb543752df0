"""What a capture says: packets, messages, regions, without a card.

Only loss-free captures of one RC connection with SEND, WRITE and READ can be taken part in;
``Unsuitable`` says why another one cannot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from hdl.abi.enums import WrOpcode
from hdl.wire.opcodes import Operation as Op
from hdl.wire.opcodes import Transport
from sim.packets import Dissected, dissect, roce_frames
from sim.pcap import read_pcap

__all__ = ["PSN_MASK", "Message", "Packet", "Side", "Trace", "Unsuitable"]

PSN_MASK = 0xFFFFFF
_SENDS = range(Op.SEND_FIRST, Op.SEND_ONLY_IMM + 1)
_WRITES = range(Op.WRITE_FIRST, Op.WRITE_ONLY_IMM + 1)
_BEGIN = {Op.SEND_FIRST, Op.SEND_ONLY, Op.SEND_ONLY_IMM} | {
    Op.WRITE_FIRST,
    Op.WRITE_ONLY,
    Op.WRITE_ONLY_IMM,
}
_END = {Op.SEND_LAST, Op.SEND_LAST_IMM, Op.SEND_ONLY, Op.SEND_ONLY_IMM} | {
    Op.WRITE_LAST,
    Op.WRITE_LAST_IMM,
    Op.WRITE_ONLY,
    Op.WRITE_ONLY_IMM,
}
_WITH_IMM = {Op.SEND_LAST_IMM, Op.SEND_ONLY_IMM, Op.WRITE_LAST_IMM, Op.WRITE_ONLY_IMM}
_RESPONSES = range(Op.READ_RESP_FIRST, Op.READ_RESP_ONLY + 1)
MTUS = (256, 512, 1024, 2048, 4096)


class Unsuitable(ValueError):
    """The capture holds traffic in which a card cannot take part; the text says which and why."""


@dataclass
class Packet:
    """One RoCE packet of the capture. ``index`` counts RoCE packets from 0; ``side`` is 0 or 1."""

    index: int
    frame: bytes
    side: int
    parts: Dissected

    @property
    def op(self) -> int:
        """Operation of the opcode."""
        return self.parts.fields["opcode"] & 0x1F

    @property
    def psn(self) -> int:
        """PSN of the BTH."""
        return self.parts.fields["psn"]


@dataclass
class Message:
    """One work request as its packets show it."""

    opcode: WrOpcode
    first_psn: int
    packets: list[Packet] = field(default_factory=list)
    length: int = 0
    data: bytearray = field(default_factory=bytearray)
    va: int = 0
    rkey: int = 0
    imm: bytes = bytes(4)
    solicited: bool = False

    @property
    def takes_receive(self) -> bool:
        """Whether it takes a receive WQE."""
        return self.opcode in (
            WrOpcode.SEND,
            WrOpcode.SEND_WITH_IMM,
            WrOpcode.RDMA_WRITE_WITH_IMM,
        )

    def count(self, mtu: int) -> int:
        """PSNs it takes."""
        return max(1, -(-self.length // mtu))


@dataclass
class Side:
    """One machine: its addresses, its QP, what it asked for."""

    gid: bytes
    mac: bytes
    qpn: int = 0
    messages: list[Message] = field(default_factory=list)

    def regions(self) -> dict[int, tuple[int, int]]:
        """What this side's messages touch at the other: rkey -> (lowest, highest + 1) address."""
        found: dict[int, tuple[int, int]] = {}
        for message in self.messages:
            if message.rkey and message.length:
                low, high = message.va, message.va + message.length
                before = found.get(message.rkey, (low, high))
                found[message.rkey] = (min(before[0], low), max(before[1], high))
        return found


class Trace:
    """A capture of one RC connection between two machines.

    Raises ValueError for a file that is no capture, Unsuitable for one that cannot be replayed.
    """

    def __init__(self, path: Path | str, frames: list[bytes] | None = None):
        self.path = Path(path)
        frames = [frame for _, frame in read_pcap(path)] if frames is None else frames
        parts = [(frame, dissect(frame)) for frame in roce_frames(frames)]
        if not parts:
            raise Unsuitable(f"{self.path.name}: no RoCE v2 packet")
        first = parts[0][1].fields["src_gid"]
        gids = {p.fields["src_gid"] for _, p in parts}
        if len(gids) != 2:
            raise Unsuitable(f"{self.path.name}: {len(gids)} machines send, not 2")
        (second,) = gids - {first}
        self.sides = [Side(gid, b"") for gid in (first, second)]
        self.packets = [
            Packet(index, frame, int(p.fields["src_gid"] == second), p)
            for index, (frame, p) in enumerate(parts)
        ]
        self._ends()
        for number in (0, 1):
            self._messages(number)
        self._responses()

    def _fail(self, packet: Packet, why: str) -> Unsuitable:
        return Unsuitable(f"{self.path.name}: packet {packet.index}: {why}")

    def _ends(self) -> None:
        """MACs and QP numbers, and that there is one RC connection only."""
        for packet in self.packets:
            fields = packet.parts.fields
            if fields["opcode"] >> 5 != Transport.RC:
                raise self._fail(
                    packet, f"opcode {fields['opcode']:#04x} is not of the RC transport"
                )
            self.sides[packet.side].mac = fields["src_mac"]
            other = self.sides[1 - packet.side]
            if other.qpn not in (0, fields["dest_qp"]):
                raise self._fail(packet, f"a second connection, to QP {fields['dest_qp']:#x}")
            other.qpn = fields["dest_qp"]

    @cached_property
    def mtu(self) -> int:
        """Path MTU: the payload of any packet that is neither last nor only; else the smallest that
        holds every payload, at least 1024.
        """
        multi = {op for op in Op if op.name.endswith(("_FIRST", "_MIDDLE"))}
        longest = 0
        for packet in self.packets:
            if packet.op in multi:
                return len(packet.parts.payload)
            longest = max(longest, len(packet.parts.payload))
        return next(mtu for mtu in MTUS if mtu >= max(longest, 1024))

    def _messages(self, number: int) -> None:
        """The requests of one side, in PSN order."""
        side, expected, current = self.sides[number], None, None
        for packet in self.packets:
            fields, op = packet.parts.fields, packet.op
            if packet.side != number or op in _RESPONSES or op == Op.ACKNOWLEDGE:
                continue
            if op not in _SENDS and op not in _WRITES and op != Op.READ_REQUEST:
                raise self._fail(packet, f"operation {Op(op).name} is not replayed")
            if expected is not None and packet.psn != expected:
                raise self._fail(packet, f"PSN {packet.psn:#x}, not {expected:#x}: loss or retry")
            if op in _BEGIN or op == Op.READ_REQUEST:
                current = self._begin(packet)
                side.messages.append(current)
            if current is None:
                raise self._fail(packet, "the capture begins inside a message")
            current.packets.append(packet)
            if op != Op.READ_REQUEST:
                current.data += packet.parts.payload
                current.length = len(current.data)
            if op in _WITH_IMM:
                current.imm = fields["imm"]
                if current.opcode == WrOpcode.SEND:
                    current.opcode = WrOpcode.SEND_WITH_IMM
                elif current.opcode == WrOpcode.RDMA_WRITE:
                    current.opcode = WrOpcode.RDMA_WRITE_WITH_IMM
            current.solicited |= bool(fields["solicited"])
            step = current.count(self.mtu) if op == Op.READ_REQUEST else 1
            expected = packet.psn + step & PSN_MASK
            if op in _END or op == Op.READ_REQUEST:
                current = None
        if current is not None:
            raise Unsuitable(f"{self.path.name}: the capture ends inside a message")

    def _begin(self, packet: Packet) -> Message:
        fields, op = packet.parts.fields, packet.op
        kind = WrOpcode.SEND
        if op in _WRITES:
            kind = WrOpcode.RDMA_WRITE
        elif op == Op.READ_REQUEST:
            kind = WrOpcode.RDMA_READ
        message = Message(kind, packet.psn)
        if kind != WrOpcode.SEND:
            message.va, message.rkey = fields["va"], fields["rkey"]
        if kind == WrOpcode.RDMA_READ:
            message.length = fields["dma_length"]
        return message

    def _responses(self) -> None:
        """READ data out of the responses, and that nothing was refused."""
        for packet in self.packets:
            fields = packet.parts.fields
            if packet.op == Op.ACKNOWLEDGE and fields["syndrome"] >> 5:
                raise self._fail(packet, f"NAK with syndrome {fields['syndrome']:#04x}")
            if packet.op in _RESPONSES:
                message = self._read_of(packet)
                offset = (packet.psn - message.first_psn & PSN_MASK) * self.mtu
                if offset != len(message.data):
                    raise self._fail(packet, "READ responses are missing or doubled")
                message.data += packet.parts.payload
        for side in self.sides:
            for message in side.messages:
                if len(message.data) != message.length:
                    raise self._fail(message.packets[0], "its data is not whole in the capture")

    def _read_of(self, packet: Packet) -> Message:
        for message in self.sides[1 - packet.side].messages:
            ahead = packet.psn - message.first_psn & PSN_MASK
            if message.opcode == WrOpcode.RDMA_READ and ahead < message.count(self.mtu):
                return message
        raise self._fail(packet, "a READ response without its request")

    def completed(self, responder: int, psn: int) -> int:
        """Messages to ``responder`` that are complete once everything up to ``psn`` is
        acknowledged.

        A READ counts when its request has been accepted: with its first PSN."""
        done = 0
        for message in self.sides[1 - responder].messages:
            read = message.opcode == WrOpcode.RDMA_READ
            last = message.first_psn + (0 if read else message.count(self.mtu) - 1)
            if psn - last & PSN_MASK < 1 << 23:
                done += 1
        return done

    def first_msn(self, responder: int) -> int:
        """MSN that ``responder`` had before the first message of the capture."""
        for packet in self.packets:
            if packet.side == responder and "msn" in packet.parts.fields:
                done = self.completed(responder, packet.psn)
                return packet.parts.fields["msn"] - done & PSN_MASK
        return 0
