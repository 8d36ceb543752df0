"""What one end of a connection asks for: its QP, its addresses, its work requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv6Address

from hdl.abi.enums import WrOpcode
from hdl.abi.operations import WORK_REQUESTS
from hdl.wire.opcodes import Kind
from sim.tools.replay.capture import Packet

__all__ = ["End", "Message", "Unsuitable", "address"]


class Unsuitable(ValueError):
    """A connection in which a card cannot take part; the text says why."""


def address(gid: bytes) -> str:
    """The IP address of a GID."""
    if gid[:12] == bytes(10) + b"\xff\xff":
        return ".".join(str(byte) for byte in gid[12:])
    return str(IPv6Address(gid))


@dataclass
class Message:
    """One work request as its packets show it.

    ``psn`` counts from its side's first message. ``whole``: all of its data is in the capture;
    ``acknowledged``: the capture shows that it was completed.
    """

    opcode: WrOpcode
    psn: int
    packets: list[Packet] = field(default_factory=list)
    length: int = 0
    data: bytearray = field(default_factory=bytearray)
    va: int = 0
    rkey: int = 0
    imm: bytes = bytes(4)
    solicited: bool = False
    whole: bool = True
    acknowledged: bool = False

    @property
    def read(self) -> bool:
        """Whether it is a READ."""
        return WORK_REQUESTS[self.opcode].data

    @property
    def writes(self) -> bool:
        """Whether it writes to the other side's memory by address."""
        return WORK_REQUESTS[self.opcode].kind is Kind.WRITE

    @property
    def takes_receive(self) -> bool:
        """Whether it takes a receive WQE."""
        return WORK_REQUESTS[self.opcode].receive

    def count(self, mtu: int) -> int:
        """PSNs it takes."""
        return max(1, -(-self.length // mtu))


@dataclass
class End:
    """One end of a connection: its QP, where it is, what it asked for.

    ``next_hop``: MAC address that its packets go to: the other end's, or a router's.
    ``first_psn``: PSN of its first message. ``first_msn``: MSN before the first message to it.
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

    @property
    def address(self) -> str:
        """IP address as text."""
        return address(self.gid)

    def __str__(self) -> str:
        return f"{self.address} QP {self.qpn:#x}"
