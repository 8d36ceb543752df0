"""cocotb side of test_ingress.py. ``INGRESS`` in the environment: width and gids, see there."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import cocotb
from amaranth.hdl import Shape
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge

from hdl.ingress.counters import IngressCounters
from hdl.ports.headers import GidRow, RxHeader
from sim import packets as pk
from sim.packet_stream import Sink, Source, beats, every, never, pack, packets, sometimes, unpack
from sim.pcap import read_pcap
from tests.ingress.reference import cause

WIDTH = int(os.environ["INGRESS_WIDTH"])
FULL = WIDTH == 512
SIZE = WIDTH // 8
GOLDEN = sorted(Path("tests/data/golden").resolve().glob("*.pcap")) or sorted(
    (Path(__file__).parents[1] / "data" / "golden").glob("*.pcap")
)
ADDRESSES = ["10.0.0.2", "10.0.0.1", "fd00::2", "fd00::1"]
GIDS = [pk.gid_bytes(address) for address in ADDRESSES]
SEED = 20


class Bench:
    """Clock, reset, streams and what has been counted since the last look."""

    def __init__(self, dut, *, idle=never, stall=never, header_stall=never):
        self.dut = dut
        self.source = Source(dut, "i", idle=idle)
        self.payload = Sink(dut, "payload", stall=stall)
        self.header = Sink(dut, "header", stall=header_stall)
        self.seen: Counter[str] = Counter()
        self.taken = [0, 0]

    async def start(self, *, lossless: bool = False) -> None:
        dut = self.dut
        table = 0
        for n, gid in enumerate(GIDS):
            row = pack(GidRow, {"valid": 1, "function": 7 + n, "gid": gid})
            table |= row << (Shape.cast(GidRow).width * n)
        dut.gids.value = table
        dut.lossless.value = int(lossless)
        dut.i__payload.value = 0
        dut.rst.value = 1
        cocotb.start_soon(Clock(dut.clk, 4, unit="ns").start())
        await ClockCycles(dut.clk, 3)
        dut.rst.value = 0
        cocotb.start_soon(self.payload.run())
        cocotb.start_soon(self.header.run())
        await ClockCycles(dut.clk, 2)

    async def send(self, frames: list[bytes], *, errors=()) -> None:
        """All frames, without a gap except those of ``idle``."""
        words = []
        for n, frame in enumerate(frames):
            words += beats(frame, WIDTH, error=n in errors)
        await self.source.run(words)

    async def settle(self, cycles: int = 60) -> None:
        """Until nothing has come out for so long."""
        quiet = 0
        while quiet < cycles:
            before = len(self.payload.words), len(self.header.words)
            await ClockCycles(self.dut.clk, 10)
            same = before == (len(self.payload.words), len(self.header.words))
            quiet = quiet + 10 if same else 0
            assert self.payload.cycle < 10_000_000

    def counted(self) -> dict[str, int]:
        """Counters that moved since the last call, without ``drops_``."""
        now = Counter(unpack(IngressCounters, int(self.dut.counters.value)))
        delta = {k.removeprefix("drops_"): v - self.seen[k] for k, v in now.items()}
        self.seen = now
        return {name: count for name, count in delta.items() if count}

    def received(self) -> list[tuple[dict[str, int], bytes]]:
        """(header fields, payload) of the packets since the last call."""
        headers = self.header.words[self.taken[0] :]
        words = self.payload.words[self.taken[1] :]
        self.taken = [len(self.header.words), len(self.payload.words)]
        bodies = packets(words, WIDTH)
        out = []
        for word in headers:
            fields = unpack(RxHeader, word)
            body, error = next(bodies) if fields["length"] else (b"", False)
            assert not error
            out.append((fields, body))
        assert next(bodies, None) is None, "payload without a header"
        return out


def expected(frame: bytes) -> tuple[dict, bytes]:
    found = pk.dissect(frame)
    assert found.icrc_good
    start = 18 if frame[12:14] == b"\x81\x00" else 14
    gid = frame[start + 24 : start + 40]
    if frame[start] >> 4 == 4:
        gid = bytes(10) + b"\xff\xff" + frame[start + 16 : start + 20]
    index = GIDS.index(gid)
    fields = {
        name: int.from_bytes(value, "little") if isinstance(value, bytes) else value
        for name, value in found.fields.items()
    }
    return fields | {"gid_index": index, "function": 7 + index}, found.payload


def check(received, frames: list[bytes]) -> None:
    assert len(received) == len(frames), f"{len(received)} of {len(frames)} packets"
    for n, ((fields, body), frame) in enumerate(zip(received, frames, strict=True)):
        want, payload = expected(frame)
        got = {name: fields[name] for name in want}
        assert got == want, f"packet {n}: {got} is not {want}"
        assert body == payload, f"packet {n}: payload differs"


def golden() -> list[bytes]:
    return pk.roce_frames(frame for path in GOLDEN for _, frame in read_pcap(path))


def samples() -> list[bytes]:
    """One packet of every kind, small enough to be mutated thoroughly."""
    common = {"dest_qp": 0x11, "psn": 0xFFFFFE}
    v6 = {"src_gid": GIDS[3], "dst_gid": GIDS[2]}
    return [
        pk.build(0x04, payload=b"abcdefg", **common),
        pk.build(0x0A, payload=bytes(range(100)), va=1 << 63, rkey=5, dma_length=100, **common),
        pk.build(0x0B, payload=b"x" * 33, rkey=5, imm=b"wxyz", vlan=5, priority=3, **common),
        pk.build(0x11, syndrome=0x1F, msn=0xABCDEF, **common, **v6),
        pk.build(0x13, va=8, rkey=9, swap_add=1 << 60, compare=77, vlan=4095, **common, **v6),
        pk.build(0x65, payload=b"hello", qkey=0x80010000, src_qp=1, imm=b"1234", **common),
        pk.build(0x17, payload=b"", rkey=0x12345678, **common, **v6, traffic_class=0xA5),
    ]


async def judge(bench: Bench, frames: list[bytes], *, errors=()) -> Counter[str]:
    """Send frames; what is delivered and counted must be what the reference says."""
    want = [cause(f, GIDS, error=n in errors) for n, f in enumerate(frames)]
    await bench.send(frames, errors=errors)
    await bench.settle()
    good = [f for f, why in zip(frames, want, strict=True) if not why]
    received = bench.received()
    counts = Counter(why or "packets" for why in want)
    counted = bench.counted()
    counted.pop("bytes", None)
    assert counted == dict(counts), f"{counted} is not {dict(counts)}"
    assert len(received) == len(good)
    for (_, body), frame in zip(received, good, strict=True):
        if frame[12:14] in (b"\x08\x00", b"\x81\x00", b"\x86\xdd"):
            assert body == pk.dissect(frame).payload
    return counts


@cocotb.test()
async def captures(dut):
    """Every packet of every capture comes out as scapy sees it."""
    bench = Bench(dut)
    await bench.start()
    frames = golden()
    assert len(frames) > 1500
    await bench.send(frames)
    await bench.settle()
    counted = bench.counted()
    assert counted == {"packets": len(frames), "bytes": sum(map(len, frames))}
    check(bench.received(), frames)
    assert bench.source.stalls == 0


@cocotb.test()
async def samples_pass(dut):
    bench = Bench(dut)
    await bench.start()
    await bench.send(samples())
    await bench.settle()
    counted = bench.counted()
    assert counted.get("packets") == len(samples()), counted
    check(bench.received(), samples())
