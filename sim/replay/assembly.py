"""The messages of one end, put together from its request packets, however often each was sent."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

from hdl.abi.enums import WrOpcode
from hdl.wire.opcodes import ATOMIC_BYTES
from hdl.wire.opcodes import Operation as Op
from sim.replay.capture import ATOMICS, FETCHES, WITH_IMM, WITH_KEY, Packet
from sim.replay.messages import End, Message, Unsuitable
from sim.replay.pairing import PSN_MASK, after

__all__ = ["BEGIN", "FULL", "WRITES", "Assembly", "alike", "at_packet", "extend"]
__all__ += ["message_at", "message_of"]

WRITES = range(Op.WRITE_FIRST, Op.WRITE_ONLY_IMM + 1)
#: Packets that begin a message.
BEGIN = {
    Op.SEND_FIRST,
    Op.SEND_ONLY,
    Op.SEND_ONLY_IMM,
    Op.SEND_ONLY_INV,
    Op.WRITE_FIRST,
    Op.WRITE_ONLY,
    Op.WRITE_ONLY_IMM,
    *FETCHES,
}
#: Packets that carry a whole path MTU.
FULL = {Op.SEND_FIRST, Op.SEND_MIDDLE, Op.WRITE_FIRST, Op.WRITE_MIDDLE}
_WITH_IMMEDIATE = {
    WrOpcode.SEND: WrOpcode.SEND_WITH_IMM,
    WrOpcode.RDMA_WRITE: WrOpcode.RDMA_WRITE_WITH_IMM,
}
#: What may differ when a packet is sent again: AckReq is the requester's choice each time.
_EACH_TIME = {"ack_request", "traffic_class"}
_OPERANDS = ("swap_add", "compare")


def at_packet(packet: Packet, why: str) -> Unsuitable:
    """A connection that cannot be replayed because of one packet."""
    return Unsuitable(f"packet {packet.number}: {why}")


def message_at(end: End, psn: int) -> Message | None:
    """The message of ``end`` that begins last at or before a PSN, counted from its first one."""
    at = bisect_right(end.messages, psn, key=lambda message: message.psn) - 1
    return end.messages[at] if at >= 0 else None


def alike(one: Packet, other: Packet) -> bool:
    """Whether two packets say the same."""
    names = (one.parts.fields.keys() | other.parts.fields.keys()) - _EACH_TIME
    same = all(one.parts.fields.get(name) == other.parts.fields.get(name) for name in names)
    return same and one.parts.payload == other.parts.payload


def message_of(packet: Packet, psn: int) -> Message:
    """A message that begins with a packet, whose PSN counts from its side's first one."""
    fields, op = packet.parts.fields, packet.op
    kind = WrOpcode.SEND
    if op in WRITES:
        kind = WrOpcode.RDMA_WRITE
    elif op == Op.READ_REQUEST:
        kind = WrOpcode.RDMA_READ
    elif op in ATOMICS:
        kind = ATOMICS[Op(op)]
    message = Message(kind, psn, begins=packet.number)
    if kind != WrOpcode.SEND:
        message.va, message.rkey = fields["va"], fields["rkey"]
        message.length = fields.get("dma_length", ATOMIC_BYTES)
        message.swap_add, message.compare = (fields.get(name, 0) for name in _OPERANDS)
        if message.length > 1 << 31 or message.va + message.length > 1 << 64:
            raise at_packet(packet, f"{message.length} bytes at {message.va:#x}")
    return message


def extend(message: Message, packet: Packet) -> None:
    """A message goes on with a packet, or ends with it."""
    fields = packet.parts.fields
    message.packets.append(packet)
    message.solicited |= bool(fields["solicited"])
    if not message.read:
        message.data += packet.parts.payload
    if packet.op in WITH_IMM:
        message.imm = fields["imm"]
        message.opcode = _WITH_IMMEDIATE[message.opcode]
    elif packet.op in WITH_KEY:
        message.opcode, message.invalidates = WrOpcode.SEND_WITH_INV, fields["imm"]


