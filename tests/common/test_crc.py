"""CRC beats, unfill and ICRC mask against zlib."""

from __future__ import annotations

import random
import zlib

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from hdl.common import crc
from hdl.common.checksum import BeatSum, WordSum
from hdl.wire.constants import ICRC_RESIDUE
from sim.wire import packets as pk

# Components that refuse their parameters are never elaborated.
pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")


def register(data: bytes) -> int:
    """The CRC register after ``data`` when it starts at 0."""
    return zlib.crc32(data, 0xFFFFFFFF) ^ 0xFFFFFFFF


def apply(rows: list[list[int]], value: int) -> int:
    return sum((sum(value >> bit for bit in row) & 1) << n for n, row in enumerate(rows))


@pytest.mark.parametrize("size", [4, 8, 16, 32, 64])
def test_matrices(size):
    rng = random.Random(size)
    for _ in range(20):
        data, start = rng.randbytes(size), rng.getrandbits(32)
        number = int.from_bytes(data, "little")
        vector = int(f"{number:0{8 * size}b}"[::-1], 2)
        for rows in crc._data_steps(size):
            vector = apply(rows, vector)
        assert vector == register(data)
        moved = apply(crc._state_rows(size), start)
        assert moved == zlib.crc32(bytes(size), start ^ 0xFFFFFFFF) ^ 0xFFFFFFFF
        assert crc._backward(moved, 8 * size) == start


def test_residues():
    body = b"some bytes" * 3
    whole = body + (zlib.crc32(body, 0xFFFFFFFF) & 0xFFFFFFFF).to_bytes(4, "little")
    for fill, residue in enumerate(crc.residues(64)):
        assert register(whole + bytes(fill)) == residue
    assert crc.residues(1) == [ICRC_RESIDUE]


def _simulate(design, bench) -> None:
    simulator = Simulator(design)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize(
    ("width", "lengths", "fills"),
    [
        (64, range(1, 90), {}),
        (512, range(55, 200, 9), {}),
        (64, range(2, 90, 4), {"step": 4, "least": 2}),
        (128, range(34, 150, 4), {"step": 4, "least": 2}),
        (256, range(34, 200, 4), {"step": 4, "least": 2}),
        (512, range(58, 300, 4), {"step": 4, "least": 2}),
    ],
)
def test_every_length_with_gaps(width, lengths, fills):
    """One packet after the other, back to back or with gaps; each CRC comes in its cycle."""
    size = width // 8
    m = Module()
    m.submodules.beats = beats = crc.CrcBeats(width=width)
    m.submodules.unfill = unfill = crc.CrcUnfill(width=width, **fills)
    fill = Signal(range(size))
    m.d.comb += unfill.state.eq(beats.state)
    stages = [fill]
    for n in range(beats.LATENCY):
        stages.append(Signal.like(fill, name=f"fill{n}"))
        m.d.sync += stages[-1].eq(stages[-2])
    m.d.comb += unfill.fill.eq(stages[-1])
    rng = random.Random(width)
    packets = [rng.randbytes(length) for length in lengths]
    due: dict[int, int] = {}
    seen: dict[int, int] = {}

    async def bench(ctx):
        cycle = 0

        async def tick():
            nonlocal cycle
            seen[cycle] = ctx.get(unfill.crc)
            await ctx.tick()
            cycle += 1

        for n, packet in enumerate(packets):
            for at in range(0, len(packet), size):
                while n % 3 == 2 and rng.random() < 0.5:
                    ctx.set(beats.valid, 0)
                    ctx.set(beats.data, rng.getrandbits(width))
                    await tick()
                part = packet[at : at + size]
                ctx.set(beats.valid, 1)
                ctx.set(beats.first, at == 0)
                ctx.set(beats.skip, 0)
                ctx.set(beats.data, int.from_bytes(part, "little"))
                ctx.set(fill, size - len(part))
                if at + size >= len(packet):
                    due[cycle + beats.LATENCY + unfill.LATENCY] = zlib.crc32(packet, 0xFFFFFFFF)
                await tick()
            if n % 4 == 1:
                # A beat behind the end leaves the register alone.
                ctx.set(beats.first, 0)
                ctx.set(beats.skip, 1)
                ctx.set(beats.data, rng.getrandbits(width))
                await tick()
        ctx.set(beats.valid, 0)
        for _ in range(20):
            await tick()

    _simulate(m, bench)
    assert len(due) == len(packets)
    assert {cycle: seen[cycle] for cycle in due} == due


