"""What the packets of one connection have in common, whatever their service is.

The packets that are replayed, those that are left out with the reason, and the path of each end.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property

from hdl.wire.opcodes import Operation as Op
from hdl.wire.opcodes import Transport
from sim.replay.assembly import FULL, at_packet
from sim.replay.capture import LeftOut, Packet
from sim.replay.messages import End, Message, Unsuitable
from sim.replay.pairing import MTUS, Flow

__all__ = ["CE", "Exchange", "ends_of"]

#: The one entry of a card's partition key table.
_PKEY = 0xFFFF
#: Time in which a bridge hands a frame on, at most.
_COPY_NS = 100_000
#: Congestion experienced: the low bits of the traffic class.
CE = 3


def ends_of(one: Flow, other: Flow | None) -> tuple[tuple[End, End], list[Packet]]:
    """The two ends of a connection, and its packets; the flow that begins first comes from end 0.

    Without ``other`` the QP number of end 0 is not known: it is 0 then.
    """
    packets = []
    for side, flow in enumerate((one, other)):
        for packet in flow.packets if flow else ():
            packet.side, packet.target = side, 1 - side
            packets.append(packet)
    return (End(one.source, other.qpn if other else 0), End(one.destination, one.qpn)), packets


class Exchange:
    """Packets that QPs have sent to one another; a subclass knows what they say.

    ``reason`` is empty when a card can take part. ``packets`` are those that are replayed,
    ``notes`` say which are left out, and ``remarks`` what is special about some that are not.
    ``lost``: numbers of those that have not reached the other end; ``again``: packets that have
    reached it late or once more, by the number of the packet before which they did; ``late``:
    responses that have reached it behind a request, by its number. ``refusals``: for each end why
    no card can have its place, empty if one can. ``retries``: how often each end has gone back.
    ``first``: number of its first packet.
    """

    service: Transport

    def __init__(self, ends: tuple[End, ...], packets: list[Packet], mtu: int | None = None):
        self.number = 0  # of the connection in its capture; the plan counts them
        self.ends = ends
        self.packets = sorted(packets, key=lambda packet: packet.number)
        self.first = self.packets[0].number
        self.stated_mtu = mtu
        self.reason = ""
        self.notes: list[LeftOut] = []
        self.remarks: list[str] = []
        self.lost: set[int] = set()
        self.again: dict[int, list[Packet]] = {}
        self.late: dict[int, list[Packet]] = {}
        self.refusals = [""] * len(ends)
        self.retries = [0] * len(ends)
        try:
            self._without_copies()
            for packet in self.packets:
                if packet.flaw:
                    raise at_packet(packet, packet.flaw)
            self._read()
        except Unsuitable as error:
            self.reason = str(error)

    def __str__(self) -> str:
        ends = " - ".join(str(end) for end in self.ends)
        return f"connection {self.number} ({ends})"

    def _read(self) -> None:
        """Find out what the packets say. Raises ``Unsuitable``."""
        raise NotImplementedError

    # What an end does and gets ------------------------------------------------------------------

    def sent(self, side: int) -> list[Packet]:
        """The packets that a card in the place of an end must send."""
        return [packet for packet in self.packets if packet.side == side]

    def incoming(self, side: int) -> list[Message]:
        """The messages to an end, as they reach it."""
        raise NotImplementedError

    def receives(self, side: int) -> list[Message]:
        """Those of them that an end has posted a receive for, in the order of the receives."""
        raise NotImplementedError

    def reads(self, side: int) -> int:
        """Most READs of one end that are outstanding at a time."""
        return 0

    def pauses(self, side: int) -> list[int]:
        """The syndromes of the RNR NAKs that an end gets."""
        return []

    # What is left out ---------------------------------------------------------------------------

    def _leave_out(self, packets: list[Packet], reason: str) -> None:
        """Leave packets out of the replay, with a note."""
        if packets:
            gone = {packet.number for packet in packets}
            self.packets = [packet for packet in self.packets if packet.number not in gone]
            self.notes.append(LeftOut(reason, sorted(gone)))

    def _without_copies(self) -> None:
        """A capture on a bridge has every frame twice; then the second ones go.

        They come at once, and before anybody answers: so they have not been sent again.
        """
        counts = Counter(packet.frame for packet in self.packets)
        if len(self.packets) < 2 or set(counts.values()) != {2}:
            return
        first: dict[bytes, Packet] = {}
        copies = []
        newest = [0] * len(self.ends)  # packets of each end
        for packet in self.packets:
            if packet.frame not in first:
                first[packet.frame] = packet
                newest[packet.side] = packet.number
                continue
            copies.append(packet)
            one = first[packet.frame]
            if newest[one.target] > one.number or packet.time - one.time > _COPY_NS:
                return
        self._leave_out(copies, "second copies: every frame was captured twice")

    # Path ---------------------------------------------------------------------------------------

    @cached_property
    def mtu(self) -> int:
        """Path MTU: the payload of any packet that is neither last nor only; else the smallest that
        holds every payload, at least 1024.
        """
        full = {*FULL, Op.READ_RESP_FIRST, Op.READ_RESP_MIDDLE}
        sizes = {len(packet.parts.payload) for packet in self.packets if packet.op in full}
        if self.stated_mtu:
            sizes.add(self.stated_mtu)
        longest = max((len(packet.parts.payload) for packet in self.packets), default=0)
        if not sizes and longest <= MTUS[-1]:
            return next(mtu for mtu in MTUS if mtu >= max(longest, 1024))
        mtu = max(sizes, default=longest)
        if len(sizes) > 1 or mtu not in MTUS or longest > mtu:
            found = ", ".join(str(size) for size in sorted({*sizes, longest}))
            raise Unsuitable(f"payloads of {found} bytes are no path MTU")
        return mtu

    def _path(self, side: int) -> None:
        """What a card has one of, for all that an end sends: MAC address, VLAN, P_Key."""
        end = self.ends[side]
        own = [packet for packet in self.packets if packet.side == side]
        for packet in own:
            fields, path = packet.parts.fields, packet.parts.path
            if fields["pkey"] != _PKEY:
                raise at_packet(packet, f"P_Key {fields['pkey']:#06x} is not the default one")
            now = (fields["src_mac"], path["vlan"])
            if packet is not own[0] and now != (end.mac, end.vlan):
                raise at_packet(packet, f"{end.address} has changed its MAC address or VLAN tag")
            end.mac, end.vlan = now
        if not own:
            path = next((p.parts.path for p in self.packets if p.target == side), {})
            end.mac, end.vlan = path.get("dst_mac", end.mac), path.get("vlan")

    def _connected_path(self, side: int) -> None:
        """The path of a QP that has one for all that it sends."""
        self._path(side)
        end = self.ends[side]
        own = [packet for packet in self.packets if packet.side == side]
        if not own:
            peer = next(packet for packet in self.packets if packet.side != side)
            end.next_hop = peer.parts.fields["src_mac"]
            return
        # A packet that no router has marked shows the traffic class that the QP has.
        plain = next((p for p in own if p.parts.fields["traffic_class"] & 3 != CE), own[0])
        fields, path = plain.parts.fields, plain.parts.path
        end.next_hop, end.priority = path["dst_mac"], path["priority"]
        end.traffic_class, end.flow_label = fields["traffic_class"], path["flow_label"]
        end.hop_limit = fields["hop_limit"]
        for packet in own:
            path = packet.parts.path
            if (path["dst_mac"], path["priority"]) != (end.next_hop, end.priority):
                raise at_packet(packet, f"{end.address} has changed its MAC address or VLAN tag")
