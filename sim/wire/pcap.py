"""Captures: frames with their time stamps in ns, out of pcap and pcapng files."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

__all__ = ["Record", "read_capture", "read_pcap", "records", "write_pcap"]

_MICRO, _NANO, _NG = 0xA1B2C3D4, 0xA1B23C4D, 0x0A0D0D0A
_ETHERNET = 1
#: Link types that recordings of "any" interface and tunnels have, for messages.
_LINKS = {0: "BSD loopback", 101: "raw IP", 113: "Linux cooked", 276: "Linux cooked v2"}
#: What captures are often packed with, for messages.
_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz"}
#: Blocks of pcapng, and the options of an interface that matter here.
_INTERFACE, _OBSOLETE, _SIMPLE, _ENHANCED = 1, 2, 3, 6
_RESOLUTION, _OFFSET = 9, 14
#: Bytes that are read at a time, and how often ``say`` is called for a file.
_BUFFER, _TELLS = 1 << 20, 200
#: Longest frame, and longest options beside one: what is longer is no Ethernet.
_LONGEST, _LONGEST_OPTIONS = 1 << 18, 1 << 16


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


def records(path: Path | str, say: Callable[[int, int], None] | None = None) -> Iterator[Record]:
    """Yield each frame of a pcap (either byte order, us or ns) or pcapng file, as it is read.

    Only one frame is in memory at a time. ``say`` is called with the bytes that have been read and
    those of the whole file, at most a few hundred times. Raises ValueError with one line for a file
    that is neither, that ends inside a record, or whose frames are not Ethernet; OSError when it
    cannot be read.
    """
    with Path(path).open("rb", buffering=_BUFFER) as file:
        source = _Source(path, file, say)
        if source.size < 24:
            raise ValueError(f"{path}: no capture: {source.size} bytes")
        begin = source.take(4)
        source.skip(-4)
        frames = _blocks(source) if begin == _NG.to_bytes(4, "big") else _records(source)
        for number, one in enumerate(frames, 1):
            yield Record(number, *one)


def read_capture(path: Path | str) -> list[Record]:
    """All frames of a capture that is not large; errors as with ``records``."""
    return list(records(path))


def read_pcap(path: Path | str) -> Iterator[tuple[int, bytes]]:
    """Yield (time stamp in ns, frame); errors as with ``records``."""
    for record in records(path):
        yield record.time, record.frame


class _Source:
    """A file that is read once, from its beginning; ``place`` is where the next byte is."""

    def __init__(
        self, path: Path | str, file: BinaryIO, say: Callable[[int, int], None] | None
    ) -> None:
        self.path, self._file, self._say = path, file, say
        self.size, self.place = os.fstat(file.fileno()).st_size, 0
        self._step = max(1, self.size // _TELLS)
        self._next = self._step

    @property
    def left(self) -> int:
        """Bytes that have not been read."""
        return self.size - self.place

    def take(self, count: int) -> bytes:
        """The next bytes, of which there are so many."""
        octets = self._file.read(count)
        if len(octets) < count:  # it has become shorter meanwhile
            raise ValueError(f"{self.path}: truncated: it ends at byte {self.place + len(octets)}")
        self._on(count)
        return octets

    def skip(self, count: int) -> None:
        """Leave bytes out, or go back."""
        self._file.seek(count, os.SEEK_CUR)
        self._on(count)

    def _on(self, count: int) -> None:
        self.place += count
        if self.place >= self._next:
            self._next += self._step
            if self._say is not None:
                self._say(self.place, self.size)


def _check_link(path: Path | str, link: int) -> None:
    if link != _ETHERNET:
        name = f" ({_LINKS[link]})" if link in _LINKS else ""
        raise ValueError(f"{path}: link type {link}{name} is not Ethernet")


def _records(source: _Source) -> Iterator[tuple[int, bytes, int]]:
    """(time, frame, length) of a classic file."""
    path, head = source.path, source.take(24)
    for order in "<>":
        magic, _, _, _, _, link = struct.unpack(f"{order}IIIIII", head)
        if magic in (_MICRO, _NANO):
            break
    else:
        names = [f" ({name})" for begin, name in _PACKED.items() if head.startswith(begin)]
        raise ValueError(f"{path}: no capture: magic {head[:4].hex()}{''.join(names)}")
    _check_link(path, link & 0xFFFF)
    unit, record = 1 if magic == _NANO else 1000, struct.Struct(f"{order}IIII")
    while source.left:
        if source.left < record.size:
            raise ValueError(f"{path}: truncated: cut record at byte {source.place}")
        seconds, fraction, size, length = record.unpack(source.take(record.size))
        if size > source.left:
            raise ValueError(f"{path}: truncated: cut frame at byte {source.place}")
        _check_size(source, size)
        yield seconds * 10**9 + fraction * unit, source.take(size), length


def _check_size(source: _Source, size: int) -> None:
    if size > _LONGEST:
        raise ValueError(f"{source.path}: a frame of {size} bytes at byte {source.place}")


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


def _blocks(source: _Source) -> Iterator[tuple[int, bytes, int]]:
    """(time, frame, length) of a pcapng file (draft-ietf-opsawg-pcapng)."""
    path, order = source.path, "<"
    interfaces: list[_Interface] = []
    while source.left:
        place = source.place
        if source.left < 12:
            raise ValueError(f"{path}: truncated: cut block at byte {place}")
        head = source.take(12)  # type, length and the first word
        if head[:4] == _NG.to_bytes(4, "big"):
            order = "<" if head[8:12] == b"\x4d\x3c\x2b\x1a" else ">"
            interfaces = []
        kind, size = struct.unpack_from(f"{order}II", head)
        if size < 12 or size % 4 or size - 12 > source.left:
            raise ValueError(f"{path}: truncated: cut block at byte {place}")
        if kind not in (_INTERFACE, _OBSOLETE, _SIMPLE, _ENHANCED):
            source.skip(size - 12)
            continue
        _check_size(source, size - _LONGEST_OPTIONS)
        body = (head[8:] + source.take(size - 12))[:-4]
        try:
            if kind == _INTERFACE:
                interfaces.append(_interface(order, body))
            else:
                yield _packet(path, order, kind, body, interfaces)
        except (struct.error, IndexError):
            raise ValueError(f"{path}: broken block at byte {place}") from None


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
