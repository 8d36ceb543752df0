"""The requests that the card sends on one connection, against the recorded ones.

Both go back now and then (go-back-N, IBTA vol 1, 9.7.5, 9.7.6). Where they do is given: the oldest
packet that is not acknowledged, for a reason. How far they had come by then is a matter of timing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from math import inf

from hdl.wire.opcodes import Operation as Op
from sim.replay.assembly import message_at
from sim.replay.capture import Packet
from sim.replay.compare import differences
from sim.replay.judge import Judge
from sim.replay.knowledge import Knowledge
from sim.replay.messages import FATAL, is_rnr
from sim.replay.pairing import PSN_MASK, RESPONSES, after
from sim.replay.plan import Place
from sim.replay.waits import Waits

__all__ = ["RequestStream"]

#: Time in which a frame may be on its way between card and replay, ns.
_ON_THE_WAY = 3_000
#: Time in which the card has gone back: it fetches WQE and payload again, ns.
_REACTION = 20_000


class RequestStream:
    """Compares the card's requests. Times in ns."""

    def __init__(self, place: Place, judge: Judge, waits: Waits):
        self._place, self._judge, self._waits = place, judge, waits
        self._timeout = waits.timeout_ns(place)
        self._mtu = place.connection.mtu
        own = [p for p in place.connection.packets if p.side == place.side]
        self._recorded = [
            (packet, self._offset(packet.psn)) for packet in own if packet.op not in RESPONSES
        ]
        self._first: dict[int, Packet] = {}
        self._goes_back: set[int] = set()  # indices of requests at which the machine goes back
        behind = 0
        for index, (packet, psn) in enumerate(self._recorded):
            self._first.setdefault(psn, packet)
            if psn < behind:
                self._goes_back.add(index)
            behind = psn + self._span(psn)
        self._at = self._due = 0
        self._next = self._high = 0  # PSN that continues; the highest that was sent, and one
        self._knowledge = Knowledge(place.end, self._mtu)
        #: Values that the oldest PSN had, and until when: the card may not have heard of more yet.
        self._before: deque[tuple[float, int]] = deque(maxlen=8)
        #: Until when each response that has come is a reason to go back.
        self._reasons: list[float] = []
        self._since = self._paused = 0.0
        self._ended = False

    # The capture goes on ------------------------------------------------------------------------

    def reach(self) -> None:
        """The capture has reached the next recorded request."""
        self._due += 1

    def hear(self, packet: Packet, now: float) -> None:
        """A response goes to the card."""
        oldest = self._knowledge.oldest
        lost = self._knowledge.take(packet, self._offset(packet.psn))
        if self._knowledge.oldest > oldest:
            self._before.append((now + _REACTION, oldest))
            self._since = now
            self._reasons = [min(until, now + _REACTION) for until in self._reasons]
        if lost:
            self._reasons.append(inf)
        if is_rnr(packet.nak):
            self._paused = now + self._waits.pause_ns(packet.nak)
        if packet.nak in FATAL:
            self.end()

    def end(self) -> None:
        """The QP is in error: it sends nothing more."""
        self._ended = True

    def behind(self) -> Packet | None:
        """The first recorded request that is due and has not come."""
        return self._recorded[self._at][0] if self._at < self._due and not self._ended else None

    def finish(self) -> None:
        """The capture is over."""
        if self._ended:
            self._pass(len(self._recorded))

    # The card sends -----------------------------------------------------------------------------

    def take(self, frame: bytes, fields: Mapping[str, int], latest: int, now: float) -> int:
        """A request of the card; returns the number of the packet it was compared with, or 0."""
        psn = self._offset(fields["psn"])
        back = psn < self._next
        wrong = self._out_of_order(psn, now)
        if wrong:
            self._judge.differs(0, f"PSN {fields['psn']:#x}", wrong, "sent")
        again = psn < self._high
        self._next = psn + self._span(psn)
        self._high = max(self._high, self._next)
        place = self._place_of(psn, back)
        if place is None:
            self._unrecorded(frame, fields, psn, again)
            return 0
        self._pass(place)
        packet, _ = self._recorded[place]
        self._at = place + 1
        found, free = differences(packet, frame)
        free += self._judge.order(packet, latest)
        self._judge.packet(packet, found + self._judge.port(packet.number, frame), free)
        return packet.number

    def _offset(self, psn: int) -> int:
        return after(psn, self._place.end.first_psn)

    def _span(self, psn: int) -> int:
        message = message_at(self._place.end, psn)
        return message.last(self._mtu) - psn + 1 if message is not None and message.read else 1

    def _out_of_order(self, psn: int, now: float) -> str:
        """What should have been instead of this PSN; empty when it may come now."""
        if psn == self._next:
            if psn == self._knowledge.oldest:
                self._since = now  # nothing was outstanding
            return ""
        oldest = {old for until, old in self._before if now < until} | {self._knowledge.oldest}
        if psn not in oldest or psn > self._high:
            first = self._place.end.first_psn
            wanted = sorted({self._next, *oldest})
            return " or ".join(f"{first + one & PSN_MASK:#x}" for one in wanted)
        # A QP that goes on further ahead leaves out what has been acknowledged meanwhile.
        return self._unfounded(psn, now) if psn < self._next else ""

    def _unfounded(self, psn: int, now: float) -> str:
        """What speaks against going back to this PSN; empty when nothing does."""
        timed_out = self._timeout and now - self._since >= self._timeout - _ON_THE_WAY
        if now < self._paused - _ON_THE_WAY:
            return "a pause"
        self._reasons = [until for until in self._reasons if now < until]
        if not (self._reasons or timed_out):
            return "no reason to go back"
        message = message_at(self._place.end, psn)
        if message is not None and message.failure and self._at == len(self._recorded):
            return "no further try"
        self._reasons, self._since = self._reasons[1:], now
        return ""

    def _place_of(self, psn: int, back: bool) -> int | None:
        """Index of the recorded request that this one is; None when there is none."""
        if self._at < len(self._recorded) and self._recorded[self._at][1] == psn:
            return self._at
        if back:
            places = range(self._at, len(self._recorded))
            place = next((one for one in places if one in self._goes_back), None)
            if place is not None and self._recorded[place][1] == psn:
                return place
        return None

    def _pass(self, place: int) -> None:
        """The card has gone back before it had sent these, or its QP has ended."""
        for packet, _ in self._recorded[self._at : place]:
            self._judge.packet(packet, [], ["packets behind a loss"])
        self._at = max(self._at, place)

    def _unrecorded(self, frame: bytes, fields: Mapping[str, int], psn: int, again: bool) -> None:
        """A request that is not recorded here: elsewhere it is, or the capture ends before it."""
        packet = self._like(psn)
        if packet is None:
            cut = self._place.end.messages and not self._place.end.messages[-1].whole
            if not cut or self._place.end.messages[-1].read:
                op = Op(fields["opcode"] & 0x1F).name
                what = f"extra packet {op}, PSN {fields['psn']:#x}"
                self._judge.differs(0, what, None, "one")
            return
        found = differences(packet, frame)[0] + self._judge.port(packet.number, frame)
        following = self._recorded[self._at][1] if self._at < len(self._recorded) else -1
        if again:
            what = "sent again"
        elif following > psn:
            what = "lost before the capture"
        else:
            what = "packets behind a loss"
        self._judge.unrecorded(what, found)

    def _like(self, psn: int) -> Packet | None:
        """A request as it is recorded elsewhere; the rest of a READ as it would be."""
        if psn in self._first:
            return self._first[psn]
        message = message_at(self._place.end, psn)
        if message is None or not message.read or psn > message.last(self._mtu):
            return None
        packet, done = message.packets[0], (psn - message.psn) * self._mtu
        rest = {
            "psn": packet.psn + psn - message.psn & PSN_MASK,
            "va": message.va + done,
            "dma_length": message.length - done,
        }
        return replace(packet, parts=replace(packet.parts, fields={**packet.parts.fields, **rest}))
