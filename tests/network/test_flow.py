"""FlowHash against a hash in plain Python, and that against numbers that others have published."""

from __future__ import annotations

import json
import random
import struct
from collections import Counter
from functools import cache
from ipaddress import ip_address
from pathlib import Path

import pytest

from firmware.network_commands import SYMMETRIC_KEY
from hdl.network.flow import FlowHash
from hdl.ports.network import Steering
from tests.fields import pack
from tests.network.packets import TAGS, TCP, UDP, Shape, pass_by, shapes
from tests.network.toeplitz import Spread, toeplitz
from tests.simulate import Prepared, simulate

VECTORS = json.loads((Path(__file__).parents[1] / "data" / "toeplitz.json").read_text())
KEY = bytes.fromhex(VECTORS["key"])
ALL = 63
#: Each entry of the table of queues has a part of its own number, in one of three tables.
TABLES = [tuple(n >> low & 7 for n in range(128)) for low in (0, 3, 6)]


def vectors() -> list[tuple[bytes, bytes, int, int]]:
    """Addresses, ports, the hash of the former, and that of both."""
    found = []
    for source, here, target, there, plain, whole in VECTORS["packets"]:
        addresses = ip_address(source).packed + ip_address(target).packed
        ports = struct.pack(">HH", here, there)
        found.append((addresses, ports, int(plain, 16), int(whole, 16)))
    return found


def framed(addresses: bytes, ports: bytes, protocol: int = TCP) -> bytes:
    if len(addresses) == 8:
        head = struct.pack(">BBHHHBBH", 0x45, 0, 40, 1, 0, 64, protocol, 0)
        return bytes(12) + b"\x08\0" + head + addresses + ports + bytes(16)
    head = struct.pack(">IHBB", 6 << 28, 20, protocol, 64)
    return bytes(12) + b"\x86\xdd" + head + addresses + ports + bytes(16)


@cache
def prepared(width: int) -> Prepared:
    return Prepared(FlowHash(width=width))


def pairs_of(width: int, frames: list[bytes], spread: Spread, gap: float = 0.0) -> list[int]:
    """What the gateware says of these frames."""
    found: list[int] = []
    rng, subject = random.Random(3), prepared(width)
    part = subject.component
    ends, cycles = [], []

    async def drive(ctx) -> None:
        ctx.set(part.settings, Steering.from_bits(pack(Steering, spread.values())))
        ends.extend(await pass_by(ctx, part, frames, width, lambda: rng.random() < gap))
        await ctx.tick().repeat(part.LATENCY + 2)

    async def look(ctx) -> None:
        now = 0
        async for _, _, valid, pair in ctx.tick().sample(part.valid, part.pair):
            if valid:
                found.append(pair)
                cycles.append(now)
            now += 1

    simulate(subject, drive, background=(look,), deadline=60_000)
    late = {now - end for now, end in zip(cycles, ends, strict=True)}
    assert late <= {part.LATENCY - 1}
    return found


def test_published_hashes() -> None:
    for addresses, ports, plain, whole in vectors():
        assert toeplitz(KEY, addresses) == plain
        assert toeplitz(KEY, addresses + ports) == whole


def test_published_hashes_in_hardware() -> None:
    """The lowest seven bits of each, by tables that show three of them."""
    frames = [framed(addresses, ports) for addresses, ports, _, _ in vectors()]
    for types, place in ((ALL, 3), (1 | 8, 2)):  # with the ports, and without
        lowest = [vector[place] & 127 for vector in vectors()]
        for table in TABLES:
            found = pairs_of(512, frames, Spread(types, KEY, table))
            assert found == [table[number] for number in lowest]


@pytest.mark.parametrize(("width", "gap"), [(64, 0.3), (128, 0.0), (512, 0.0)])
def test_each_shape(width: int, gap: float) -> None:
    """Packets of all headers, for each choice of what is hashed; and what is none."""
    rng = random.Random(width)
    frames = [shape.build(rng) for shape in shapes(rng) if shape.payload < 60]
    frames += [bytes(12) + b"\x88\xcc" + rng.randbytes(length) for length in (2, 46, 300)]
    frames.append(bytes(12) + b"\x08\0\x45")  # the rest of it is that of no other frame
    rng.shuffle(frames)
    types = [ALL, 0, *(1 << n for n in range(6)), rng.randrange(64)]
    for number, chosen in enumerate(types):
        size = rng.choice((128, 64, 2, 1)) if number else 128
        table = tuple(rng.randrange(8) for _ in range(size))
        spread = Spread(chosen, rng.randbytes(40), table, rng.randrange(8))
        some = frames if number == 0 else rng.sample(frames, 16)
        assert pairs_of(width, some, spread, gap) == [spread.pair(frame) for frame in some], chosen


def test_both_directions_have_one_queue_with_our_key() -> None:
    rng, table = random.Random(2), tuple(n % 8 for n in range(128))
    spread = Spread(ALL, SYMMETRIC_KEY, table)
    for version in (4, 6):
        size = 4 if version == 4 else 16
        for _ in range(50):
            one, other = rng.randbytes(size), rng.randbytes(size)
            here, there = rng.randbytes(2), rng.randbytes(2)
            pairs = {
                spread.pair(framed(one + other, here + there, UDP)),
                spread.pair(framed(other + one, there + here, UDP)),
            }
            assert len(pairs) == 1


@pytest.mark.parametrize("key", [SYMMETRIC_KEY, KEY])
def test_flows_are_spread(key: bytes) -> None:
    """Ports that follow one another lead to all queues alike."""
    spread = Spread(ALL, key, tuple(n % 8 for n in range(128)))
    addresses = b"\x0a\0\0\1\x0a\0\0\2"
    many = Counter(
        spread.pair(framed(addresses, struct.pack(">HH", n, 80))) for n in range(1024, 3072)
    )
    assert len(many) == 8 and max(many.values()) < 1.1 * min(many.values())


def test_a_tag_does_not_matter() -> None:
    rng = random.Random(4)
    frame = Shape(6, TCP, payload=20).build(rng)
    spread = Spread(ALL, KEY, TABLES[0])
    tagged = frame[:12] + TAGS[1] + frame[12:]
    assert pairs_of(64, [frame, tagged], spread) == [spread.pair(frame)] * 2
