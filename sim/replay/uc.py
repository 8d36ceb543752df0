"""What a capture says of one UC connection (IBTA vol 1, 9.8.2)."""

from __future__ import annotations

from hdl.abi.enums import WrOpcode
from hdl.wire.opcodes import Transport
from sim.replay.assembly import BEGIN, FULL, WRITES, Assembly, at_packet, extend, message_of
from sim.replay.capture import Packet
from sim.replay.exchange import ends_of
from sim.replay.messages import Message
from sim.replay.pairing import PSN_MASK, Flow
from sim.replay.unanswered import Unanswered

__all__ = ["UnreliableConnection"]


class UnreliableConnection(Unanswered):
    """Two flows of a capture as one connection, or one flow; end 0 sent its first packet."""

    service = Transport.UC

    def __init__(self, one: Flow, other: Flow | None, mtu: int | None = None):
        super().__init__(*ends_of(one, other), mtu)

    def _read(self) -> None:
        super()._read()
        for side in (0, 1):
            self._connected_path(side)

    def _send(self, side: int) -> None:
        own = [packet for packet in self.packets if packet.side == side]
        found = _Sent(self.ends[side], own, self.mtu)
        self._leave_out(found.early, "of a message that began before the capture")
        self._lacks(side, [packet.psn for packet in self.sent(side)])

    def _receive(self, side: int) -> None:
        self._incoming[side] = _arrived(self._to(side))
        self._receives[side] = _with_receives(self._incoming[side])


class _Sent(Assembly):
    """The messages of one end, with packets of no known content where the capture has none.

    A message that the gap may end, ends there: what comes behind it begins one.
    """

    fills = True

    def _fill(
        self, current: Message | None, expected: int, offset: int, packet: Packet
    ) -> Message | None:
        count, goes_on, writes = offset - expected, packet.op not in BEGIN, packet.op in WRITES
        if current is not None:
            room = count + 1  # packets that it may have before it ends
            if current.writes and current.length:
                room = current.count(self._mtu) - (expected - current.psn)
            if goes_on and writes == current.writes and count < room:
                current.data += bytes(count * self._mtu)
                return current
            used = min(room, count - goes_on)
            if used < 1 or (current.length and used < room):
                raise at_packet(packet, f"{packet.name} behind {count} missing packets")
            self._close(current, used)
            count -= used
        if not count:
            return None
        kind = WrOpcode.RDMA_WRITE if goes_on and writes else WrOpcode.SEND
        message = Message(kind, offset - count)
        self._end.messages.append(message)
        if goes_on:
            message.data += bytes(count * self._mtu)
            return message
        self._close(message, count)
        return None

    def _close(self, message: Message, count: int) -> None:
        """A message ends with ``count`` packets that the capture does not have."""
        size = message.length - len(message.data) if message.length else 0
        message.data += bytes(size or (count - 1) * self._mtu + 1)
        message.length = len(message.data)

    def _check_length(self, message: Message) -> None:
        if self._headless(message):
            message.length = len(message.data)
        super()._check_length(message)

    def _open(self, message: Message) -> None:
        if self._headless(message):
            message.length = len(message.data) + 1
        super()._open(message)

    def _headless(self, message: Message) -> bool:
        """Whether the RETH of a WRITE is missing."""
        return message.writes and not (message.packets and message.packets[0].op in BEGIN)


def _arrived(packets: list[Packet]) -> list[Message]:
    """The messages that begin to come with packets in this order. What does not go on with the next
    PSN is broken off, and the rest of it is dropped up to the next beginning (9.8.2.2).
    """
    found: list[Message] = []
    current: Message | None = None
    expected = 0
    for packet in packets:
        if packet.op in BEGIN:
            current = message_of(packet, len(found))
            current.whole = False
            found.append(current)
        elif current is None or packet.psn != expected or (packet.op in WRITES) != current.writes:
            current = None
            continue
        extend(current, packet)
        current.kept += 1
        expected = packet.psn + 1 & PSN_MASK
        if packet.op not in FULL:
            current.whole = current.received = True
            current = None
    for message in found:
        if not message.writes:
            message.length = len(message.data)
    return found


def _with_receives(messages: list[Message]) -> list[Message]:
    """Those with a receive of their own: a SEND that is broken off leaves its one to the next."""
    found: list[Message] = []
    broken: list[Message] = []
    for message in messages:
        if message.takes_receive and message.received:
            _share(broken, message)
            found.append(message)
            broken = []
        elif message.takes_receive:
            broken.append(message)
    if broken:
        _share(broken[:-1], broken[-1])
        found.append(broken[-1])
    return found


def _share(broken: list[Message], taker: Message) -> None:
    for message in broken:
        message.shares = taker
        taker.least = max(taker.least, len(message.data))
