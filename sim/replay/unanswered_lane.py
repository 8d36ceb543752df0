"""One end of a UC connection or one QP for datagrams: what the card should send, and what it sent.

Each packet stands for itself: nothing is sent again, and nothing answers. The card sends its PSNs
without a gap, also those that the capture lacks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from hdl.wire.opcodes import Operation as Op
from sim.guest.verbs import QP
from sim.replay.capture import Packet
from sim.replay.compare import Report, differences
from sim.replay.judge import Judge
from sim.replay.messages import Message
from sim.replay.pairing import PSN_MASK, after
from sim.replay.plan import Place
from sim.wire.packets import dissect

__all__ = ["UnansweredLane"]


class UnansweredLane:
    """``qp`` is the card's QP once it exists; ``receives_taken``: receives that the peers' messages
    have taken so far.
    """

    qp: QP
    answered = False

    def __init__(self, place: Place, report: Report):
        self.place = place
        self.receives_taken = 0
        self._judge = Judge(place, report)
        self._recorded = {self._offset(one.psn): one for one in self._judge.own}
        self._due: deque[Packet] = deque()
        self._sent: set[int] = set()  # PSNs
        self._next = self._newest = 0
        self._posts = {one.number: m for m in place.end.messages for one in m.packets}
        self._begins = {message.packets[0].number: message for message in place.incoming}
        last = place.end.messages[-1] if place.end.messages else None
        #: The first PSN behind all that the machine is known to have sent; none if it goes on.
        self._end: float = 0
        if last is not None:
            self._end = last.last(place.connection.mtu) + 1 if last.whole else float("inf")

    # The capture goes on ------------------------------------------------------------------------

    def reach(self, packet: Packet) -> Message | None:
        """The capture has reached a packet of the card's machine: the message that it is of."""
        if self._recorded.get(self._offset(packet.psn)) is packet:
            self._due.append(packet)
        return self._posts.get(packet.number)

    def feed(self, packet: Packet, now: float) -> Message | None:
        """A packet goes to the card: the message that begins with it."""
        message = self._begins.get(packet.number)
        if message is not None and message.takes_receive and message.shares is None:
            self.receives_taken += 1
        return message

    def refused(self, message: Message) -> int:
        """RNR NAKs for a message: there are none."""
        return 0

    def behind(self) -> Packet | None:
        """The first packet that is due and has not come; None when there is none."""
        while self._due and self._offset(self._due[0].psn) in self._sent:
            self._due.popleft()
        return self._due[0] if self._due else None

    # The card sends -----------------------------------------------------------------------------

    def take(self, frame: bytes, latest: int, now: float) -> int:
        """A frame of the card; as ``Lane.take``."""
        fields = dissect(frame).fields
        psn = self._offset(fields["psn"])
        if psn != self._next:
            wanted = f"{self.place.end.first_psn + self._next & PSN_MASK:#x}"
            self._judge.differs(0, f"PSN {fields['psn']:#x}", wanted, "sent")
        self._next = psn + 1
        packet = self._recorded.get(psn)
        if packet is None or psn in self._sent:
            return self._unrecorded(frame, fields, psn)
        self._sent.add(psn)
        found, free = differences(packet, frame)
        free += self._order(packet, latest)
        self._judge.packet(packet, found + self._judge.port(packet.number, frame), free)
        return packet.number

    def _offset(self, psn: int) -> int:
        return after(psn, self.place.end.first_psn)

    def _order(self, packet: Packet, latest: int) -> list[str]:
        """How a packet is out of the recorded order: the network has changed it, or other QPs."""
        overtaken = packet.number < self._newest
        self._newest = max(self._newest, packet.number)
        if overtaken:
            return ["order on the network"]
        return ["order of QPs"] if packet.number < latest else []

    def _unrecorded(self, frame: bytes, fields: Mapping[str, int], psn: int) -> int:
        """A packet that the capture lacks, or that its end has cut off; or one too many."""
        if psn in self._sent or not 0 <= psn < self._end:
            op = Op(fields["opcode"] & 0x1F).name
            self._judge.differs(0, f"extra packet {op}, PSN {fields['psn']:#x}", None, "one")
        elif psn < max(self._recorded, default=0):
            self._judge.unrecorded("lost before the capture", self._judge.port(0, frame))
        self._sent.add(psn)
        return 0

    def finish(self) -> None:
        """The capture is over."""
