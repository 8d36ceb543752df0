"""One connection of a replay: what the card should send on it, and what it has sent.

Requests, READ responses and acknowledgements are streams of their own: each is compared in its
order, and they may interleave as they like.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from hdl.wire.opcodes import Operation as Op
from sim.guest.verbs import QP
from sim.replay.assembly import message_at
from sim.replay.capture import Packet
from sim.replay.compare import Report
from sim.replay.judge import Judge
from sim.replay.messages import Message
from sim.replay.pairing import PSN_MASK, RESPONSES, after
from sim.replay.plan import Place
from sim.replay.requester import RequestStream
from sim.replay.responder import AckStream, Asked, ReadStream
from sim.replay.waits import Waits
from sim.wire.packets import dissect

__all__ = ["Lane"]


class Lane:
    """One end of a connection, played by the card.

    ``qp`` is the card's QP once it exists; ``on_landed`` is told of the peer's messages that the
    card has answered.
    """

    qp: QP
    #: Whether its packets are answered.
    answered = True

    def __init__(
        self, place: Place, report: Report, on_landed: Callable[[Message], None], waits: Waits
    ):
        self.place, self._landed = place, on_landed
        judge = Judge(place, report)
        self._judge = judge
        self._asked = Asked(place)
        self.requests = RequestStream(place, judge, waits)
        self._reads = ReadStream(self._asked, judge)
        self._acks = AckStream(self._asked, judge)
        self._open: deque[Message] = deque()
        #: Messages of the peer that have taken a receive.
        self.receives_taken = 0

    # The capture goes on ------------------------------------------------------------------------

    def reach(self, packet: Packet) -> Message | None:
        """The capture has reached a packet of the card's machine: the message that it asks for."""
        if packet.op == Op.ACKNOWLEDGE:
            self._acks.reach()
        elif packet.op in RESPONSES:
            self._reads.reach()
        else:
            self.requests.reach()
            return message_at(self.place.end, after(packet.psn, self.place.end.first_psn))
        return None

    def feed(self, packet: Packet, now: float) -> Message | None:
        """A packet of the peer goes to the card: the message that begins with it, or is a READ that
        is answered again.
        """
        if packet.op in RESPONSES:
            self.requests.hear(packet, now)
            return None
        psn = self._asked.offset(packet.psn)
        message = message_at(self.place.peer, psn)
        if message is None:
            return None  # from before the first message: a duplicate of what nobody knows
        known = psn < self._asked.expected
        taken = self._asked.feed(packet)
        if message.read and (taken or known):
            self._reads.feed(psn, message.last(self._asked.mtu), known)
        elif known:
            self._acks.duplicate(packet)
        if taken and psn == message.psn:
            self._open.append(message)
            self.receives_taken += message.takes_receive
        return message if (psn == message.psn and taken) or (known and message.read) else None

    def refused(self, message: Message) -> int:
        """RNR NAKs that the card has sent for a message of the peer."""
        return self._acks.refusals[message.receives_at(self._asked.mtu)]

    def behind(self) -> Packet | None:
        """The first packet that is due and has not come; None when there is none."""
        return self.requests.behind() or self._reads.behind() or self._acks.behind()

    # The card sends -----------------------------------------------------------------------------

    def take(self, frame: bytes, latest: int, now: float) -> int:
        """A frame of the card; ``latest`` is the highest packet number seen on any connection.

        Returns the number of the recorded packet that it was compared with, 0 when there is none.
        """
        fields = dissect(frame).fields
        op = fields["opcode"] & 0x1F
        if op not in RESPONSES:
            number = self.requests.take(frame, fields, latest, now)
        elif op == Op.ACKNOWLEDGE:
            number = self._acks.take(frame, fields)
            if self._acks.broken:
                self.requests.end()
        else:
            number = self._reads.take(frame, fields, latest)
            self._acks.cover(fields["psn"] - 1 & PSN_MASK, None)
        while self._open and self._open[0].last(self._asked.mtu) <= self._asked.answered:
            self._landed(self._open.popleft())
        self._judge.seen(number)
        return number

    def finish(self) -> None:
        """The capture is over."""
        self.requests.finish()
        self._reads.finish()
        self._acks.finish()
