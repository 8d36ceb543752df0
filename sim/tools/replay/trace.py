"""What a capture says of one RC connection: messages, regions, PSNs, MSNs.

Only connections without loss, with SEND, WRITE and READ, can be taken part in; ``reason`` says why
another one cannot. What the capture cuts off at its beginning and end is left out, with a note.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from functools import cached_property
from itertools import takewhile

from hdl.abi.enums import WrOpcode
from hdl.wire.opcodes import Operation as Op
from sim.tools.replay.capture import WITH_IMM, LeftOut, Packet
from sim.tools.replay.messages import End, Message, Unsuitable
from sim.tools.replay.pairing import MTUS, PSN_MASK, RESPONSES, Flow, after

__all__ = ["Connection"]

_SENDS = range(Op.SEND_FIRST, Op.SEND_ONLY_IMM + 1)
_WRITES = range(Op.WRITE_FIRST, Op.WRITE_ONLY_IMM + 1)
_BEGIN = {
    Op.SEND_FIRST,
    Op.SEND_ONLY,
    Op.SEND_ONLY_IMM,
    Op.WRITE_FIRST,
    Op.WRITE_ONLY,
    Op.WRITE_ONLY_IMM,
    Op.READ_REQUEST,
}
_FULL = {Op.SEND_FIRST, Op.SEND_MIDDLE, Op.WRITE_FIRST, Op.WRITE_MIDDLE}
_READS = range(Op.READ_RESP_FIRST, Op.READ_RESP_ONLY + 1)
_REPLAYED = {*_SENDS, *_WRITES, Op.READ_REQUEST, *_READS, Op.ACKNOWLEDGE}
_WITH_IMMEDIATE = {
    WrOpcode.SEND: WrOpcode.SEND_WITH_IMM,
    WrOpcode.RDMA_WRITE: WrOpcode.RDMA_WRITE_WITH_IMM,
}
#: The one entry of a card's partition key table.
_PKEY = 0xFFFF
#: Congestion experienced: the low bits of the traffic class.
_CE = 3


class Connection:
    """Two flows of a capture as one connection; end 0 sent its first packet.

    ``reason`` is empty when a card can take part. ``packets`` are those that are replayed.
    """

    def __init__(self, number: int, one: Flow, other: Flow | None, mtu: int | None = None):
        self.number = number
        self.reason = ""
        self.notes: list[LeftOut] = []
        self.ends = (End(one.source, other.qpn if other else 0), End(one.destination, one.qpn))
        self.stated_mtu = mtu
        self.packets: list[Packet] = []
        for side, flow in enumerate((one, other)):
            for packet in flow.packets if flow else ():
                packet.side = side
                self.packets.append(packet)
        self.packets.sort(key=lambda packet: packet.number)
        self.numbers = [packet.number for packet in self.packets]
        try:
            if other is None:
                raise Unsuitable(f"no packet from {self.ends[1].address} back: QP number unknown")
            self._read()
        except Unsuitable as error:
            self.reason = str(error)

    def __str__(self) -> str:
        ends = " - ".join(str(end) for end in self.ends)
        return f"connection {self.number} ({ends})"

    def _read(self) -> None:
        self._without_copies()
        for packet in self.packets:
            if packet.flaw:
                raise self._fail(packet, packet.flaw)
        self._cut_at_other_operations()
        for side in (0, 1):
            self._messages(side)
        self._responses()
        if not any(end.messages for end in self.ends):
            raise Unsuitable("no message that begins in the capture")
        for side in (0, 1):
            self._path(side)

    def _fail(self, packet: Packet, why: str) -> Unsuitable:
        return Unsuitable(f"packet {packet.number}: {why}")

    def _leave_out(self, packets: list[Packet], reason: str) -> None:
        """Leave packets out of the replay, with a note."""
        if packets:
            gone = {packet.number for packet in packets}
            self.packets = [packet for packet in self.packets if packet.number not in gone]
            self.notes.append(LeftOut(reason, sorted(gone)))

    def _without_copies(self) -> None:
        """A capture on a bridge has every frame twice; then the second ones go."""
        counts = Counter(packet.frame for packet in self.packets)
        if len(self.packets) > 1 and set(counts.values()) == {2}:
            seen: set[bytes] = set()
            copies = []
            for packet in self.packets:
                if packet.frame in seen:
                    copies.append(packet)
                seen.add(packet.frame)
            self._leave_out(copies, "second copies: every frame was captured twice")

    def _cut_at_other_operations(self) -> None:
        """What follows an operation that is not replayed is left out."""
        for at, packet in enumerate(self.packets):
            if packet.op not in _REPLAYED:
                if at == 0:
                    raise self._fail(packet, f"{packet.name} is not replayed")
                rest = self.packets[at:]
                self._leave_out(rest, f"from {packet.name} on, which is not replayed")
                return

    @cached_property
    def mtu(self) -> int:
        """Path MTU: the payload of any packet that is neither last nor only; else the smallest that
        holds every payload, at least 1024.
        """
        full = {*_FULL, Op.READ_RESP_FIRST, Op.READ_RESP_MIDDLE}
        sizes = {len(packet.parts.payload) for packet in self.packets if packet.op in full}
        if self.stated_mtu:
            sizes.add(self.stated_mtu)
        longest = max((len(packet.parts.payload) for packet in self.packets), default=0)
        if not sizes and longest <= MTUS[-1]:
            return next(mtu for mtu in MTUS if mtu >= max(longest, 1024))
        mtu = max(sizes, default=longest)
        if len(sizes) > 1 or mtu not in MTUS or longest > mtu:
            found = ", ".join(str(size) for size in sorted({*sizes, longest}))
            raise Unsuitable(f"payloads of {found} bytes are no path MTU")
        return mtu

    # Requests -----------------------------------------------------------------------------------

    def _messages(self, side: int) -> None:
        """The requests of one end, in PSN order."""
        end = self.ends[side]
        requests = [p for p in self.packets if p.side == side and p.op not in RESPONSES]
        begun = next((i for i, p in enumerate(requests) if p.op in _BEGIN), len(requests))
        self._leave_out(requests[:begun], "of a message that began before the capture")
        requests = requests[begun:]
        if not requests:
            return
        end.first_psn = requests[0].psn
        expected, current = 0, None
        for packet in requests:
            psn, op = after(packet.psn, end.first_psn), packet.op
            if psn != expected:
                want = end.first_psn + expected & PSN_MASK
                raise self._fail(packet, f"PSN {packet.psn:#x}, not {want:#x}: loss or retry")
            if (op in _BEGIN) == (current is not None):
                raise self._fail(packet, f"{packet.name} out of order")
            if current is None:
                current = self._begin(packet, psn)
                end.messages.append(current)
            self._extend(current, packet)
            expected = psn + (current.count(self.mtu) if current.read else 1)
            if op not in _FULL:
                self._check_length(current)
                current = None
        if current is not None:
            self._open(current)

    def _begin(self, packet: Packet, psn: int) -> Message:
        fields, op = packet.parts.fields, packet.op
        kind = WrOpcode.SEND
        if op in _WRITES:
            kind = WrOpcode.RDMA_WRITE
        elif op == Op.READ_REQUEST:
            kind = WrOpcode.RDMA_READ
        message = Message(kind, psn)
        if kind != WrOpcode.SEND:
            message.va, message.rkey = fields["va"], fields["rkey"]
            message.length = fields["dma_length"]
            if message.length > 1 << 31 or message.va + message.length > 1 << 64:
                raise self._fail(packet, f"{message.length} bytes at {message.va:#x}")
        return message

    def _extend(self, message: Message, packet: Packet) -> None:
        fields = packet.parts.fields
        message.packets.append(packet)
        message.solicited |= bool(fields["solicited"])
        if (packet.op in _WRITES) != message.writes and not message.read:
            raise self._fail(packet, f"{packet.name} inside of another message")
        if not message.read:
            message.data += packet.parts.payload
        if packet.op in WITH_IMM:
            message.imm = fields["imm"]
            message.opcode = _WITH_IMMEDIATE[message.opcode]

    def _check_length(self, message: Message) -> None:
        if message.read:
            return
        if message.writes and message.length != len(message.data):
            what = f"{len(message.data)} bytes of a WRITE of {message.length}"
            raise self._fail(message.packets[0], what)
        message.length = len(message.data)

    def _open(self, message: Message) -> None:
        """The capture ends inside a message: it goes on, nobody knows how."""
        message.whole = False
        if not message.writes:
            message.length = len(message.data) + 1
        elif message.length <= len(message.data):
            raise self._fail(message.packets[-1], f"more than the {message.length} bytes of RETH")

    # Responses ----------------------------------------------------------------------------------

    def _responses(self) -> None:
        """READ data out of the responses, which messages are complete, initial MSNs."""
        for side in (0, 1):
            asker = self.ends[1 - side]
            found = [p for p in self.packets if p.side == side and p.op in RESPONSES]
            early = list(takewhile(self._before_capture, found))
            self._leave_out(early, "responses to what came before the capture")
            done = -1
            for packet in found[len(early) :]:
                if packet.number < asker.messages[0].packets[0].number:
                    raise self._fail(packet, "a response before its request")
                done = self._response(packet, side, done)
            self._finish(asker, done)
            self._first_msn(side, found[len(early) :])

    def _first_msn(self, side: int, responses: list[Packet]) -> None:
        """MSN of a side before the first message to it, as most of its responses have it."""
        found = Counter(
            packet.parts.fields["msn"] - self.completed(side, self._offset(packet)) & PSN_MASK
            for packet in responses
            if "msn" in packet.parts.fields
        )
        if found:
            self.ends[side].first_msn = found.most_common(1)[0][0]

    def _offset(self, packet: Packet) -> int:
        """A response's place behind the first PSN of what it answers."""
        return after(packet.psn, self.ends[1 - packet.side].first_psn)

    def _before_capture(self, packet: Packet) -> bool:
        """Whether a response answers something that came before the first whole message."""
        return not self.ends[1 - packet.side].messages or self._offset(packet) < 0

    def _response(self, packet: Packet, side: int, done: int) -> int:
        """One response; returns the highest PSN that has been answered."""
        asker, psn = self.ends[1 - side], self._offset(packet)
        if packet.op == Op.ACKNOWLEDGE:
            if packet.parts.fields["syndrome"] >> 5:
                syndrome = packet.parts.fields["syndrome"]
                raise self._fail(packet, f"NAK with syndrome {syndrome:#04x}")
            if psn < done:
                raise self._fail(packet, f"an older ACK, for PSN {packet.psn:#x}: loss or retry")
            if psn >= self._behind(asker):
                raise self._fail(packet, f"an ACK for PSN {packet.psn:#x}, which nobody sent")
            return psn
        message = self._message_at(asker, psn)
        if message is None or not message.read:
            raise self._fail(packet, "a READ response without its request")
        if (psn - message.psn) * self.mtu != len(message.data) or psn <= done:
            raise self._fail(packet, "READ responses are missing or doubled")
        message.data += packet.parts.payload
        last = psn == message.psn + message.count(self.mtu) - 1
        size = min(self.mtu, message.length - (psn - message.psn) * self.mtu)
        if len(packet.parts.payload) != size or last != (
            packet.op in (Op.READ_RESP_LAST, Op.READ_RESP_ONLY)
        ):
            raise self._fail(packet, f"{packet.name} with {len(packet.parts.payload)} bytes")
        return psn

    def _behind(self, end: End) -> int:
        """The PSN behind the end's last packet, from its first one."""
        if not end.messages:
            return 0
        last = end.messages[-1]
        return last.psn + (last.count(self.mtu) if last.read else len(last.packets))

    def _message_at(self, end: End, psn: int) -> Message | None:
        at = bisect_right(end.messages, psn, key=lambda message: message.psn) - 1
        return end.messages[at] if at >= 0 else None

    def _finish(self, asker: End, done: int) -> None:
        """Which messages the capture shows to be complete; READs whose data is cut off."""
        for message in asker.messages:
            if message.read and len(message.data) != message.length:
                message.whole = False
                later = message.psn + message.count(self.mtu) - 1 < done
                if later:
                    raise self._fail(message.packets[0], "its data is not whole in the capture")
            last = message.psn + message.count(self.mtu) - 1
            message.acknowledged = message.whole and last <= done

    def completed(self, responder: int, psn: int) -> int:
        """Messages to ``responder`` that are complete once everything up to ``psn`` (from the first
        one) is acknowledged.

        A READ counts when its request has been accepted: with its first PSN."""
        return bisect_right(self._ends_of(1 - responder), psn)

    def _ends_of(self, side: int) -> list[int]:
        """PSNs with which the messages of a side count."""
        if side not in self._counting:
            self._counting[side] = [
                m.psn + (0 if m.read else m.count(self.mtu) - 1) for m in self.ends[side].messages
            ]
        return self._counting[side]

    @cached_property
    def _counting(self) -> dict[int, list[int]]:
        return {}

    def reads(self, side: int) -> int:
        """Most READs of one end that are outstanding at a time."""
        asked = {m.packets[0].number: m for m in self.ends[side].messages if m.read}
        waiting: deque[Message] = deque()
        most = 0
        for packet in self.packets:
            if packet.number in asked:
                waiting.append(asked[packet.number])
                most = max(most, len(waiting))
            elif packet.side != side and packet.op in RESPONSES:
                psn = self._offset(packet)
                while waiting and waiting[0].psn + waiting[0].count(self.mtu) - 1 <= psn:
                    waiting.popleft()
        return most

    # Path ---------------------------------------------------------------------------------------

    def _path(self, side: int) -> None:
        """Addresses and marks of one side's packets, which a QP cannot change."""
        end = self.ends[side]
        own = [packet for packet in self.packets if packet.side == side]
        for packet in own:
            fields, path = packet.parts.fields, packet.parts.path
            if fields["pkey"] != _PKEY:
                raise self._fail(packet, f"P_Key {fields['pkey']:#06x} is not the default one")
            now = (fields["src_mac"], path["dst_mac"], path["vlan"], path["priority"])
            if packet is not own[0] and now != (end.mac, end.next_hop, end.vlan, end.priority):
                raise self._fail(packet, f"{end.address} has changed its MAC address or VLAN tag")
            end.mac, end.next_hop, end.vlan, end.priority = now
        if own:
            # A packet that no router has marked shows the traffic class that the QP has.
            plain = next((p for p in own if p.parts.fields["traffic_class"] & 3 != _CE), own[0])
            fields, path = plain.parts.fields, plain.parts.path
            end.traffic_class, end.flow_label = fields["traffic_class"], path["flow_label"]
            end.hop_limit = fields["hop_limit"]
        else:
            peer = next(packet for packet in self.packets if packet.side != side)
            end.mac, end.next_hop = peer.parts.path["dst_mac"], peer.parts.fields["src_mac"]
