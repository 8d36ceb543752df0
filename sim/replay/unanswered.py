"""What services without answers have in common (UC, UD).

Nobody sends again, and nobody says what has come. What a machine has sent follows from its PSNs,
whatever order the capture has them in. What has reached a machine is taken to be what the capture
has, in its order.
"""

from __future__ import annotations

from sim.replay.assembly import alike
from sim.replay.capture import Packet, numbers_text
from sim.replay.exchange import Exchange
from sim.replay.messages import Message, Unsuitable
from sim.replay.pairing import after

__all__ = ["Unanswered"]

#: PSNs in a row that a capture may lack: a card sends as many packets that nobody looks at.
_MOST_MISSING = 1024


class Unanswered(Exchange):
    """Packets that nobody answers."""

    def _read(self) -> None:
        self._copies: set[int] = set()  # numbers of packets that the network has made
        self._incoming: list[list[Message]] = [[] for _ in self.ends]
        self._receives: list[list[Message]] = [[] for _ in self.ends]
        for side, end in enumerate(self.ends):
            self._number(side)
            self._send(side)
            for message in end.messages:
                message.acknowledged = True  # a request is complete when it has been sent
        if not any(end.messages for end in self.ends):
            raise Unsuitable("no message that begins in the capture")
        for side in range(len(self.ends)):
            self._receive(side)

    def _send(self, side: int) -> None:
        """Find the messages that an end has sent."""
        raise NotImplementedError

    def _receive(self, side: int) -> None:
        """Find the messages that have reached an end, and the receives that they have taken."""
        raise NotImplementedError

    def sent(self, side: int) -> list[Packet]:
        """The packets that a card in the place of an end must send: no copies of the network."""
        return [p for p in self.packets if p.side == side and p.number not in self._copies]

    def incoming(self, side: int) -> list[Message]:
        """The messages that have begun to come to an end, in the order of the capture."""
        return self._incoming[side]

    def receives(self, side: int) -> list[Message]:
        """Those of them that have a receive for themselves."""
        return self._receives[side]

    def offset(self, packet: Packet) -> int:
        """A packet's PSN, counted from the first one of the end that has sent it."""
        return after(packet.psn, self.ends[packet.side].first_psn)

    def _to(self, side: int) -> list[Packet]:
        return [packet for packet in self.packets if packet.target == side]

    def _number(self, side: int) -> None:
        """Take the packets of an end that are numbered on; what is not is of a QP made anew."""
        own = [packet for packet in self.packets if packet.side == side]
        seen: dict[int, Packet] = {}
        copies: list[Packet] = []
        for at, packet in enumerate(own):
            first = seen.setdefault(packet.psn, packet)
            if at and abs(after(packet.psn, own[at - 1].psn)) > _MOST_MISSING:
                why = f"PSN {packet.psn:#x} is far from {own[at - 1].psn:#x}"
            elif not alike(first, packet):
                why = f"PSN {packet.psn:#x} again, with something else"
            else:
                copies += [packet] * (first is not packet)
                continue
            self._leave_out(own[at:], f"of {self.ends[side]}: {why}")
            break
        self._copies |= {packet.number for packet in copies}
        self._remark("a copy that the network has made", copies)

    def _lacks(self, side: int, psns: list[int]) -> None:
        """Say how many packets of an end are missing in the capture, of all with these PSNs."""
        offsets = {after(psn, psns[0]) for psn in psns} if psns else {0}
        there = max(offsets) - min(offsets) + 1
        if there > len(offsets):
            found = f"{there - len(offsets)} of {there} packets of {self.ends[side]}"
            self.remarks.append(f"{found} are not in the capture: their PSNs are missing")

    def _remark(self, text: str, packets: list[Packet]) -> None:
        """Something about packets that are replayed."""
        if packets:
            numbers = numbers_text(packet.number for packet in packets)
            self.remarks.append(f"{numbers}: {text}")