@pytest.mark.parametrize("width", [64, 128, 256, 512])
def test_mask_makes_the_icrc(width):
    size = width // 8
    mask = crc.IcrcMask(width=width)
    frames = [
        pk.build(0x0A, payload=bytes(range(50)), vlan=vlan, src_gid=pk.gid_bytes(source),
                 dst_gid=pk.gid_bytes(destination), pad_frame=False, traffic_class=3)
        for vlan in (None, 7)
        for source, destination in (("1.2.3.4", "5.6.7.8"), ("fd00::1", "fd00::2"))
    ]  # fmt: skip

    async def bench(ctx):
        for frame in frames:
            vlan = frame[12:14] == b"\x81\x00"
            ctx.set(mask.vlan, vlan)
            ctx.set(mask.ipv6, frame[18 if vlan else 14] >> 4 == 6)
            masked = b""
            for number, at in enumerate(range(0, len(frame), size)):
                ctx.set(mask.number, min(number, mask.beats))
                ctx.set(mask.data, int.from_bytes(frame[at : at + size], "little"))
                masked += ctx.get(mask.masked).to_bytes(size, "little")
            masked = masked[: len(frame) - 4]
            assert register(masked) ^ 0xFFFFFFFF == int.from_bytes(frame[-4:], "little")

    simulator = Simulator(mask)
    simulator.add_testbench(bench)
    simulator.run()


def test_parameters():
    for part in (crc.CrcBeats, crc.CrcUnfill, crc.IcrcMask):
        with pytest.raises(ValueError, match="not 12"):
            part(width=12)
    with pytest.raises(ValueError, match="not 96"):
        crc.CrcUnfill(width=96)
    with pytest.raises(ValueError, match="not 17"):
        WordSum(words=17)
    with pytest.raises(ValueError, match="not 40"):
        BeatSum(width=40)


def _ones_sum(data: bytes) -> int:
    total = sum(int.from_bytes(data[at : at + 2], "little") for at in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def test_word_sum():
    rng = random.Random(5)
    words = WordSum(words=10)
    rows = [b"\xff" * 20, bytes(20), b"\xff\xff" + bytes(18)]
    rows += [rng.randbytes(20) for _ in range(50)]
    got = []

    async def bench(ctx):
        for row in [*rows, *[bytes(20)] * words.LATENCY]:
            ctx.set(words.data, int.from_bytes(row, "little"))
            got.append(ctx.get(words.sum))
            await ctx.tick()

    _simulate(words, bench)
    assert got[words.LATENCY :] == [_ones_sum(row) for row in rows]


@pytest.mark.parametrize("width", [64, 256])
def test_beat_sum(width):
    rng = random.Random(6)
    words = BeatSum(width=width)
    beats = [(n in (0, 3, 4, 9), rng.getrandbits(width)) for n in range(14)]
    want, total = [], 0
    for first, data in beats:
        part = sum(data >> at & 0xFFFF for at in range(0, width, 16))
        total = part if first else total + part
        want.append(total)
    got = []

    async def bench(ctx):
        for first, data in [*beats, *[(0, 0)] * words.LATENCY]:
            ctx.set(words.valid, 1)
            ctx.set(words.first, first)
            ctx.set(words.data, data)
            got.append(ctx.get(words.sum))
            await ctx.tick()

    _simulate(words, bench)
    assert got[words.LATENCY :] == want
