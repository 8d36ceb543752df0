"""What a capture says of one RC connection: messages, regions, PSNs, MSNs, and what was lost.

What the capture cuts off at its beginning and end is left out, with a note.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from functools import cached_property

from hdl.wire.opcodes import Operation as Op
from hdl.wire.opcodes import Transport
from sim.replay.arrival import MOST_RETRIES, Answers, Event, Requests
from sim.replay.assembly import Assembly, at_packet, message_at
from sim.replay.capture import Packet
from sim.replay.exchange import Exchange, ends_of
from sim.replay.knowledge import Knowledge
from sim.replay.messages import FATAL, PSN_SEQUENCE, End, Message, Unsuitable, is_rnr
from sim.replay.pairing import PSN_MASK, RESPONSES, Flow, after

__all__ = ["Connection"]


class Connection(Exchange):
    """Two flows of a capture as one connection; end 0 sent its first packet."""

    service = Transport.RC

    def __init__(self, one: Flow, other: Flow | None, mtu: int | None = None):
        #: Number of the NAK with which the connection ends, 0 if there is none.
        self.broken = 0
        self._data: dict[tuple[int, int], bytes] = {}  # (asker, PSN) -> READ data
        self._answered = other is not None
        super().__init__(*ends_of(one, other), mtu)

    def _read(self) -> None:
        if not self._answered:
            raise Unsuitable(f"no packet from {self.ends[1].address} back: QP number unknown")
        for side in (0, 1):
            self._messages(side)
        for side in (0, 1):
            self._responses(side)
        if not any(end.messages for end in self.ends):
            raise Unsuitable("no message that begins in the capture")
        for side in (0, 1):
            self._arrivals(side)
        for side in (0, 1):
            self._connected_path(side)

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

    def incoming(self, side: int) -> list[Message]:
        """The messages of the other end."""
        return self.ends[1 - side].messages

    def receives(self, side: int) -> list[Message]:
        """Those that take a receive, be it only to be refused."""
        return [m for m in self.incoming(side) if m.takes_receive and (m.kept or m.refused)]

    def pauses(self, side: int) -> list[int]:
        """The syndromes of the RNR NAKs that an end gets."""
        timers = self.ends[1 - side].rnr_timers
        return [p.nak for p in self.packets if p.side != side and p.nak in timers]

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
