"""What the card answers on one connection, against the recorded answers.

READ responses and acknowledgements are streams of their own. ACKs may cover one another; NAKs may
not. A READ that is asked for again is answered again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hdl.wire.opcodes import Operation as Op
from sim.replay.assembly import message_at
from sim.replay.capture import FETCHES, Packet, brought
from sim.replay.compare import Difference, as_sent, differences
from sim.replay.judge import Judge
from sim.replay.messages import FATAL, PSN_SEQUENCE, Message, is_rnr
from sim.replay.pairing import PSN_MASK, RESPONSES, after
from sim.replay.plan import Place
from sim.replay.trace import Connection
from sim.wire.packets import Dissected, dissect

__all__ = ["AckStream", "Asked", "ReadStream"]


class Asked:
    """What the peer has asked for so far, and how much of it the card has answered.

    PSNs count from the peer's first one. ``expected``: the one that the card takes next;
    ``answered``: the newest that it has answered.
    """

    def __init__(self, place: Place):
        assert isinstance(place.connection, Connection)  # only RC has answers
        self.place, self.connection = place, place.connection
        self.mtu = place.connection.mtu
        self.expected = 0
        self.answered = -1
        self._acknowledged = -1
        self._refusals: Counter[int] = Counter()  # RNR NAKs that are due, by PSN

    def feed(self, packet: Packet) -> bool:
        """A request goes to the card; whether it is the next one, and is not refused."""
        psn = self.offset(packet.psn)
        message = self.message(psn)
        if psn != self.expected or (message.refused and psn == message.psn + message.kept):
            return False
        if psn == message.receives_at(self.mtu) and self._refusals[psn] < message.refusals:
            self._refusals[psn] += 1
            return False
        self.expected = 1 + (message.last(self.mtu) if message.read else psn)
        return True

    def message(self, psn: int) -> Message:
        """The peer's message with a PSN."""
        message = message_at(self.place.peer, psn)
        assert message is not None
        return message

    def offset(self, psn: int) -> int:
        """A PSN, counted from the peer's first one."""
        return after(psn, self.place.peer.first_psn)

    def count(self, number: int, psn: int, msn: int) -> list[Difference]:
        """An answer's MSN counts the messages up to its PSN."""
        done = self.connection.completed(self.place.side, self.offset(psn))
        want = self.place.end.first_msn + done & PSN_MASK
        return [] if msn == want else [Difference(number, f"MSN for PSN {psn:#x}", want, msn)]

    def counts(self, psn: int, msn: int, newest: int) -> bool:
        """Whether an MSN counts the messages up to a PSN at least, and to ``newest`` at most."""
        side, first = self.place.side, self.place.end.first_msn
        least = self.connection.completed(side, self.offset(psn))
        more = self.connection.completed(side, newest) - least
        return (msn - first - least) & PSN_MASK <= max(0, more)

    def answer(self, psn: int, number: int, again: bool = False) -> list[Difference]:
        """The card has answered up to a PSN; ``again``: not for the first time."""
        return self._order(psn, number, -1 if again else self.answered)

    def acknowledge(self, psn: int, number: int) -> list[Difference]:
        """An ACK of the card: no older than its last one. It may come behind the responses of READs
        that stand behind its request, which have said the same."""
        found = self._order(psn, number, self._acknowledged)
        self._acknowledged = max(self._acknowledged, self.offset(psn))
        return found

    def _order(self, psn: int, number: int, newest: int) -> list[Difference]:
        at = self.offset(psn)
        found = []
        if at >= self.expected:
            found.append(Difference(number, f"answer to PSN {psn:#x}", "not asked yet", "sent"))
        if at < newest:
            found.append(Difference(number, f"answer to PSN {psn:#x}", "in order", "too late"))
        self.answered = max(self.answered, at)
        return found


