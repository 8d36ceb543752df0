"""What a capture says of datagrams: UD, and QP1 with the MADs of connection managers.

A datagram names both QPs and goes where its work request says (IBTA vol 1, 9.8.3). QPs that have
talked to one another, directly or through others, are one exchange with as many ends.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hdl.abi.enums import WrOpcode
from hdl.abi.virtio_rdma import GSI_QKEY
from hdl.wire.opcodes import Transport
from sim.guest.cm.gsi import GSI_QPN
from sim.replay.assembly import at_packet, extend, message_of
from sim.replay.capture import Packet
from sim.replay.messages import End, Message
from sim.replay.pairing import MTUS, after
from sim.replay.unanswered import Unanswered
from sim.wire.packets import grh_area

__all__ = ["Datagrams", "conversations"]

_Name = tuple[bytes, int]  # of a QP: address and number
#: A Q_Key with this bit in a work request stands for the QP's own (IBTA vol 1, 10.2.5).
_PRIVILEGED = 1 << 31


def conversations(packets: list[Packet]) -> list[Datagrams]:
    """The datagrams of a capture by the QPs that talk to one another."""
    groups: dict[_Name, list[_Name]] = {}
    for packet in packets:
        one, other = (groups.setdefault(name, [name]) for name in _names(packet))
        if one is not other:
            one += other
            groups |= dict.fromkeys(other, one)
    found: dict[int, list[Packet]] = {}
    for packet in packets:
        found.setdefault(id(groups[_names(packet)[0]]), []).append(packet)
    return [Datagrams(some) for some in found.values()]


def _names(packet: Packet) -> tuple[_Name, _Name]:
    """The QP that has sent a datagram, and the one that it goes to."""
    fields, path = packet.parts.fields, packet.parts.path
    return (fields["src_gid"], fields["src_qp"]), (path["dst_gid"], fields["dest_qp"])


class Datagrams(Unanswered):
    """All that some QPs have sent to one another."""

    service = Transport.UD

    def __init__(self, packets: list[Packet]):
        names = list(dict.fromkeys(name for packet in packets for name in _names(packet)))
        for packet in packets:
            packet.side, packet.target = (names.index(name) for name in _names(packet))
        super().__init__(tuple(End(gid, qpn) for gid, qpn in names), packets)

    def _read(self) -> None:
        for packet in self.packets:
            if (size := len(packet.parts.payload)) > MTUS[-1]:
                raise at_packet(packet, f"a datagram of {size} bytes")
        super()._read()
        for side in range(len(self.ends)):
            self._path(side)

    def _send(self, side: int) -> None:
        """A message for each PSN; one without packets for a datagram that is not recorded."""
        end, own = self.ends[side], self.sent(side)
        if not own:
            return
        base = own[0].psn
        self._lacks(side, [packet.psn for packet in own])
        own.sort(key=lambda packet: after(packet.psn, base))
        end.first_psn = own[0].psn
        for packet in own:
            at = len(end.messages)
            for psn in range(at, self.offset(packet)):
                end.messages.append(Message(WrOpcode.SEND, psn, route=packet))
            end.messages.append(_message(packet, self.offset(packet)))

    def _receive(self, side: int) -> None:
        end, packets = self.ends[side], self._to(side)
        end.qkey = self._qkey(side)
        for packet in packets:
            if packet.parts.fields["qkey"] == end.qkey:
                message = _message(packet, len(self._incoming[side]))
                message.kept, message.received = 1, True
                message.prefix = grh_area(packet.frame)
                self._incoming[side].append(message)
        others = [packet for packet in packets if packet.parts.fields["qkey"] != end.qkey]
        self._remark(f"not the Q_Key {end.qkey:#x} of {end}, which must drop it", others)
        self._receives[side] = self._incoming[side]

    def _qkey(self, side: int) -> int:
        """The Q_Key of an end: the one that most datagrams to it have, or that it sends."""
        end = self.ends[side]
        sent = [packet.parts.fields["qkey"] for packet in self.sent(side)]
        got = Counter(packet.parts.fields["qkey"] for packet in self._to(side))
        found = max(sent, default=0)
        if end.qpn == GSI_QPN:
            found = GSI_QKEY
        elif got:
            found = got.most_common(1)[0][0]
        for qkey in sent:
            if qkey & _PRIVILEGED and qkey != found:
                self.refusals[side] = f"it sends with the Q_Key {qkey:#x}, and has {found:#x}"
        if end.qpn == GSI_QPN and any(qkey != found for qkey in sent):
            self.refusals[side] = f"QP1 sends with the Q_Key {found:#x} only"
        return found


def _message(packet: Packet, psn: int) -> Message:
    message = message_of(packet, psn)
    extend(message, packet)
    message.length, message.route = len(message.data), replace(packet)
    return message
