"""Captures as pcapng files: frames of several interfaces, with comments.

Spec: draft-ietf-opsawg-pcapng: section header, interface description and enhanced packet blocks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["INBOUND", "OUTBOUND", "Interface", "Packet", "pcapng"]

#: Directions, in the flags of a packet.
INBOUND, OUTBOUND = 1, 2
_SECTION, _INTERFACE, _ENHANCED = 0x0A0D0D0A, 1, 6
_ORDER, _VERSION, _UNKNOWN_LENGTH = 0x1A2B3C4D, (1, 0), -1
_ETHERNET = 1
#: Options: of every block, of a section, of an interface, of a packet.
_END, _COMMENT = 0, 1
_APPLICATION = 4
_NAME, _DESCRIPTION, _RESOLUTION = 2, 3, 9
_FLAGS = 2


@dataclass(frozen=True)
class Interface:
    """Where frames were seen. ``snap``: the most bytes of a frame that are there, 0: all."""

    name: str
    description: str = ""
    snap: int = 0


@dataclass(frozen=True)
class Packet:
    """A frame: number of its interface, time in ns since 1970, bytes that are there and those that
    it had, direction, a comment if there is one."""

    interface: int
    time: int
    octets: bytes
    length: int
    direction: int = 0
    comment: str = ""


def _padded(octets: bytes) -> bytes:
    return octets + bytes(-len(octets) % 4)


def _options(*options: tuple[int, bytes]) -> bytes:
    """Options that have a value, and their end."""
    given = [(code, value) for code, value in options if value]
    made = b"".join(struct.pack("<HH", code, len(value)) + _padded(value) for code, value in given)
    return made + struct.pack("<HH", _END, 0) if given else b""


def _block(kind: int, body: bytes) -> bytes:
    size = struct.pack("<I", 12 + len(body))
    return struct.pack("<I", kind) + size + body + size


def pcapng(application: str, interfaces: Sequence[Interface], packets: Iterable[Packet]) -> bytes:
    """The file's contents. application: name and version of what has made it."""
    section = struct.pack("<IHHq", _ORDER, *_VERSION, _UNKNOWN_LENGTH)
    blocks = [_block(_SECTION, section + _options((_APPLICATION, application.encode())))]
    for one in interfaces:
        options = _options(
            (_NAME, one.name.encode()),
            (_DESCRIPTION, one.description.encode()),
            (_RESOLUTION, bytes([9])),  # ns
        )
        blocks.append(_block(_INTERFACE, struct.pack("<HHI", _ETHERNET, 0, one.snap) + options))
    for packet in packets:
        head = struct.pack(
            "<IIIII",
            packet.interface,
            packet.time >> 32,
            packet.time & 0xFFFF_FFFF,
            len(packet.octets),
            packet.length,
        )
        flags = struct.pack("<I", packet.direction) if packet.direction else b""
        options = _options((_FLAGS, flags), (_COMMENT, packet.comment.encode()))
        blocks.append(_block(_ENHANCED, head + _padded(packet.octets) + options))
    return b"".join(blocks)