class ReadStream:
    """Compares the card's READ responses."""

    def __init__(self, asked: Asked, judge: Judge):
        self._asked, self._judge = asked, judge
        place = asked.place
        own = [p for p in place.connection.packets if p.side == place.side]
        self._recorded = [
            (packet, asked.offset(packet.psn))
            for packet in own
            if packet.op in RESPONSES and packet.op != Op.ACKNOWLEDGE
        ]
        self._at = self._due = 0
        self._next = -1
        self._starts: list[int] = []  # PSNs of all READ requests that were fed
        self._sent: Counter[int] = Counter()
        #: PSNs that were asked for again before they had been answered: once may be enough.
        self._absorbed: set[int] = set()

    def reach(self) -> None:
        """The capture has reached the next recorded READ response."""
        self._due += 1

    def feed(self, psn: int, last: int, again: bool) -> None:
        """A READ request goes to the card, which answers it (``again``: not for the first time)."""
        if again:
            self._absorbed.update(one for one in range(psn, last + 1) if not self._sent[one])
        self._starts.append(psn)

    def behind(self) -> Packet | None:
        """The first recorded response that is due and has not come."""
        while self._at < self._due:
            packet, psn = self._recorded[self._at]
            if not (self._sent[psn] and psn in self._absorbed):
                return packet
            self._pass(self._at + 1)
        return None

    def finish(self) -> None:
        """The capture is over."""
        self._due = len(self._recorded)
        self.behind()

    def take(self, frame: bytes, fields: Mapping[str, int], latest: int) -> int:
        """A READ response of the card; returns the number of the packet it was compared with."""
        psn, op = self._asked.offset(fields["psn"]), fields["opcode"] & 0x1F
        allowed = sum(start <= psn for start in self._starts)
        if not (psn == self._next or psn in self._starts) or self._sent[psn] >= allowed:
            what = f"READ response {Op(op).name}, PSN {fields['psn']:#x}"
            self._judge.differs(0, what, None, "one")
        again = bool(self._sent[psn])
        self._sent[psn] += 1
        self._next = psn + 1
        place = self._place_of(psn)
        if place is None:
            self._unrecorded(frame, psn, again)
            return 0
        self._pass(place)
        self._at = place + 1
        packet, _ = self._recorded[place]
        found, free = differences(packet, frame)
        if any(one.what == "msn" for one in found) and self._counts(packet, fields, again):
            found = [one for one in found if one.what != "msn"]
            free.append("msn of a repetition")
        found += self._asked.answer(fields["psn"], packet.number, again)
        free += self._judge.order(packet, latest)
        self._judge.packet(packet, found + self._judge.port(packet.number, frame), free)
        return packet.number

    def _counts(self, packet: Packet, fields: Mapping[str, int], again: bool) -> bool:
        """Whether the MSN of a response may differ from the recorded one: either may be of a
        repetition, perhaps of a response that the capture does not have, but then it counts what
        has been asked for by then."""
        asked, psn = self._asked, fields["psn"]
        newest = asked.expected - 1 if again else asked.offset(psn)
        sent = asked.counts(psn, fields["msn"], newest)
        return sent and asked.counts(psn, packet.parts.fields["msn"], PSN_MASK)

    def _place_of(self, psn: int) -> int | None:
        """Index of the recorded response that this one is, behind others that are repetitions."""
        for place in range(self._at, len(self._recorded)):
            other = self._recorded[place][1]
            if other == psn:
                return place
            if not self._sent[other]:
                break
        return None

    def _pass(self, place: int) -> None:
        for packet, _ in self._recorded[self._at : place]:
            self._judge.packet(packet, [], ["response repeated"])
        self._at = place

    def _unrecorded(self, frame: bytes, psn: int, again: bool) -> None:
        """A response that is not recorded here: its data is what is recorded elsewhere."""
        sent = dissect(frame)
        found = self._asked.answer(sent.fields["psn"], 0, again)
        found += self._data(sent, psn) + self._judge.port(0, frame)
        msn = sent.fields.get("msn")  # no MIDDLE has one
        newest = self._asked.expected - 1 if again else psn
        if msn is not None and not self._asked.counts(sent.fields["psn"], msn, newest):
            found.append(Difference(0, f"MSN for PSN {sent.fields['psn']:#x}", None, msn))
        self._judge.unrecorded("response repeated" if again else "lost before the capture", found)

    def _data(self, sent: Dissected, psn: int) -> list[Difference]:
        message = message_at(self._asked.place.peer, psn)
        if message is None or not message.read or psn > message.last(self._asked.mtu):
            return [Difference(0, f"READ response {sent.fields['psn']:#x}", None, "one")]
        begin = (psn - message.psn) * self._asked.mtu
        end = min(begin + self._asked.mtu, message.length)
        if end > len(message.data):
            return []  # the capture does not have it
        wanted, found = bytes(message.data[begin:end]), brought(sent)
        if wanted == found and sent.icrc_good:
            return []
        return [Difference(0, f"data of PSN {sent.fields['psn']:#x}", wanted, found)]


