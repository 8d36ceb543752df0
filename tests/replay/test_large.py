"""Large captures: read as a stream, with bounded memory and signs of life."""

import struct
import tracemalloc

import pytest
from click.testing import CliRunner

from sim.replay.capture import Spans, read_packets
from sim.replay.plan import Plan
from sim.tools import cli
from sim.wire import packets as pk
from sim.wire.pcap import read_capture
from tests.replay.captures import Capture, Talk


@pytest.fixture
def capture():
    return Capture()


def noise(path, frames: int, size: int, packets=(), order: str = ""):
    """A capture of TCP and little else, in pcapng if there is an ``order``; returns its size."""
    with path.open("wb") as file:
        if order:
            section = struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1)
            for kind, body in ((0x0A0D0D0A, section), (1, struct.pack(f"{order}HHI", 1, 0, 0))):
                length = len(body) + 12
                file.write(struct.pack(f"{order}II", kind, length) + body)
                file.write(struct.pack(f"{order}I", length))
        else:
            file.write(struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 0, 1))
        frame = bytes(12) + b"\x08\0\x45" + bytes(8) + b"\6" + bytes(size - 24)
        for number in range(frames):
            places = {frames * (n + 1) // (len(packets) + 1): one for n, one in enumerate(packets)}
            one = places.get(number, frame)
            if order:
                one += bytes(-len(one) % 4)
                head = struct.pack(f"{order}5I", 0, 0, number, len(one), len(one))
                length = len(one) + 32
                file.write(struct.pack(f"{order}II", 6, length) + head + one)
                file.write(struct.pack(f"{order}I", length))
            else:
                file.write(struct.pack("<IIII", number, 0, len(one), len(one)) + one)
    return path.stat().st_size


@pytest.mark.parametrize("order", ["", "<", ">"])
def test_a_large_capture_is_read_as_a_stream(capture, tmp_path, order):
    """What is not RoCE v2 takes no memory, however much there is; how far it is, is told."""
    talk = Talk(capture)
    talk.send(0, b"one")
    found, told = [frame for _, frame in capture.frames], []
    size = noise(tmp_path / "x", 16_000, 1400, found, order)
    assert size > 20 << 20
    tracemalloc.start()
    try:
        frames = read_packets(tmp_path / "x", lambda place, of: told.append((place, of)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 << 20, f"{peak:,} bytes for {size:,}"
    assert [one.psn for one in frames.packets] == [pk.dissect(one).fields["psn"] for one in found]
    (left,) = frames.left_out
    assert len(left.numbers) == 16_000 - len(found)
    assert str(left).startswith("packets 1-") and str(left).endswith("no RoCE v2: TCP")
    assert 100 < len(told) <= 201 and told == sorted(told) and {of for _, of in told} == {size}


def test_scattered_numbers_take_no_memory():
    spans = Spans()
    for number in range(1, 100_000, 2):
        spans.append(number)
    assert str(spans) == "packets 1, 3, 5, 7, 9, ... (50000 in all)"
    assert len(spans) == 50_000 and len(spans._spans) < 10


def test_too_many_packets_are_refused(capture, tmp_path, monkeypatch):
    monkeypatch.setattr("sim.replay.capture.MOST_PACKETS", 3)
    talk = Talk(capture)
    for _ in range(4):
        talk.send(0, b"one")
    with pytest.raises(ValueError, match="more than 3 packets of RoCE v2"):
        Plan(capture.save(tmp_path / "x.pcap"))


def test_a_frame_that_is_no_frame(tmp_path):
    """A length of megabytes is a broken file, and is not read."""
    path = tmp_path / "x.pcap"
    head = struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 0, 1)
    path.write_bytes(head + struct.pack("<IIII", 0, 0, 1 << 20, 1 << 20) + bytes(1 << 20))
    with pytest.raises(ValueError, match="a frame of 1048576 bytes at byte 40"):
        read_capture(path)


def test_reading_a_large_capture_is_shown(tmp_path):
    """A bar on a terminal; elsewhere a line now and then."""
    noise(tmp_path / "x.pcap", 13_000, 1400)
    result = CliRunner().invoke(cli.rocinante, ["replay", str(tmp_path / "x.pcap")])
    assert result.exit_code == 2 and "no packet of RoCE v2" in result.stderr
    shown = [line for line in result.stderr.splitlines() if line.startswith("Reading x.pcap")]
    assert 5 <= len(shown) <= 21 and shown[-1].endswith("17 of 17")
