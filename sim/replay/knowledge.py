"""What a requester knows: the oldest of its PSNs that nobody has acknowledged, for all it has seen.

IBTA vol 1, 9.7.5.1, 9.7.6.1: one response acknowledges all before it, except that a READ is
complete only with its data. A response behind missing data says that it is lost (implied NAK).
"""

from __future__ import annotations

from hdl.wire.opcodes import Operation as Op
from sim.replay.assembly import message_at
from sim.replay.capture import Packet
from sim.replay.messages import End
from sim.replay.pairing import RESPONSES

__all__ = ["Knowledge"]


class Knowledge:
    """Of ``end``; PSNs count from its first message. ``oldest`` is not acknowledged yet."""

    def __init__(self, end: End, mtu: int):
        self._end, self._mtu = end, mtu
        self.oldest = 0

    def after(self, packet: Packet, psn: int) -> tuple[int, bool]:
        """``oldest`` once a response has come, and whether it says that something is lost."""
        if packet.op not in RESPONSES:
            raise ValueError(f"{packet.name} is no response")
        if packet.op != Op.ACKNOWLEDGE:
            reached = self._up_to(psn)
            return (psn + 1, False) if reached == psn else (reached, psn > reached)
        target = psn if packet.nak else psn + 1
        reached = self._up_to(target)
        return reached, (bool(packet.nak) and target >= self.oldest) or reached < target

    def take(self, packet: Packet, psn: int) -> bool:
        """A response has come; whether it says that something is lost, or not welcome."""
        self.oldest, lost = self.after(packet, psn)
        return lost

    def _up_to(self, target: int) -> int:
        """How far an acknowledgement of everything before ``target`` gets: to a READ's data."""
        at = self.oldest
        while at < target:
            message = message_at(self._end, at)
            if message is None or message.read:
                break
            at = min(target, message.last(self._mtu) + 1)
        return at