class AckStream:
    """Compares the card's ACKs and NAKs."""

    def __init__(self, asked: Asked, judge: Judge):
        self._asked, self._judge = asked, judge
        place = asked.place
        own = [p for p in place.connection.packets if p.side == place.side]
        self._recorded = [packet for packet in own if packet.op == Op.ACKNOWLEDGE]
        self._demanded = self._demands()
        self._repeated = self._repetitions()
        self._at = self._due = 0
        self._owed = False  # a duplicate asks for an ACK
        self._reported = -1  # PSN of the latest NAK
        #: PSN -> RNR NAKs that the card has sent for it.
        self.refusals: Counter[int] = Counter()
        #: Whether the card has sent the NAK that ends its QP.
        self.broken = False

    def _demands(self) -> dict[int, int]:
        """Number of each recorded ACK that the peer asked for with AckReq -> the newest PSN for
        which it did.
        """
        place = self._asked.place
        connection = self._asked.connection
        demanded: dict[int, int] = {}
        asked: list[int] = []  # PSNs with AckReq that nothing has answered yet
        for packet in connection.packets:
            if packet.side != place.side:
                if packet.number not in connection.lost and _asks(packet):
                    asked.append(self._asked.offset(packet.psn))
            elif packet.op in RESPONSES:
                more = filter(_asks, connection.again.get(packet.number, ()))
                asked.extend(self._asked.offset(one.psn) for one in more)
                psn = connection.acknowledged(packet)
                answered = [one for one in asked if one <= psn]
                if answered and packet.op == Op.ACKNOWLEDGE:
                    demanded[packet.number] = max(answered)
                asked = [one for one in asked if one > psn]
        return demanded

    def _repetitions(self) -> set[int]:
        """Numbers of the NAKs for a gap that has been reported before."""
        found: set[int] = set()
        before = -1
        for packet in self._recorded:
            if packet.nak:
                if packet.nak == PSN_SEQUENCE and packet.psn == before:
                    found.add(packet.number)
                before = packet.psn
        return found

    # The capture goes on ------------------------------------------------------------------------

    def reach(self) -> None:
        """The capture has reached the next recorded ACK or NAK."""
        self._due += 1

    def duplicate(self, packet: Packet) -> None:
        """A SEND or WRITE request goes to the card, which has taken it before."""
        if packet.parts.fields["ack_request"]:
            self._owed = not self.broken

    def behind(self) -> Packet | None:
        """The first recorded ACK or NAK that is due, must come, and has not come."""
        for packet in self._recorded[self._at : self._due]:
            if packet.nak and packet.number not in self._repeated:
                return packet
            demanded = self._demanded.get(packet.number, -1) > self._asked.answered
            if not packet.nak and (demanded or self._owed):
                return packet
        return None

    def finish(self) -> None:
        """The capture is over: ACKs that nobody asked for need not have come."""
        while self._at < len(self._recorded):
            packet = self._recorded[self._at]
            if packet.nak:
                if packet.number not in self._repeated:
                    return
                self._free(packet, "nak repeated")
            elif self._asked.offset(packet.psn) <= self._asked.answered:
                self._free(packet, "ack coalescing")
            elif self._demanded.get(packet.number, -1) > self._asked.answered:
                return
            else:
                self._free(packet, "ack not asked for")

    # The card sends -----------------------------------------------------------------------------

    def take(self, frame: bytes, fields: Mapping[str, int]) -> int:
        """An ACK or NAK of the card; returns the number of the packet it was compared with."""
        self._owed = False
        if fields["syndrome"] >> 5:
            return self._take_nak(frame, fields)
        index = min(self._at, len(self._recorded) - 1)
        number = self._recorded[index].number if self._recorded else 0
        found = self._asked.acknowledge(fields["psn"], number)
        found += self._judge.port(number, frame)
        found += self._asked.count(number, fields["psn"], fields["msn"])
        if self.cover(fields["psn"], frame, found):
            return number
        positive = next((one for one in self._recorded[::-1] if not one.nak), None)
        if positive is not None and not found:
            found = differences(as_sent(positive, frame), frame)[0]
        self._judge.unrecorded("ack coalescing", found)
        return 0

    def cover(self, psn: int, frame: bytes | None, found: list[Difference] | None = None) -> bool:
        """Recorded ACKs up to ``psn`` are covered; whether ``frame`` was compared with one."""
        compared, rest = False, list(found or ())
        while self._at < len(self._recorded):
            packet = self._recorded[self._at]
            ahead = after(packet.psn, psn)
            if packet.number in self._repeated:
                self._free(packet, "nak repeated")
                continue
            if ahead > 0 or (compared and self._for_a_duplicate(packet)):
                break
            self._at += 1
            if packet.nak:
                wrong = Difference(packet.number, f"NAK for PSN {packet.psn:#x}", packet.nak, None)
                self._judge.packet(packet, [wrong], [])
                continue
            if frame is None:
                self._coalesced(packet)
                continue
            exact = ahead == 0 and not compared
            bad, free = differences(packet if exact else as_sent(packet, frame), frame)
            if not exact:
                free = ["ack coalescing"]
                bad += self._asked.count(packet.number, packet.psn, packet.parts.fields["msn"])
            self._judge.packet(packet, bad + rest, free)
            rest, compared = [], True
        return compared

    def _for_a_duplicate(self, packet: Packet) -> bool:
        """Whether a recorded ACK is a further one for its PSN, which the capture comes to later."""
        return self._at >= self._due and self._recorded[self._at - 1].psn == packet.psn

    def _coalesced(self, packet: Packet) -> None:
        bad = self._asked.count(packet.number, packet.psn, packet.parts.fields["msn"])
        self._judge.packet(packet, bad, ["ack coalescing"])

    def _free(self, packet: Packet, what: str) -> None:
        self._at += 1
        self._judge.packet(packet, [], [what])

    def _take_nak(self, frame: bytes, fields: Mapping[str, int]) -> int:
        """A NAK stands for itself: the next one that is recorded must be equal."""
        self.cover(fields["psn"] - 1 & PSN_MASK, None)
        packet = self._recorded[self._at] if self._at < len(self._recorded) else None
        if packet is None or not packet.nak:
            if (fields["syndrome"], fields["psn"]) == (PSN_SEQUENCE, self._reported):
                self._judge.unrecorded("nak repeated", self._judge.port(0, frame))
                return 0
            number = packet.number if packet is not None else 0
            self._judge.differs(number, f"NAK for PSN {fields['psn']:#x}", None, fields["syndrome"])
            return 0
        self._at += 1
        self._reported = fields["psn"]
        found = differences(packet, frame)[0] + self._judge.port(packet.number, frame)
        psn = self._asked.offset(fields["psn"])
        self._asked.answered = max(self._asked.answered, psn - 1)
        if is_rnr(fields["syndrome"]):
            self.refusals[psn] += 1
        self.broken |= fields["syndrome"] in FATAL
        self._judge.packet(packet, found, [])
        return packet.number


def _asks(packet: Packet) -> bool:
    """Whether a packet wants an ACK."""
    asks = packet.op not in RESPONSES and packet.op not in FETCHES
    return asks and bool(packet.parts.fields["ack_request"])
