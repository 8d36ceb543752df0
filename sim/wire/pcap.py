"""Captures: frames with their time stamps in ns, out of pcap and pcapng files."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Record", "read_capture", "read_pcap", "write_pcap"]

_MICRO, _NANO, _NG = 0xA1B2C3D4, 0xA1B23C4D, 0x0A0D0D0A
_ETHERNET = 1
#: Link types that recordings of "any" interface and tunnels have, for messages.
_LINKS = {0: "BSD loopback", 101: "raw IP", 113: "Linux cooked", 276: "Linux cooked v2"}
#: What captures are often packed with, for messages.
_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz"}
#: Blocks of pcapng, and the options of an interface that matter here.
_INTERFACE, _OBSOLETE, _SIMPLE, _ENHANCED = 1, 2, 3, 6
_RESOLUTION, _OFFSET = 9, 14


@dataclass(frozen=True)
class Record:
    """One frame of a capture, without FCS unless the file has it.

    ``number`` counts from 1 as Wireshark does; ``time`` in ns; ``length`` is what the frame had on
    the wire: more than ``frame`` holds when the capture cut it.
    """

    number: int
    time: int
    frame: bytes
    length: int

    @property
    def cut(self) -> bool:
        """Whether the capture kept only a part."""
        return len(self.frame) < self.length


def read_capture(path: Path | str) -> list[Record]:
    """All frames of a pcap (either byte order, us or ns) or pcapng file.

    Raises ValueError with one line for a file that is neither, that ends inside a record, or whose
    frames are not Ethernet; OSError when it cannot be read.
    """
    raw = Path(path).read_bytes()
    if len(raw) < 24:
        raise ValueError(f"{path}: no capture: {len(raw)} bytes")
    frames = _blocks(path, raw) if raw[:4] == _NG.to_bytes(4, "big") else _records(path, raw)
    return [Record(number, *one) for number, one in enumerate(frames, 1)]


def read_pcap(path: Path | str) -> Iterator[tuple[int, bytes]]:
    """Yield (time stamp in ns, frame); errors as with ``read_capture``."""
    for record in read_capture(path):
        yield record.time, record.frame


def _check_link(path: Path | str, link: int) -> None:
    if link != _ETHERNET:
        name = f" ({_LINKS[link]})" if link in _LINKS else ""
        raise ValueError(f"{path}: link type {link}{name} is not Ethernet")


def _records(path: Path | str, raw: bytes) -> Iterator[tuple[int, bytes, int]]:
    """(time, frame, length) of a classic file."""
    for order in "<>":
        magic, _, _, _, _, link = struct.unpack_from(f"{order}IIIIII", raw)
        if magic in (_MICRO, _NANO):
            break
    else:
        names = [f" ({name})" for begin, name in _PACKED.items() if raw.startswith(begin)]
        raise ValueError(f"{path}: no capture: magic {raw[:4].hex()}{''.join(names)}")
    _check_link(path, link & 0xFFFF)
    unit = 1 if magic == _NANO else 1000
    place = 24
    while place < len(raw):
        if place + 16 > len(raw):
            raise ValueError(f"{path}: truncated: cut record at byte {place}")
        seconds, fraction, size, length = struct.unpack_from(f"{order}IIII", raw, place)
        place += 16
        if place + size > len(raw):
            raise ValueError(f"{path}: truncated: cut frame at byte {place}")
        yield seconds * 10**9 + fraction * unit, raw[place : place + size], length
        place += size


@dataclass
class _Interface:
    """What a pcapng file says of one interface: link type, snap length, ticks."""

    link: int
    snap: int
    per_second: int = 10**6
    offset: int = 0  # seconds

    def time(self, high: int, low: int) -> int:
        """Time stamp in ns."""
        return self.offset * 10**9 + (high << 32 | low) * 10**9 // self.per_second


def _blocks(path: Path | str, raw: bytes) -> Iterator[tuple[int, bytes, int]]:
    """(time, frame, length) of a pcapng file (draft-ietf-opsawg-pcapng)."""
    place, order = 0, "<"
    interfaces: list[_Interface] = []
    while place < len(raw):
        if place + 12 > len(raw):
            raise ValueError(f"{path}: truncated: cut block at byte {place}")
        if raw[place : place + 4] == _NG.to_bytes(4, "big"):
            order = "<" if raw[place + 8 : place + 12] == b"\x4d\x3c\x2b\x1a" else ">"
            interfaces = []
        kind, size = struct.unpack_from(f"{order}II", raw, place)
        if size < 12 or size % 4 or place + size > len(raw):
            raise ValueError(f"{path}: truncated: cut block at byte {place}")
        body = raw[place + 8 : place + size - 4]
        try:
            if kind == _INTERFACE:
                interfaces.append(_interface(order, body))
            elif kind in (_OBSOLETE, _SIMPLE, _ENHANCED):
                yield _packet(path, order, kind, body, interfaces)
        except (struct.error, IndexError):
            raise ValueError(f"{path}: broken block at byte {place}") from None
        place += size


def _interface(order: str, body: bytes) -> _Interface:
    link, _, snap = struct.unpack_from(f"{order}HHI", body)
    found = _Interface(link, snap)
    place = 8
    while place + 4 <= len(body):
        code, size = struct.unpack_from(f"{order}HH", body, place)
        value = body[place + 4 : place + 4 + size]
        if code == 0:
            break
        if code == _RESOLUTION:
            found.per_second = (2 if value[0] & 0x80 else 10) ** (value[0] & 0x7F)
        elif code == _OFFSET:
            (found.offset,) = struct.unpack(f"{order}q", value)
        place += 4 + size + -size % 4
    return found


def _packet(
    path: Path | str, order: str, kind: int, body: bytes, interfaces: list[_Interface]
) -> tuple[int, bytes, int]:
    if kind == _SIMPLE:
        (length,) = struct.unpack_from(f"{order}I", body)
        interface, high, low, head = interfaces[0], 0, 0, 4
        size = min(length, interface.snap or length)
    else:
        form = "I" if kind == _ENHANCED else "HH"
        number, *_ = struct.unpack_from(f"{order}{form}", body)
        high, low, size, length = struct.unpack_from(f"{order}IIII", body, 4)
        interface, head = interfaces[number], 20
    _check_link(path, interface.link)
    if head + size > len(body):
        raise IndexError("The frame is longer than its block")
    return interface.time(high, low), body[head : head + size], length


def write_pcap(path: Path | str, frames: list[tuple[int, bytes]]) -> None:
    """Write frames with their time stamps in ns as a nanosecond pcap file."""
    parts = [struct.pack("<IHHIIII", _NANO, 2, 4, 0, 0, 65535, _ETHERNET)]
    for time, frame in frames:
        parts.append(struct.pack("<IIII", time // 10**9, time % 10**9, len(frame), len(frame)))
        parts.append(bytes(frame))
    Path(path).write_bytes(b"".join(parts))
