"""Captures that are unusual or broken, in pcapng (draft-ietf-opsawg-pcapng)."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from sim.wire.pcap import read_capture

#: A time stamp, in ticks of its interface.
TICKS = 1_000_000


def block(kind: int, body: bytes) -> bytes:
    size = len(body) + 12
    return struct.pack("<II", kind, size) + body + struct.pack("<I", size)


def interface(options: bytes = b"", *, snap: int = 0, link: int = 1) -> bytes:
    return block(1, struct.pack("<HHI", link, 0, snap) + options)


def packet(number: int = 0, *, frame: bytes = bytes(60), options: bytes = b"") -> bytes:
    head = struct.pack("<5I", number, 0, TICKS, len(frame), len(frame))
    return block(6, head + frame + options)


def simple(length: int) -> bytes:
    return block(3, struct.pack("<I", length) + bytes(length))


SECTION = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
NANO = struct.pack("<HHBxxx", 9, 1, 9)
LATER = struct.pack("<HHq", 14, 8, 1_700_000_000)
COMMENT = struct.pack("<HH4sHH", 1, 4, b"text", 0, 0)


def read(path: Path, octets: bytes) -> list[tuple[int, int]]:
    """Time in ns and bytes of each frame."""
    path.write_bytes(octets)
    return [(record.time, len(record.frame)) for record in read_capture(path)]


@pytest.mark.parametrize(
    ("octets", "found"),
    [
        pytest.param(
            SECTION + interface() + packet() + SECTION + interface(NANO) + packet(),
            [(10**9, 60), (TICKS, 60)],
            id="a-section-has-its-own-interfaces",
        ),
        pytest.param(
            SECTION + interface() + interface(NANO) + packet(1) + packet(0),
            [(TICKS, 60), (10**9, 60)],
            id="two-interfaces",
        ),
        pytest.param(
            SECTION + interface(LATER) + packet(),
            [(1_700_000_001 * 10**9, 60)],
            id="offset-of-an-interface",
        ),
        pytest.param(
            SECTION + interface() + simple(60), [(0, 60)], id="simple-block-without-snap-length"
        ),
        pytest.param(
            SECTION + interface() + packet(options=COMMENT) + block(5, bytes(12)) + packet(),
            [(10**9, 60)] * 2,
            id="comments-and-statistics-are-passed-over",
        ),
    ],
)
def test_read(octets: bytes, found: list[tuple[int, int]], tmp_path: Path) -> None:
    assert read(tmp_path / "x.pcapng", octets) == found


@pytest.mark.parametrize(
    ("octets", "why"),
    [
        ((SECTION + interface() + packet() + packet())[:-20], "cut block at byte 140"),
        (SECTION + interface() + packet() + bytes(3), "cut block at byte 140"),
        (SECTION + interface() + struct.pack("<III", 6, 1 << 31, 0) + bytes(90), "cut block"),
        (SECTION + interface() + packet(3), "broken block at byte 48"),
        (SECTION + interface(link=113) + packet(), r"link type 113 \(Linux cooked\)"),
    ],
)
def test_refused(octets: bytes, why: str, tmp_path: Path) -> None:
    """What is cut or wrong ends with one line; no frame is left out in silence."""
    with pytest.raises(ValueError, match=why):
        read(tmp_path / "x.pcapng", octets)
