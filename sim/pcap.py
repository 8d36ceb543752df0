"""Reading captures: frames with their time stamps in ns."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

__all__ = ["read_pcap", "write_pcap"]

_MICRO, _NANO = 0xA1B2C3D4, 0xA1B23C4D
_ETHERNET = 1


def read_pcap(path: Path | str) -> Iterator[tuple[int, bytes]]:
    """Yield (time stamp in ns, frame) of a classic pcap file, either byte order or resolution.

    Raises ValueError for anything else, for a cut record and for frames that are not Ethernet.
    """
    raw = Path(path).read_bytes()
    if len(raw) < 24:
        raise ValueError(f"{path}: not a pcap file: {len(raw)} bytes")
    for order in "<>":
        magic, _, _, _, _, link = struct.unpack_from(f"{order}IIIIII", raw)
        if magic in (_MICRO, _NANO):
            break
    else:
        raise ValueError(f"{path}: not a pcap file: magic {magic:#x}")
    if link & 0xFFFF != _ETHERNET:
        raise ValueError(f"{path}: link type {link} is not Ethernet")
    unit = 1 if magic == _NANO else 1000
    place = 24
    while place < len(raw):
        if place + 16 > len(raw):
            raise ValueError(f"{path}: cut record at byte {place}")
        seconds, fraction, size, _ = struct.unpack_from(f"{order}IIII", raw, place)
        place += 16
        if place + size > len(raw):
            raise ValueError(f"{path}: cut frame at byte {place}")
        yield seconds * 10**9 + fraction * unit, raw[place : place + size]
        place += size


def write_pcap(path: Path | str, frames: list[tuple[int, bytes]]) -> None:
    """Write frames with their time stamps in ns as a nanosecond pcap file."""
    parts = [struct.pack("<IHHIIII", _NANO, 2, 4, 0, 0, 65535, _ETHERNET)]
    for time, frame in frames:
        parts.append(struct.pack("<IIII", time // 10**9, time % 10**9, len(frame), len(frame)))
        parts.append(bytes(frame))
    Path(path).write_bytes(b"".join(parts))
