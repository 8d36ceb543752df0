"""PacketCheck against sums in plain Python: packets of each shape, and packets spoilt anywhere."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from functools import cache

import pytest

from hdl.network.packet_check import PacketCheck
from tests.network.packets import TAGS, TCP, UDP, Shape, mended, pass_by, right, shapes, spoilt
from tests.simulate import Prepared, simulate

WIDTHS = [64, 512]
#: The other two share all that differs between these with one of them.
ALL_WIDTHS = [64, 128, 256, 512]


@cache
def prepared(width: int) -> Prepared:
    return Prepared(PacketCheck(width=width))


def check(width: int, frames: Iterable[bytes], *, gap: float = 0.0) -> None:
    """Each of the frames is told right as the model tells it, in time."""
    made, rng = list(frames), random.Random(3)
    subject = prepared(width)
    part, found, ends = subject.component, [], []

    async def drive(ctx) -> None:
        ends.extend(await pass_by(ctx, part, made, width, lambda: rng.random() < gap))
        await ctx.tick().repeat(part.latency + 2)

    async def look(ctx) -> None:
        cycle = 0
        async for _, _, valid, told in ctx.tick().sample(part.valid, part.right):
            if valid:
                found.append((cycle, told))
            cycle += 1

    simulate(subject, drive, background=(look,), deadline=400_000)
    assert [told for _cycle, told in found] == [right(frame) for frame in made]
    late = {cycle - end for (cycle, _), end in zip(found, ends, strict=True)}
    assert late <= {part.latency - 1}


@pytest.mark.parametrize(
    ("width", "gap"), [*((width, 0.0) for width in ALL_WIDTHS), *((width, 0.3) for width in WIDTHS)]
)
def test_each_shape(width: int, gap: float) -> None:
    rng = random.Random(width)
    made = [(shape, shape.build(rng)) for shape in shapes(rng)]
    rng.shuffle(made)
    judged = [(shape, right(frame)) for shape, frame in made]
    for shape, told in judged:
        plain = not shape.fragment and not shape.extension
        assert told == (plain and shape.protocol in (TCP, UDP)), shape
    check(width, (frame for _shape, frame in made), gap=gap)


@pytest.mark.parametrize("width", WIDTHS)
def test_each_byte_spoilt(width: int) -> None:
    """One byte after the other, of each kind of packet, and between them whole ones."""
    rng, frames = random.Random(width + 1), []
    for shape in (
        Shape(4, TCP, payload=9, padding=3),
        Shape(4, UDP, TAGS[1], options=2, payload=6),
        Shape(6, TCP, TAGS[3], payload=5),
        Shape(6, UDP, payload=11, padding=2),
    ):
        frame = shape.build(rng)
        assert right(frame)
        behind = len(frame) - shape.padding
        told = [right(spoilt(frame, at, rng)) for at in range(len(frame))]
        # What is in front of the packet, and behind it, does not matter, nor do traffic class, flow
        # label and hop limit.
        assert all(told[:12]) and all(told[behind:])
        packet = told[14 + len(shape.tags) : behind]
        assert not any(packet if shape.version == 4 else packet[4:7] + packet[8:])
        for at in range(len(frame)):
            frames.append(spoilt(frame, at, rng))
            if rng.random() < 0.2:
                frames.append(frame)
    check(width, frames)


@pytest.mark.parametrize("width", WIDTHS)
def test_cut_short_and_garbage(width: int) -> None:
    """Packets that end too early, at each byte; and bytes that are anything."""
    rng, frames = random.Random(width + 2), []
    for shape in (Shape(4, UDP, TAGS[2], options=1, payload=20), Shape(6, TCP, payload=20)):
        frame = shape.build(rng)
        for length in range(14, len(frame) + 1):
            frames.append(frame[:length])
    for length in (14, 15, 60, 64, 200):
        for kind in (b"\x08\0", b"\x86\xdd", b"\x81\0\x08\0", b"\x08\6"):
            frames.append((rng.randbytes(12) + kind + rng.randbytes(length))[:length])
    assert sum(map(right, frames)) == 2
    check(width, frames)


def fields_of(rng: random.Random) -> list[bytes]:
    """Packets whose headers say something else, with right checksums around it."""
    frames = []

    def put(offset: int, value: int, size: int = 2):
        def change(frame: bytearray, at: int) -> None:
            frame[at + offset : at + offset + size] = value.to_bytes(size, "big")

        return change

    for tags in TAGS[:2]:
        for protocol, least in ((TCP, 20), (UDP, 8)):
            four = Shape(4, protocol, tags, payload=30)
            six = Shape(6, protocol, tags, payload=30)
            size = least + 30
            for length in (0, 19, 20, 20 + least - 1, 20 + least, size + 19, size + 21, 0xFFFF):
                frames.append(mended(four.build(rng), put(2, length), four))
            for length in (0, least - 1, least, size - 1, size + 1, 0xFFFF):
                frames.append(mended(six.build(rng), put(4, length), six))
            for other in (0x46, 0x44, 0x35, 0x60, 0x4F):
                frames.append(mended(four.build(rng), put(0, other, 1), four))
            for other in (0x40, 0x70):
                frames.append(mended(six.build(rng), put(0, other, 1), six))
            for fragment in (0x8000, 0x2000, 0x1000, 0x0001):
                frames.append(mended(four.build(rng), put(6, fragment), four))
            for next_header in (0, 43, 44, 50, 58, 60):
                frames.append(mended(six.build(rng), put(6, next_header, 1), six))
    frames += udp_fields(rng)
    return frames


def udp_fields(rng: random.Random) -> list[bytes]:
    """UDP without a checksum, where the sum of the rest is right; with a length of its own."""
    frames = []
    for version, start in ((4, 34), (6, 54)):
        shape = Shape(version, UDP, payload=30)
        for length in (0, 8, 37, 39):
            frame = bytearray(shape.build(rng))
            old = struct.unpack_from(">H", frame, start + 4)[0]
            struct.pack_into(">H", frame, start + 4, length)
            # The change is taken back elsewhere, so that the sum stays.
            word = struct.unpack_from(">H", frame, start + 8)[0] + old - length
            struct.pack_into(">H", frame, start + 8, word % 0xFFFF)
            frames.append(bytes(frame))
        frame = bytearray(shape.build(rng))
        sum_, word = struct.unpack_from(">H", frame, start + 6)[0], frame[start + 8 : start + 10]
        moved = (int.from_bytes(word, "big") + sum_ - 1) % 0xFFFF + 1
        struct.pack_into(">HH", frame, start + 6, 0, moved)
        frames.append(bytes(frame))
        # And one whose right checksum is all ones.
        struct.pack_into(">H", frame, start + 6, 0xFFFF)
        frames.append(bytes(frame))
    assert [right(frame) for frame in frames[-1:]] == [True]
    return frames


@pytest.mark.parametrize("width", ALL_WIDTHS)
def test_each_field(width: int) -> None:
    frames = fields_of(random.Random(width + 3))
    assert any(map(right, frames))
    check(width, frames)