class Assembly:
    """Puts the messages of ``end`` together. Raises ``Unsuitable``.

    early: packets of messages that began before the capture; behind: packets behind one that the
    capture does not have, whose PSN is ``missing``.
    """

    #: Whether the assembly goes on behind packets that are missing.
    fills = False

    def __init__(self, end: End, requests: list[Packet], mtu: int):
        self._end, self._mtu = end, mtu
        self.early: list[Packet] = []
        self.behind: list[Packet] = []
        self.missing: int | None = None
        if requests:
            self._assemble(requests)

    def _assemble(self, requests: list[Packet]) -> None:
        """Walk the PSNs in their order, whatever order they were sent in."""
        groups: dict[int, list[Packet]] = defaultdict(list)
        for packet in requests:
            groups[after(packet.psn, requests[0].psn)].append(packet)
        order = sorted(groups)
        begun = next((i for i, psn in enumerate(order) if groups[psn][0].op in BEGIN), len(order))
        self.early = [packet for psn in order[:begun] for packet in groups[psn]]
        order = order[begun:]
        if not order:
            return
        first, expected = order[0], 0
        self._end.first_psn = groups[first][0].psn
        current: Message | None = None
        for at, psn in enumerate(order):
            group, offset = groups[psn], psn - first
            if offset < expected:
                self._tails(group, offset)
                continue
            packet = self._once(group)
            if offset > expected:
                if not self.fills:
                    self.missing = self._end.first_psn + expected & PSN_MASK
                    self.behind = [packet for later in order[at:] for packet in groups[later]]
                    break
                current = self._fill(current, expected, offset, packet)
            if (packet.op in BEGIN) == (current is not None):
                raise at_packet(packet, f"{packet.name} out of order")
            if current is None:
                current = message_of(packet, offset)
                self._end.messages.append(current)
            self._extend(current, packet)
            expected = offset + (current.count(self._mtu) if current.read else 1)
            if packet.op not in FULL:
                self._check_length(current)
                current = None
        if current is not None:
            self._open(current)
        self._begins(requests)

    def _fill(
        self, current: Message | None, expected: int, offset: int, packet: Packet
    ) -> Message | None:
        """Put packets of no known content in the place of PSNs that the capture does not have; the
        message that is open then. Only where ``fills``.
        """
        raise NotImplementedError

    def _once(self, group: list[Packet]) -> Packet:
        """The packet of a PSN, which was sent once or again and again."""
        first = group[0]
        for again in group[1:]:
            if not alike(first, again):
                raise at_packet(again, f"PSN {again.psn:#x} again, with something else")
        return first

    def _tails(self, group: list[Packet], offset: int) -> None:
        """Requests for the rest of a READ."""
        message = message_at(self._end, offset)
        for packet in group:
            fields = packet.parts.fields
            if message is None or not message.read or packet.op != Op.READ_REQUEST:
                raise at_packet(packet, f"{packet.name} within a READ")
            done = (offset - message.psn) * self._mtu
            wanted = (message.va + done, message.length - done, message.rkey)
            if (fields["va"], fields["dma_length"], fields["rkey"]) != wanted:
                raise at_packet(packet, "a READ request that is no rest of the READ before")

    def _extend(self, message: Message, packet: Packet) -> None:
        if (packet.op in WRITES) != message.writes and not message.read:
            raise at_packet(packet, f"{packet.name} inside of another message")
        extend(message, packet)

    def _check_length(self, message: Message) -> None:
        if message.read:
            return
        if message.writes and message.length != len(message.data):
            what = f"{len(message.data)} bytes of a WRITE of {message.length}"
            raise at_packet(message.packets[0], what)
        message.length = len(message.data)

    def _open(self, message: Message) -> None:
        """The capture ends inside a message: it goes on, nobody knows how."""
        message.whole = False
        if not message.writes:
            message.length = len(message.data) + 1
        elif message.length <= len(message.data):
            raise at_packet(message.packets[-1], f"more than the {message.length} bytes of RETH")

    def _begins(self, requests: list[Packet]) -> None:
        """Which packet of the capture is the first of each message."""
        gone = {packet.number for packet in (*self.early, *self.behind)}
        for packet in reversed(requests):
            if packet.number not in gone:
                message = message_at(self._end, after(packet.psn, self._end.first_psn))
                if message is not None:
                    message.begins = packet.number
