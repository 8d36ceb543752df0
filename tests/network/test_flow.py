"""FlowHash against a sum in plain Python."""

from __future__ import annotations

import random
import struct
from collections import Counter

import pytest

from hdl.network.flow import FlowHash
from sim.bench.packet_stream import beats
from tests.simulate import simulate

TCP, UDP, ICMP = 6, 17, 1


def model(addresses: bytes, ports: bytes) -> int:
    """Exclusive or of all words, folded to three bits."""
    word = 0
    for part in struct.unpack(f">{len(addresses + ports) // 2}H", addresses + ports):
        word ^= part
    return sum((bin(word >> n & 0b1001001001001001).count("1") & 1) << n for n in range(3))


def frame(
    version: int, addresses: bytes, ports: bytes, *, protocol=UDP, vlan=b"", first=0x45, offset=0
) -> bytes:
    kind = b"\x08\0" if version == 4 else b"\x86\xdd"
    start = bytes(12) + vlan + kind
    if version == 4:
        return (
            start
            + bytes([first, 0, 0, 60, 1, 2])
            + struct.pack(">HBBH", offset, 64, protocol, 0xBEEF)
            + addresses
            + ports
            + bytes(20)
        )
    return start + bytes([0x60, 0, 0, 0, 0, 60, protocol, 64]) + addresses + ports + bytes(20)


def cases() -> list[tuple[bytes, int]]:
    rng, out = random.Random(5), []
    for version in (4, 6):
        size = 4 if version == 4 else 16
        for vlan in (b"", b"\x81\0\0\7"):
            for _ in range(6):
                one, other = rng.randbytes(size), rng.randbytes(size)
                here, there = rng.randbytes(2), rng.randbytes(2)
                for pair, ports in (((one, other), (here, there)), ((other, one), (there, here))):
                    addresses, both = b"".join(pair), b"".join(ports)
                    for protocol in (TCP, UDP, ICMP):
                        asked = both if protocol != ICMP else b""
                        built = frame(version, addresses, both, protocol=protocol, vlan=vlan)
                        out.append((built, model(addresses, asked)))
                    if version == 4:
                        for how in ({"first": 0x46}, {"offset": 0x2000}, {"offset": 7}):
                            built = frame(4, addresses, both, vlan=vlan, **how)
                            out.append((built, model(addresses, b"")))
    for length in (14, 20, 60, 300):
        out.append((bytes(12) + b"\x88\xcc" + rng.randbytes(length - 14), 0))
    out.append((bytes(12) + b"\x08\0" + b"\x45", 0))  # the rest of it is that of no other frame
    rng.shuffle(out)
    return out


@pytest.mark.parametrize("width", [64, 128, 512])
@pytest.mark.parametrize("gap", [0.0, 0.3])
def test_flow(width: int, gap: float) -> None:
    flows, found, rng = cases(), [], random.Random(3)
    hash_ = FlowHash(width=width)
    shape = hash_.i.beat.shape()

    async def drive(ctx) -> None:
        for built, _wanted in flows:
            for word in beats(built, width):
                while rng.random() < gap:
                    ctx.set(hash_.i.valid, 0)
                    await ctx.tick()
                ctx.set(hash_.i.beat, shape.from_bits(word))
                ctx.set(hash_.i.valid, 1)
                await ctx.tick()
        ctx.set(hash_.i.valid, 0)
        await ctx.tick().repeat(8)

    async def look(ctx) -> None:
        async for _, _, valid, flow in ctx.tick().sample(hash_.valid, hash_.flow):
            if valid:
                found.append(flow)

    simulate(hash_, drive, background=(look,), deadline=20000)
    assert found == [wanted for _built, wanted in flows]


def test_flows_are_spread() -> None:
    """Ports that follow one another lead to all queues alike."""
    many = Counter(model(b"\x0a\0\0\1\x0a\0\0\2", struct.pack(">HH", n, 80)) for n in range(4096))
    assert len(many) == 8 and max(many.values()) < 1.1 * min(many.values())
