"""The packets that open and close a connection of DC: values, and their bytes behind the BTH."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, ClassVar

from hdl.wire.headers import Header
from hdl.wire.opcodes import DC_CONTROL, DcControl, Operation, Transport

__all__ = [
    "KEEPS",
    "LEAST_KEEP",
    "VERSION",
    "CloseRequest",
    "Connect",
    "ControlPacket",
    "Disconnect",
    "DisconnectAck",
    "EndStatus",
    "Nak",
    "Reply",
    "ReplyStatus",
    "keep_ns",
    "parse",
]

#: Of the protocol.
VERSION = 1
#: Opcode of an answer: the class of DC, and ACKNOWLEDGE.
DC_ACKNOWLEDGE = Transport.DC << 5 | Operation.ACKNOWLEDGE
#: Codes of the keep time that a CONNECT may name, and the least one that an initiator asks for.
KEEPS = range(10, 32)
LEAST_KEEP = 20


class ReplyStatus(IntEnum):
    """What becomes of a CONNECT."""

    ACCEPTED = 0
    REFUSED = 1  # number, key or state of the target
    BUSY = 2  # no context is free: try again
    IMPOSSIBLE = 3  # version or path MTU


class EndStatus(IntEnum):
    """What a DISCONNECT has found."""

    CLOSED = 0
    UNKNOWN = 1  # there is no such connection


def keep_ns(code: int) -> int:
    """The keep time of a code, ns."""
    return 4096 << code


@dataclass(frozen=True)
class ControlPacket:
    """``dest``: destination QPN, ``psn``: of the BTH. All else lies in the header behind it."""

    OPCODE: ClassVar[int]
    #: Whether the BTH asks for an answer.
    ASKS: ClassVar[bool] = False

    dest: int
    psn: int

    @classmethod
    def header(cls) -> Header:
        """The layout of what lies behind the BTH."""
        (found,) = DC_CONTROL[cls.OPCODE].headers
        return found

    def values(self) -> dict[str, int]:
        """The fields of its header."""
        return {
            one.name: int(getattr(self, one.name))
            for one in fields(self)
            if one.name not in ("dest", "psn")
        }

    def pack(self) -> bytes:
        """The bytes behind the BTH; ValueError for a value that does not fit."""
        return self.header().pack(self.values())


@dataclass(frozen=True)
class Connect(ControlPacket):
    """To the number of a target. ``channel``: the initiator's number; ``depth``: READs and atomics
    that it wants to have outstanding; ``keep``: a code of ``KEEPS``."""

    OPCODE = DcControl.CONNECT
    ASKS = True

    mtu: int
    depth: int
    channel: int
    key: int
    nonce: int
    keep: int
    version: int = VERSION


@dataclass(frozen=True)
class Reply(ControlPacket):
    """To the channel. ``context``, ``depth`` and ``keep``: what is granted; ``rnr_timer``: code of
    the time to wait if it is busy."""

    OPCODE = DcControl.CONNECT_REPLY

    nonce: int
    status: int = ReplyStatus.ACCEPTED
    rnr_timer: int = 0
    depth: int = 0
    context: int = 0
    keep: int = 0
    version: int = VERSION


@dataclass(frozen=True)
class Disconnect(ControlPacket):
    """To the context, when all is answered; ``number`` is the channel's."""

    OPCODE = DcControl.DISCONNECT
    ASKS = True

    number: int
    nonce: int
    status: int = 0
    version: int = VERSION


@dataclass(frozen=True)
class DisconnectAck(ControlPacket):
    """To the channel; ``number`` is the context's."""

    OPCODE = DcControl.DISCONNECT_ACK

    number: int
    nonce: int
    status: int = EndStatus.CLOSED
    version: int = VERSION


@dataclass(frozen=True)
class CloseRequest(ControlPacket):
    """To the channel: the target is short of contexts. A hint, which is not sent again."""

    OPCODE = DcControl.CLOSE_REQUEST

    number: int
    nonce: int
    status: int = 0
    version: int = VERSION


@dataclass(frozen=True)
class Nak(ControlPacket):
    """To the channel: what a context that has failed answers. It is no packet of a connection by
    its opcode, and only goes out."""

    OPCODE = DC_ACKNOWLEDGE

    syndrome: int
    msn: int

    def pack(self) -> bytes:
        """As ``Connections`` takes an AETH: in the places of other packets' bytes."""
        return bytes(20) + self.msn.to_bytes(3, "little") + bytes((self.syndrome, 0))


_KINDS: dict[int, type[ControlPacket]] = {
    kind.OPCODE: kind for kind in (Connect, Reply, Disconnect, DisconnectAck, CloseRequest)
}


def parse(opcode: int, dest: int, psn: int, data: bytes) -> ControlPacket | None:
    """The packet with ``data`` behind its BTH; None for one of another protocol version, which is
    dropped. A CONNECT is kept, as it is answered. Reserved fields are ignored.

    KeyError for an opcode of no control packet, ValueError for too few bytes.
    """
    kind = _KINDS[opcode]
    values: dict[str, Any] = kind.header().unpack(data)
    names = {one.name for one in fields(kind)}
    found = kind(dest=dest, psn=psn, **{name: v for name, v in values.items() if name in names})
    return found if kind is Connect or values["version"] == VERSION else None
