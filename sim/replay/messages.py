"""What one end of a connection asks for: its QP, its addresses, its work requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv6Address

from hdl.abi.enums import WcStatus, WrOpcode
from hdl.abi.operations import WORK_REQUESTS
from hdl.wire.opcodes import ATOMIC_BYTES, Kind
from sim.guest.cm.gsi import GSI_QPN
from sim.replay.capture import Packet

__all__ = ["FATAL", "PSN_SEQUENCE", "End", "Message", "Unsuitable", "address", "is_rnr", "pause"]

#: Syndrome of the NAK for a gap in the PSNs (IBTA vol 1, 9.7.5.2.1).
PSN_SEQUENCE = 0x60
#: Syndrome of a NAK that ends a message -> the status that it ends with.
FATAL = {
    0x61: WcStatus.REM_INV_REQ_ERR,
    0x62: WcStatus.REM_ACCESS_ERR,
    0x63: WcStatus.REM_OP_ERR,
}


def is_rnr(syndrome: int) -> bool:
    """Whether a syndrome says that the receiver is not ready."""
    return syndrome >> 5 == 1


def pause(syndrome: int) -> tuple[int, int]:
    """How long an RNR NAK asks its requester to wait (IBTA vol 1, 9.7.5.2.8): (number of steps,
    exponent of two of a step in us).
    """
    code = (syndrome & 0x1F) or 32
    return 15 if code % 2 and code > 1 else 10, code // 2


class Unsuitable(ValueError):
    """A connection in which a card cannot take part; the text says why."""


def address(gid: bytes) -> str:
    """The IP address of a GID."""
    if gid[:12] == bytes(10) + b"\xff\xff":
        return ".".join(str(byte) for byte in gid[12:])
    return str(IPv6Address(gid))


@dataclass
class Message:
    """One work request as its packets show it, each of them once.

    ``psn`` counts from its side's first message. ``begins`` is the number of its first packet in
    the capture. ``whole``: all of its data is in the capture; ``received``: the other side has
    taken all of it, and ``kept``: how many packets of it; ``refusals``: RNR NAKs that it has met;
    ``refused``: the syndrome of the NAK that has ended it, 0 for none. ``acknowledged``: its own
    side has learned that it is complete, or of ``known`` PSNs of it; ``failure``: that it has
    failed, and how.

    ``invalidates``: the key that it takes from the other side. Of a datagram, ``route`` is a packet
    that shows where it comes from and goes to, and ``prefix`` what stands in front of its data in
    the receive.
    A message that is broken off leaves its receive to the next one: ``shares``, which has room for
    ``least`` bytes then.
    """

    opcode: WrOpcode
    psn: int
    begins: int = 0
    packets: list[Packet] = field(default_factory=list)
    length: int = 0
    data: bytearray = field(default_factory=bytearray)
    va: int = 0
    rkey: int = 0
    swap_add: int = 0
    compare: int = 0
    imm: bytes = bytes(4)
    invalidates: int | None = None
    solicited: bool = False
    whole: bool = True
    received: bool = False
    refusals: int = 0
    refused: int = 0
    kept: int = 0
    acknowledged: bool = False
    known: int = 0
    failure: WcStatus | None = None
    route: Packet | None = None
    prefix: bytes = b""
    shares: Message | None = None
    least: int = 0

    @property
    def read(self) -> bool:
        """Whether it is a READ, or an atomic: data answer it."""
        return WORK_REQUESTS[self.opcode].data

    @property
    def atomic(self) -> bool:
        """Whether it is an atomic; ``data`` is what it has found."""
        return WORK_REQUESTS[self.opcode].kind is Kind.ATOMIC

    @property
    def left(self) -> bytes:
        """What an atomic has made of its word."""
        found = int.from_bytes(self.data, "little")
        if WORK_REQUESTS[self.opcode].compares:
            after = self.swap_add if found == self.compare else found
        else:
            after = found + self.swap_add
        return (after % (1 << 64)).to_bytes(ATOMIC_BYTES, "little")

    @property
    def writes(self) -> bool:
        """Whether it writes to the other side's memory by address."""
        return WORK_REQUESTS[self.opcode].kind is Kind.WRITE

    @property
    def takes_receive(self) -> bool:
        """Whether it takes a receive WQE."""
        return WORK_REQUESTS[self.opcode].receive

    @property
    def taken(self) -> int:
        """Bytes of it that the other side has taken."""
        return sum(len(packet.parts.payload) for packet in self.packets[: self.kept])

    @property
    def receive_size(self) -> int:
        """Bytes of the receive that it took: too few for a SEND that was refused for that."""
        if not self.refused:
            return max(self.least, 0 if self.writes else len(self.prefix) + self.length)
        return self.taken + len(self.packets[self.kept].parts.payload) - 1

    def count(self, mtu: int) -> int:
        """PSNs it takes."""
        return max(1, -(-self.length // mtu))

    def last(self, mtu: int) -> int:
        """Its last PSN, counted as ``psn``."""
        return self.psn + self.count(mtu) - 1

    def receives_at(self, mtu: int) -> int:
        """The PSN of the packet that takes a receive WQE: a SEND's first, a WRITE's last."""
        return self.last(mtu) if self.writes else self.psn


@dataclass
class End:
    """One end of a connection: its QP, where it is, what it asked for.

    ``next_hop``: MAC address that its packets go to: the other end's, or a router's.
    ``first_psn``: PSN of its first message. ``first_msn``: MSN before the first message to it.
    ``goes_back``: whether it sends anything again; ``retry_cnt``, ``rnr_retry``: how often it does
    so before it gives up; ``rnr_timers``: the syndromes of its RNR NAKs. ``qpn`` is 0 if it is
    not known; ``qkey``: the Q_Key of a QP for datagrams.
    """

    gid: bytes
    qpn: int
    mac: bytes = bytes(6)
    next_hop: bytes = bytes(6)
    vlan: int | None = None
    priority: int = 0
    traffic_class: int = 0
    flow_label: int = 0
    hop_limit: int = 64
    first_psn: int = 0
    first_msn: int = 0
    messages: list[Message] = field(default_factory=list)
    goes_back: bool = False
    retry_cnt: int = 7
    rnr_retry: int = 7
    rnr_timers: set[int] = field(default_factory=set)
    qkey: int = 0

    @property
    def stated(self) -> bool:
        """Whether the card's QP must have its number: QP1 has it anyway."""
        return self.qpn not in (0, GSI_QPN)

    @property
    def address(self) -> str:
        """IP address as text."""
        return address(self.gid)

    @property
    def rnr_timer(self) -> int:
        """The code of its RNR NAKs; some one if it sends none."""
        return min(self.rnr_timers, default=12) & 0x1F

    def __str__(self) -> str:
        return f"{self.address} QP {self.qpn:#x}" if self.qpn else f"{self.address} QP unknown"
