"""One connection of a replay: what the card should send on it, and what it has sent.

Requests and responses are streams of their own: each is compared in its order, the two may
interleave as they like. ACKs may cover one another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from hdl.wire.opcodes import Operation as Op
from sim.guest.verbs import QP
from sim.tools.replay.capture import Packet
from sim.tools.replay.compare import Difference, Report, Verdict, as_sent, differences
from sim.tools.replay.messages import Message
from sim.tools.replay.pairing import PSN_MASK, RESPONSES, after
from sim.tools.replay.plan import Place
from sim.wire.packets import dissect

__all__ = ["Lane"]


class Lane:
    """One end of a connection, played by the card.

    ``due``: how many of the recorded requests, READ responses and ACKs the capture has reached.
    ``qp`` is the card's QP once it exists; ``on_landed`` is told of the peer's messages that the
    card has answered.
    """

    qp: QP

    def __init__(self, place: Place, report: Report, on_landed: Callable[[Message], None]):
        self.place, self.report, self._landed = place, report, on_landed
        own = [p for p in place.connection.packets if p.side == place.side]
        self._requests = [p for p in own if p.op not in RESPONSES]
        self._reads = [p for p in own if p.op in RESPONSES and p.op != Op.ACKNOWLEDGE]
        self._acks = [p for p in own if p.op == Op.ACKNOWLEDGE]
        self._asked = self._demanded()
        self._sent = {"requests": 0, "reads": 0, "acks": 0}
        self._due = {"requests": 0, "reads": 0, "acks": 0}
        self._answered = -1  # PSN of the peer's requests up to which the card has answered
        self._fed = -1  # PSN up to which the peer's requests have been fed
        self._latest = -1  # index of the last packet of this connection that was seen
        self._ports: set[bytes] = set()
        self._open: deque[Message] = deque()
        self.verdicts = {
            p.number: Verdict(p.number, p.time, place.connection.number, p.name, p.psn) for p in own
        }
        report.verdicts += self.verdicts.values()
        report.packets += len(own)

    # The capture goes on ------------------------------------------------------------------------

    def reach(self, packet: Packet) -> None:
        """The capture has reached a packet of the card's machine."""
        self._due[self._stream(packet.op)] += 1

    def feed(self, packet: Packet, message: Message | None) -> None:
        """A packet of the peer goes to the card; ``message`` begins with it."""
        if packet.op not in RESPONSES:
            psn = self._from_peer(packet.psn)
            if message is not None:
                self._open.append(message)
                psn += message.count(self.place.connection.mtu) - 1 if message.read else 0
            self._fed = max(self._fed, psn)

    def behind(self) -> Packet | None:
        """The first packet that is due and has not come; None when there is none."""
        for stream, packets in (("requests", self._requests), ("reads", self._reads)):
            if self._sent[stream] < self._due[stream]:
                return packets[self._sent[stream]]
        for ack in self._acks[self._sent["acks"] : self._due["acks"]]:
            if ack.number in self._asked and self._from_peer(ack.psn) > self._answered:
                return ack
        return None

    def _stream(self, op: int) -> str:
        if op == Op.ACKNOWLEDGE:
            return "acks"
        return "reads" if op in RESPONSES else "requests"

    def _from_peer(self, psn: int) -> int:
        """A PSN of the peer's requests, from its first one."""
        return after(psn, self.place.peer.first_psn)

    def _demanded(self) -> set[int]:
        """Numbers of the recorded ACKs that the peer asked for with AckReq."""
        demanded: set[int] = set()
        asked: deque[int] = deque()  # PSNs with AckReq that nothing has answered yet
        for packet in self.place.connection.packets:
            if packet.side != self.place.side and packet.op not in RESPONSES:
                if packet.parts.fields["ack_request"]:
                    asked.append(self._from_peer(packet.psn))
            elif packet.side == self.place.side and packet.op in RESPONSES:
                psn = self._from_peer(packet.psn)
                if asked and asked[0] <= psn and packet.op == Op.ACKNOWLEDGE:
                    demanded.add(packet.number)
                while asked and asked[0] <= psn:
                    asked.popleft()
        return demanded

    # The card sends -----------------------------------------------------------------------------

    def take(self, frame: bytes, latest: int) -> int:
        """A frame of the card; ``latest`` is the highest packet number seen on any connection.

        Returns the number of the recorded packet that it was compared with, 0 when there is none.
        """
        fields = dissect(frame).fields
        op = fields["opcode"] & 0x1F
        if op == Op.ACKNOWLEDGE:
            return self._take_ack(frame, fields)
        stream = self._stream(op)
        packets = self._requests if stream == "requests" else self._reads
        if self._sent[stream] >= len(packets):
            if not self._goes_on(op, fields["psn"]):
                self._differs(0, f"extra packet {_name(op)}, PSN {fields['psn']:#x}", None, "one")
            return 0
        packet = packets[self._sent[stream]]
        self._sent[stream] += 1
        found, free = differences(packet, frame)
        if stream == "reads":
            found += self._answer(fields["psn"], packet.number)
            self._cover(fields["psn"] - 1, None)
        if packet.number < latest:
            own = packet.number < self._latest
            free.append("order of requests and responses" if own else "order of QPs")
        self._latest = max(self._latest, packet.number)
        self._judge(packet, found + self._port(packet.number, frame), free)
        return packet.number

    def _take_ack(self, frame: bytes, fields: dict[str, int]) -> int:
        index = min(self._sent["acks"], len(self._acks) - 1)
        number = self._acks[index].number if self._acks else 0
        if fields["syndrome"] >> 5:
            self._differs(number, f"NAK for PSN {fields['psn']:#x}", None, fields["syndrome"])
            return 0
        found = self._answer(fields["psn"], number) + self._port(number, frame)
        found += self._count(number, fields["psn"], fields["msn"])
        if self._cover(fields["psn"], frame, found):
            return number
        if self._acks and not found:
            found = differences(as_sent(self._acks[index], frame), frame)[0]
        self.report.note("ack coalescing")
        self.report.differences += found
        return 0

    def _cover(self, psn: int, frame: bytes | None, found: list[Difference] | None = None) -> bool:
        """Recorded ACKs up to ``psn`` are covered; whether ``frame`` was compared with one."""
        compared, rest = False, list(found or ())
        while self._sent["acks"] < len(self._acks):
            packet = self._acks[self._sent["acks"]]
            ahead = after(packet.psn, psn)
            if ahead > 0:
                break
            self._sent["acks"] += 1
            if frame is None:
                bad = self._count(packet.number, packet.psn, packet.parts.fields["msn"])
                self._judge(packet, bad, ["ack coalescing"])
                continue
            exact = ahead == 0 and not compared
            bad, free = differences(packet if exact else as_sent(packet, frame), frame)
            if not exact:
                free = ["ack coalescing"]
                bad += self._count(packet.number, packet.psn, packet.parts.fields["msn"])
            self._judge(packet, bad + rest, free)
            rest, compared = [], True
        return compared

    def _count(self, number: int, psn: int, msn: int) -> list[Difference]:
        """An ACK's MSN counts the messages up to its PSN."""
        done = self.place.connection.completed(self.place.side, self._from_peer(psn))
        want = self.place.end.first_msn + done & PSN_MASK
        return [] if msn == want else [Difference(number, f"MSN for PSN {psn:#x}", want, msn)]

    def _answer(self, psn: int, number: int) -> list[Difference]:
        """The card has answered up to a PSN of the peer's requests."""
        at = self._from_peer(psn)
        found = []
        if at > self._fed:
            found.append(Difference(number, f"answer to PSN {psn:#x}", "not asked yet", "sent"))
        if at < self._answered:
            found.append(Difference(number, f"answer to PSN {psn:#x}", "in order", "too late"))
        self._answered = max(self._answered, at)
        while self._open and self._last(self._open[0]) <= self._answered:
            self._landed(self._open.popleft())
        return found

    def _last(self, message: Message) -> int:
        return message.psn + message.count(self.place.connection.mtu) - 1

    def _goes_on(self, op: int, psn: int) -> bool:
        """Whether a packet that is not recorded belongs to a message which the capture cuts off."""
        if op in RESPONSES:
            at = self._from_peer(psn)
            cut = [m for m in self.place.peer.messages if m.read and not m.whole]
            return any(m.psn <= at <= self._last(m) for m in cut)
        own = self.place.end.messages
        return bool(own) and not own[-1].read and not own[-1].whole

    def _port(self, number: int, frame: bytes) -> list[Difference]:
        """The UDP source port is constant."""
        parts = dissect(frame)
        self._ports.add(parts.path["udp_source"])
        if len(self._ports) > 1:
            return [Difference(number, "udp source port", "constant", sorted(self._ports))]
        return []

    # Verdicts -----------------------------------------------------------------------------------

    def _judge(self, packet: Packet, found: list[Difference], free: list[str]) -> None:
        verdict = self.verdicts[packet.number]
        verdict.result = "different" if found else "free" if free else "equal"
        verdict.free = free
        verdict.differences = [f"{o.what}: {str(o).split(': ')[-1]}" for o in found]
        self.report.differences += found
        self.report.agreed += not found
        for what in free:
            self.report.note(what)

    def _differs(self, number: int, what: str, recorded: object, sent: object) -> None:
        where = "" if number else f"{self.place.connection}: "
        self.report.differences.append(Difference(number, where + what, recorded, sent))

    def finish(self) -> None:
        """The capture is over: ACKs that nobody asked for need not have come."""
        while self._sent["acks"] < len(self._acks):
            packet = self._acks[self._sent["acks"]]
            self._sent["acks"] += 1
            if packet.number not in self._asked:
                self._judge(packet, [], ["ack not asked for"])


def _name(op: int) -> str:
    return Op(op).name if op in list(Op) else f"operation {op:#x}"
