"""Which recorded packets have reached the machine that they were sent to.

A capture shows what passed its place on the way. A packet may have been lost behind that place, or
doubled. What the other machine said afterwards shows which: nobody sends again what it knows to be
acknowledged, and a responder answers what it gets, once for each time that it gets it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict

from hdl.abi.enums import WcStatus
from hdl.wire.opcodes import Operation as Op
from sim.replay.assembly import at_packet, message_at
from sim.replay.capture import FETCHES, Packet
from sim.replay.knowledge import Knowledge
from sim.replay.messages import FATAL, PSN_SEQUENCE, End, Message, is_rnr
from sim.replay.pairing import RESPONSES

__all__ = ["Answers", "Event", "Requests"]

#: Most that ``retry_cnt`` can be; the same as ``rnr_retry`` means for ever.
MOST_RETRIES = 7
_NEVER = 1 << 30
#: A packet of a connection and its PSN, counted from the first one of the end that asks.
Event = tuple[Packet, int]


class Answers:
    """Which responses have reached the end that asks, and what it knows of its messages then.

    events: the requests of ``end`` and the responses to them; seen: number of the last packet that
    the end has sent. ``lost``: numbers of the responses that have not come when they were seen;
    ``late``: those of them that have come behind a request, by its number; ``again``: before one.
    Sets ``acknowledged``,
    ``known`` and ``failure`` of the end's messages, and how often it tries. ``tries``: the most
    times that it has gone back without progress; ``retries``: how often it has at all. ``newest``:
    PSN of the newest response behind which it has not gone back.
    """

    def __init__(self, end: End, mtu: int, events: list[Event], seen: int):
        self._end, self._mtu, self._events = end, mtu, events
        self.lost: set[int] = set()
        self.tries = 0
        self.newest = -1
        self.retries = 0
        self._tries = self._refusals = 0  # since the last progress
        self._most_refusals = 0  # of those that were followed by progress
        self._knowledge = Knowledge(end, mtu)
        self.late: dict[int, list[Packet]] = defaultdict(list)
        self.again: dict[int, list[Packet]] = defaultdict(list)
        self._delay()
        self._walk()
        for message in end.messages:
            message.acknowledged = message.whole and message.last(mtu) < self._knowledge.oldest
            message.known = max(0, min(message.count(mtu), self._knowledge.oldest - message.psn))
        if events and not any(message.failure for message in end.messages):
            self._gave_up(seen)

    def _delay(self) -> None:
        """Move responses that have come behind requests for what they bring.

        That is so when nothing has answered the requests: READ data must have come at some time.
        """
        answers = {psn: at for at, (p, psn) in enumerate(self._events) if _brings_data(p)}
        asks: dict[int, int] = {}  # PSN of READ data -> the last request for it
        for at, (packet, psn) in enumerate(self._events):
            if packet.op in FETCHES:
                asks |= dict.fromkeys(range(psn, psn + _span(self._end, psn, self._mtu)), at)
        for psn, at in sorted(answers.items()):
            if asks.get(psn, -1) > at:
                response, (request, _) = self._events[at][0], self._events[asks[psn]]
                self.lost.add(response.number)
                self.late[request.number].append(response)
        events = {packet.number: (packet, psn) for packet, psn in self._events}
        moved = {one.number for late in self.late.values() for one in late}
        self._events = [
            events[one.number]
            for packet, _ in self._events
            if packet.number not in moved
            for one in (packet, *self.late.get(packet.number, ()))
        ]

    def _walk(self) -> None:
        lowest = [_NEVER]  # the lowest PSN that is sent behind an event, last event first
        for packet, psn in reversed(self._events):
            lowest.append(lowest[-1] if packet.op in RESPONSES else min(lowest[-1], psn))
        lowest.reverse()
        behind, paused = 0, False
        missed: list[Event] = []
        for at, (packet, psn) in enumerate(self._events):
            if packet.op not in RESPONSES:
                if psn < behind:
                    self._remember(missed, psn, packet.number)
                    missed = []
                    self._end.goes_back = True
                    self.retries += 1
                    self._tries += not paused
                    paused = False
                    self.newest = -1
                behind = psn + _span(self._end, psn, self._mtu)
                continue
            oldest, _ = self._knowledge.after(packet, psn)
            if oldest > lowest[at + 1]:
                self.lost.add(packet.number)
                missed.append((packet, psn))
                continue
            if oldest > self._knowledge.oldest:
                self._progress()
            lost = self._knowledge.take(packet, psn)
            self.newest = max(self.newest, psn)
            self._end.goes_back |= lost
            paused = is_rnr(packet.nak)
            self._refusals += paused
            message = message_at(self._end, psn)
            if packet.nak in FATAL and message is not None and psn >= oldest:
                message.failure = FATAL[packet.nak]
        self.tries = max(self.tries, self._tries)

    def _remember(self, missed: list[Event], psn: int, request: int) -> None:
        """An end that goes back to a PSN knows all before it: responses have come after all."""
        for packet, answered in missed:
            if self._knowledge.oldest < self._knowledge.after(packet, answered)[0] <= psn:
                self._knowledge.take(packet, answered)
                self.again[request].append(packet)
                self._progress()

    def _progress(self) -> None:
        self.tries = max(self.tries, self._tries)
        self._most_refusals = max(self._most_refusals, self._refusals)
        self._tries = self._refusals = 0

    def _gave_up(self, seen: int) -> None:
        """Whether the capture ends with an end that has given up, for all that it shows.

        It does when it shows nothing more of the end behind its last try, and when the end has not
        tried more often before. The numbers of tries are then those that end it here.
        """
        oldest = message_at(self._end, self._knowledge.oldest)
        if oldest is None or oldest.last(self._mtu) < self._knowledge.oldest:
            return
        last, _ = self._events[-1]
        if seen > last.number:
            return
        if is_rnr(last.nak):
            again = self._refusals - 1
            if self._most_refusals <= again < MOST_RETRIES:
                self._end.rnr_retry = again
                oldest.failure = WcStatus.RNR_RETRY_EXC_ERR
        elif last.op not in RESPONSES and max(1, self.tries) <= self._tries <= MOST_RETRIES:
            self._end.retry_cnt = self._tries
            oldest.failure = WcStatus.RETRY_EXC_ERR


class Requests:
    """Which requests of ``end`` have reached the one that answers.

    events: as for ``Answers``. ``lost``: numbers of those that have not come. ``again``: requests
    that came once more, or late, by the number of the response before which they came.
    ``unexplained``: why the responses cannot be those of a card, empty if they can. Sets
    ``received``, ``kept``, ``refusals`` and ``refused`` of the messages. ``timers``: syndromes of
    RNR NAKs.
    """

    def __init__(self, end: End, mtu: int, events: list[Event]):
        self._end, self._mtu = end, mtu
        self.lost: set[int] = set()
        self.again: dict[int, list[Packet]] = defaultdict(list)
        self.unexplained = ""
        self.timers: set[int] = set()
        #: Number of the NAK that has ended the connection, 0 if there is none.
        self.broken = 0
        self._expected = 0
        self._gap = False  # a NAK is out: everything but the expected PSN is dropped
        self._asked: Counter[int] = Counter()  # READ data, by PSN
        self._answered: Counter[int] = Counter()
        self._refused: Counter[int] = Counter()  # RNR NAKs, by PSN
        self._acked = -1
        self._spare = 0  # duplicates whose ACKs have not been seen
        self._copies: dict[int, Packet] = {}  # PSN -> its latest copy
        self._answers = [(at, *one) for at, one in enumerate(events) if one[0].op in RESPONSES]
        self._answer_places = [at for at, *_ in self._answers]
        self._places: dict[int, list[int]] = defaultdict(list)
        for at, (packet, psn) in enumerate(events):
            if packet.op not in RESPONSES:
                self._places[psn].append(at)
        for at, (packet, psn) in enumerate(events):
            if packet.op in RESPONSES:
                self._response(packet, psn)
            elif not self._request(at, packet, psn):
                self.lost.add(packet.number)
        for message in end.messages:
            message.received = message.whole and message.last(mtu) < self._expected
            message.kept = max(0, min(len(message.packets), self._expected - message.psn))

    # Requests -----------------------------------------------------------------------------------

    def _request(self, at: int, packet: Packet, psn: int) -> bool:
        """Whether it has come."""
        self._copies[psn] = packet
        if self.broken:
            return True
        if psn < self._expected:
            return self._duplicate(at, packet, psn)
        if psn == self._expected:
            return self._next(at, packet, psn)
        if not self._gap:
            answer = self._answer_to(at, self._expected)
            self._gap = answer is not None and answer[1:] == (PSN_SEQUENCE, self._expected)
        return self._gap

    def _next(self, at: int, packet: Packet, psn: int) -> bool:
        """The packet that was expected: it has come unless what follows says otherwise."""
        again = self._sent_again(at, psn)
        asks = packet.op in FETCHES or packet.parts.fields["ack_request"]
        answer = self._answer_to(at, psn)
        if answer is None:
            came = again == _NEVER or not asks
        else:
            place, nak, answered = answer
            if nak and answered == psn:
                if nak == PSN_SEQUENCE or place > again:
                    return False
                self._refuse(nak, psn)
                return True
            came = place < again or not asks
        if came:
            self._accept(packet, psn)
        return came

    def _accept(self, packet: Packet, psn: int) -> None:
        span = _span(self._end, psn, self._mtu)
        self._expected = psn + span
        self._gap = False
        if packet.op in FETCHES:
            self._asked.update(range(psn, psn + span))

    def _refuse(self, nak: int, psn: int) -> None:
        message = self._message(psn)
        if is_rnr(nak):
            message.refusals += 1
            self._gap = True
        else:
            message.refused = nak
            self.broken = -1  # until its NAK is seen

    def _duplicate(self, at: int, packet: Packet, psn: int) -> bool:
        """A READ is answered each time; all others are acknowledged."""
        if packet.op not in FETCHES:
            self._spare += 1
            return True
        span = range(psn, psn + _span(self._end, psn, self._mtu))
        again = self._sent_again(at, psn)
        for place, response, answered in self._answers_behind(at):
            if place > again:
                break
            if response.op != Op.ACKNOWLEDGE and answered in span:
                self._asked.update(span)
                return True
        return False

    def _message(self, psn: int) -> Message:
        message = message_at(self._end, psn)
        assert message is not None
        return message

    def _sent_again(self, at: int, psn: int) -> int:
        """Where a PSN is sent the next time."""
        places = self._places[psn]
        later = bisect_right(places, at)
        return places[later] if later < len(places) else _NEVER

    def _answers_behind(self, at: int):
        """The responses behind an event: place, packet, PSN."""
        for index in range(bisect_right(self._answer_places, at), len(self._answers)):
            yield self._answers[index]

    def _answer_to(self, at: int, psn: int) -> tuple[int, int, int] | None:
        """The next response that says what has become of a PSN: place, NAK syndrome, its PSN."""
        for place, packet, answered in self._answers_behind(at):
            if answered >= psn:
                return place, packet.nak, answered
        return None

    # Responses ----------------------------------------------------------------------------------

    def _response(self, packet: Packet, psn: int) -> None:
        if packet.nak:
            self._nak(packet, psn)
            return
        self._reach(psn + 1, packet)
        if self.broken > 0:
            raise at_packet(packet, "an answer behind the NAK that has ended the connection")
        if packet.op != Op.ACKNOWLEDGE:
            self._answered[psn] += 1
            if self._answered[psn] > self._asked[psn]:
                message = self._message(psn)
                if not message.read:
                    raise at_packet(packet, "a READ response without its request")
                self._once_more(packet, message.psn)
                self._asked.update(range(message.psn, message.last(self._mtu) + 1))
            return
        if psn == self._acked:
            if self._spare:
                self._spare -= 1
            elif psn == self._expected - 1 and not self._message(psn).read:
                self._once_more(packet, psn)
        self._acked = psn

    def _nak(self, packet: Packet, psn: int) -> None:
        self._reach(psn, packet)
        if psn < self._expected:
            raise at_packet(packet, f"a NAK for PSN {packet.psn:#x}, which had been accepted")
        if packet.nak == PSN_SEQUENCE:
            if not self._gap:
                self._overtake(packet)
        elif is_rnr(packet.nak):
            self.timers.add(packet.nak)
            self._refused[psn] += 1
            message = self._message(psn)
            if self._refused[psn] > message.refusals:
                self._refuse(packet.nak, psn)
                self._once_more(packet, psn)
            if not message.takes_receive or psn != message.receives_at(self._mtu):
                self._unexplained(packet, "an RNR NAK for a packet that takes no receive")
        else:
            if not self.broken:
                self._refuse(packet.nak, psn)
                self._once_more(packet, psn)
            self.broken = packet.number

    def _overtake(self, nak: Packet) -> None:
        """A NAK for a gap that a packet shows which was sent before, but has come only now."""
        newest = max(self._copies, default=-1)
        if newest > self._expected:
            self._once_more(nak, newest)
            self._gap = True
        else:
            self._unexplained(nak, "a NAK without a packet behind the gap")

    def _unexplained(self, packet: Packet, why: str) -> None:
        self.unexplained = self.unexplained or f"packet {packet.number}: {why}"

    def _reach(self, psn: int, packet: Packet) -> None:
        """A response says that everything before a PSN has come: late, if not when it was seen."""
        while self._expected < psn:
            self._once_more(packet, self._expected)
            self._accept(self._copies[self._expected], self._expected)

    def _once_more(self, before: Packet, psn: int) -> None:
        if psn not in self._copies:
            raise at_packet(before, "an answer to what is not in the capture")
        self.again[before.number].append(self._copies[psn])


def _brings_data(packet: Packet) -> bool:
    return packet.op in RESPONSES and packet.op != Op.ACKNOWLEDGE


def _span(end: End, psn: int, mtu: int) -> int:
    """PSNs that the request with a PSN takes: the rest of its READ, or one."""
    message = message_at(end, psn)
    return message.last(mtu) - psn + 1 if message is not None and message.read else 1
