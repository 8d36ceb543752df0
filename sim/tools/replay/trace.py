"""What a capture says of one RC connection: messages, regions, PSNs, MSNs, and what was lost.

Only SEND, WRITE, READ and atomics can be taken part in; ``reason`` says why another connection
cannot. What the capture cuts off at its beginning and end is left out, with a note.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from functools import cached_property

from hdl.wire.opcodes import Operation as Op
from sim.tools.replay.arrival import MOST_RETRIES, Answers, Event, Requests
from sim.tools.replay.assembly import FULL, Assembly, at_packet, message_at
from sim.tools.replay.capture import FETCHES, LeftOut, Packet
from sim.tools.replay.knowledge import Knowledge
from sim.tools.replay.messages import FATAL, PSN_SEQUENCE, End, Message, Unsuitable, is_rnr
from sim.tools.replay.pairing import MTUS, PSN_MASK, RESPONSES, Flow, after

__all__ = ["Connection"]

_SENDS = range(Op.SEND_FIRST, Op.SEND_ONLY_IMM + 1)
_WRITES = range(Op.WRITE_FIRST, Op.WRITE_ONLY_IMM + 1)
_READS = range(Op.READ_RESP_FIRST, Op.READ_RESP_ONLY + 1)
_REPLAYED = {*_SENDS, *_WRITES, *FETCHES, *_READS, Op.ACKNOWLEDGE, Op.ATOMIC_ACK}
#: The one entry of a card's partition key table.
_PKEY = 0xFFFF
#: Time in which a bridge hands a frame on, at most.
_COPY_NS = 100_000
#: Congestion experienced: the low bits of the traffic class.
_CE = 3


class Connection:
    """Two flows of a capture as one connection; end 0 sent its first packet.

    ``reason`` is empty when a card can take part. ``packets`` are those that are replayed.
    ``lost``: numbers of those that have not reached the other end; ``again``: packets that have
    reached it late or once more, by the number of the packet before which they did; ``late``:
    responses that have reached it behind a request, by its number. ``refusals``: for each end why
    no card can have its place, empty if one can.
    """

    def __init__(self, number: int, one: Flow, other: Flow | None, mtu: int | None = None):
        self.number = number
        self.reason = ""
        self.notes: list[LeftOut] = []
        self.ends = (End(one.source, other.qpn if other else 0), End(one.destination, one.qpn))
        self.stated_mtu = mtu
        self.packets: list[Packet] = []
        self.lost: set[int] = set()
        self.again: dict[int, list[Packet]] = {}
        self.late: dict[int, list[Packet]] = {}
        self.refusals = ["", ""]
        #: How often each end has gone back.
        self.retries = [0, 0]
        #: Number of the NAK with which the connection ends, 0 if there is none.
        self.broken = 0
        self._data: dict[tuple[int, int], bytes] = {}  # (asker, PSN) -> READ data
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
                raise at_packet(packet, packet.flaw)
        self._cut_at_other_operations()
        for side in (0, 1):
            self._messages(side)
        for side in (0, 1):
            self._responses(side)
        if not any(end.messages for end in self.ends):
            raise Unsuitable("no message that begins in the capture")
        for side in (0, 1):
            self._arrivals(side)
        for side in (0, 1):
            self._path(side)

    def _leave_out(self, packets: list[Packet], reason: str) -> None:
        """Leave packets out of the replay, with a note."""
        if packets:
            gone = {packet.number for packet in packets}
            self.packets = [packet for packet in self.packets if packet.number not in gone]
            self.notes.append(LeftOut(reason, sorted(gone)))

    def _without_copies(self) -> None:
        """A capture on a bridge has every frame twice; then the second ones go.

        They come at once, and before anybody answers: so they have not been sent again.
        """
        counts = Counter(packet.frame for packet in self.packets)
        if len(self.packets) < 2 or set(counts.values()) != {2}:
            return
        first: dict[bytes, Packet] = {}
        copies = []
        newest = [0, 0]  # packets of the two sides
        for packet in self.packets:
            if packet.frame not in first:
                first[packet.frame] = packet
                newest[packet.side] = packet.number
                continue
            copies.append(packet)
            one = first[packet.frame]
            if newest[1 - one.side] > one.number or packet.time - one.time > _COPY_NS:
                return
        self._leave_out(copies, "second copies: every frame was captured twice")

    def _cut_at_other_operations(self) -> None:
        """What follows an operation that is not replayed is left out."""
        for at, packet in enumerate(self.packets):
            if packet.op not in _REPLAYED:
                if at == 0:
                    raise at_packet(packet, f"{packet.name} is not replayed")
                rest = self.packets[at:]
                self._leave_out(rest, f"from {packet.name} on, which is not replayed")
                return

    @cached_property
    def mtu(self) -> int:
        """Path MTU: the payload of any packet that is neither last nor only; else the smallest that
        holds every payload, at least 1024.
        """
        full = {*FULL, Op.READ_RESP_FIRST, Op.READ_RESP_MIDDLE}
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

    # Requests and responses ---------------------------------------------------------------------

    def _messages(self, side: int) -> None:
        """The requests of one end, in PSN order."""
        requests = [p for p in self.packets if p.side == side and p.op not in RESPONSES]
        found = Assembly(self.ends[side], requests, self.mtu)
        self._leave_out(found.early, "of a message that began before the capture")
        if found.missing is not None:
            what = f"behind PSN {found.missing:#x}, which is not in the capture"
            self._leave_out(found.behind, what)

    def offset(self, packet: Packet) -> int:
        """A packet's PSN, counted from the first one of the end that asks."""
        asker = packet.side if packet.op not in RESPONSES else 1 - packet.side
        return after(packet.psn, self.ends[asker].first_psn)

    def _responses(self, side: int) -> None:
        """READ data out of the responses of one end, its MSN before the first message to it."""
        asker = self.ends[1 - side]
        found = [p for p in self.packets if p.side == side and p.op in RESPONSES]
        early = [p for p in found if not asker.messages or self.offset(p) < 0]
        self._leave_out(early, "responses to what came before the capture")
        behind = self._behind(asker)
        late = [p for p in found if p.nak and p not in early and self.offset(p) >= behind]
        self._leave_out(late, "NAKs for packets that are not in the capture")
        newest, gone = -1, {packet.number for packet in (*early, *late)}
        kept = [packet for packet in found if packet.number not in gone]
        for packet in kept:
            newest = self._response(packet, asker, newest)
        for message in asker.messages:
            if message.read:
                self._gather(message, 1 - side)
        counted = Counter(
            packet.parts.fields["msn"] - self.completed(side, self.acknowledged(packet)) & PSN_MASK
            for packet in kept
            if "msn" in packet.parts.fields
        )
        if counted:
            self.ends[side].first_msn = counted.most_common(1)[0][0]

    def acknowledged(self, packet: Packet) -> int:
        """The last PSN that a response acknowledges: a NAK what is before its own."""
        return self.offset(packet) - bool(packet.nak)

    def _response(self, packet: Packet, asker: End, newest: int) -> int:
        """Look at one response; returns the newest PSN that an ACK or NAK has acknowledged."""
        psn, done = self.offset(packet), self.acknowledged(packet)
        if not asker.messages or packet.number < min(m.begins for m in asker.messages):
            raise at_packet(packet, "a response before its request")
        if packet.op != Op.ACKNOWLEDGE:
            self._read_response(packet, asker, psn)
            return newest
        if packet.nak and not (
            packet.nak == PSN_SEQUENCE or packet.nak in FATAL or is_rnr(packet.nak)
        ):
            raise at_packet(packet, f"NAK with syndrome {packet.nak:#04x}")
        if done < newest:
            raise at_packet(packet, f"an older ACK, for PSN {packet.psn:#x}")
        if psn >= self._behind(asker):
            raise at_packet(packet, f"an ACK for PSN {packet.psn:#x}, which is not in the capture")
        return done

    def _read_response(self, packet: Packet, asker: End, psn: int) -> None:
        """READ data of one PSN: the same each time."""
        message = message_at(asker, psn)
        answers = message is not None and message.atomic == (packet.op == Op.ATOMIC_ACK)
        if message is None or not answers or not message.read or psn > message.last(self.mtu):
            raise at_packet(packet, "a READ response without its request")
        last = psn == message.last(self.mtu)
        size = min(self.mtu, message.length - (psn - message.psn) * self.mtu)
        if len(packet.data) != size or last != (
            packet.op in (Op.READ_RESP_LAST, Op.READ_RESP_ONLY, Op.ATOMIC_ACK)
        ):
            raise at_packet(packet, f"{packet.name} with {len(packet.data)} bytes")
        known = self._data.setdefault((1 - packet.side, psn), packet.data)
        if known != packet.data:
            raise at_packet(packet, "READ data that is not what it was the time before")

    def _gather(self, message: Message, asker: int) -> None:
        """The data of a READ, as far as the capture has it."""
        for psn in range(message.psn, message.last(self.mtu) + 1):
            part = self._data.get((asker, psn))
            if part is None:
                message.whole = False
                return
            message.data += part

    def _behind(self, end: End) -> int:
        """The PSN behind the end's last packet, from its first one."""
        if not end.messages:
            return 0
        last = end.messages[-1]
        return last.psn + (last.count(self.mtu) if last.read else len(last.packets))

    # What has come ------------------------------------------------------------------------------

    def events(self, side: int) -> list[Event]:
        """The requests of one end and the responses to them, with their PSNs from its first one."""
        return [
            (packet, self.offset(packet))
            for packet in self.packets
            if (packet.side == side) == (packet.op not in RESPONSES)
        ]

    def _arrivals(self, side: int) -> None:
        """What has reached the other end, of the requests of one and of the responses to them."""
        end, events = self.ends[side], self.events(side)
        own = [packet.number for packet in self.packets if packet.side == side]
        requests = Requests(end, self.mtu, events)
        answers = Answers(end, self.mtu, events, max(own, default=0))
        self.lost |= requests.lost | answers.lost
        self.late |= answers.late
        self.again |= requests.again | answers.again
        self.broken = self.broken or max(0, requests.broken)
        self.ends[1 - side].rnr_timers = requests.timers
        self.retries[side] = answers.retries
        self._whole_reads(side, answers)
        if answers.tries > MOST_RETRIES:
            self.refusals[side] = f"sent again {answers.tries} times without progress"
        if len(requests.timers) > 1:
            requests.unexplained = "RNR NAKs with several times"
        self.refusals[1 - side] = self.refusals[1 - side] or requests.unexplained

    def _whole_reads(self, side: int, answers: Answers) -> None:
        """A READ whose data is missing is cut off by the capture's end, or asked for again."""
        for message in self.ends[side].messages:
            if message.read and not message.whole and answers.newest > message.last(self.mtu):
                raise at_packet(message.packets[0], "its data is not whole in the capture")

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
        end, knowledge = self.ends[side], Knowledge(self.ends[side], self.mtu)
        reads = [m for m in end.messages if m.read]
        begun = most = 0
        done = 0
        for packet, psn in self.events(side):
            if packet.op in RESPONSES:
                if packet.number not in self.lost:
                    knowledge.take(packet, psn)
            else:
                while begun < len(reads) and reads[begun].psn <= psn:
                    begun += 1
            while done < begun and reads[done].last(self.mtu) < knowledge.oldest:
                done += 1
            most = max(most, begun - done)
        return most

    # Path ---------------------------------------------------------------------------------------

    def _path(self, side: int) -> None:
        """Addresses and marks of one side's packets, which a QP cannot change."""
        end = self.ends[side]
        own = [packet for packet in self.packets if packet.side == side]
        for packet in own:
            fields, path = packet.parts.fields, packet.parts.path
            if fields["pkey"] != _PKEY:
                raise at_packet(packet, f"P_Key {fields['pkey']:#06x} is not the default one")
            now = (fields["src_mac"], path["dst_mac"], path["vlan"], path["priority"])
            if packet is not own[0] and now != (end.mac, end.next_hop, end.vlan, end.priority):
                raise at_packet(packet, f"{end.address} has changed its MAC address or VLAN tag")
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
