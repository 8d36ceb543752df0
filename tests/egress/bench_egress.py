"""cocotb side of test_egress.py. In the environment ``EGRESS_WIDTH``: bits of a beat;
``EGRESS_AHEAD``: ``packets_ahead``."""

from __future__ import annotations

import os
import random
from itertools import product

import cocotb
from amaranth.hdl import Shape
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge

from hdl.common.count import BYTES
from hdl.egress.egress import EgressCounters
from hdl.ports.headers import GidRow, TxHeader
from sim.bench.packet_stream import (
    Sink,
    Source,
    beats,
    every,
    never,
    packets,
    sometimes,
)
from sim.wire import packets as pk
from tests.fields import pack, unpack
from tests.lengths import lengths

WIDTH = int(os.environ["EGRESS_WIDTH"])
ONE_BY_ONE = os.environ.get("EGRESS_AHEAD") == "1"
SIZE = WIDTH // 8
#: Of each test: a million cycles.
DEADLINE = {"timeout_time": 4, "timeout_unit": "ms"}
MAC = bytes.fromhex("02aabbccddee")
PEER_MAC = bytes.fromhex("021122334455")
SOURCES = [
    {"gid": pk.gid_bytes("10.0.0.1"), "vlan": None},
    {"gid": pk.gid_bytes("fd00::1"), "vlan": None},
    {"gid": pk.gid_bytes("10.0.0.1"), "vlan": 5},
    {"gid": pk.gid_bytes("fd00::ffff:a00:1"), "vlan": 4094},
]
PEERS = [pk.gid_bytes("192.168.3.4"), pk.gid_bytes("2001:db8::1")]
#: Opcode -> the fields of its extended headers.
RETH = ("va", "rkey", "dma_length")
AETH = ("syndrome", "msn")
DETH = ("qkey", "src_qp")
OPCODES = {
    0x00: (), 0x01: (), 0x02: (), 0x03: ("imm",), 0x04: (), 0x05: ("imm",), 0x06: RETH, 0x07: (),
    0x08: (), 0x09: ("imm",), 0x0A: RETH, 0x0B: (*RETH, "imm"), 0x0C: RETH, 0x0D: AETH, 0x0E: (),
    0x0F: AETH, 0x10: AETH, 0x11: AETH, 0x16: ("rkey",), 0x17: ("rkey",), 0x20: (), 0x21: (),
    0x22: (), 0x23: ("imm",), 0x24: (), 0x25: ("imm",), 0x26: RETH, 0x27: (), 0x28: (),
    0x29: ("imm",), 0x2A: RETH, 0x2B: (*RETH, "imm"),
    0x12: (*AETH, "va"), 0x13: RETH[:2], 0x14: RETH[:2], 0x64: DETH, 0x65: (*DETH, "imm"),
}  # fmt: skip
EMPTY = {0x0C, 0x11, 0x12}
#: Atomics: their operands are payload on this side. What one has found is the address.
ATOMICS, ATOMIC_ACK = {0x13, 0x14}, 0x12
WIDTHS = {"va": 64, "rkey": 32, "dma_length": 32, "syndrome": 8, "msn": 24}
WIDTHS |= {"qkey": 32, "src_qp": 24}


class Packet:
    """One packet: the row for egress, its payload, and the frame scapy builds of the same."""

    def __init__(self, rng: random.Random, *, opcode=None, length=None, source=None):
        self.opcode = rng.choice(list(OPCODES)) if opcode is None else opcode
        if length is None:
            length = rng.choice([0, 1, 2, 3, SIZE - 1, SIZE, SIZE + 1, rng.randrange(400)])
        length = 0 if self.opcode in EMPTY else 16 if self.opcode in ATOMICS else length
        index = rng.randrange(4) if source is None else source
        gid, vlan = SOURCES[index]["gid"], SOURCES[index]["vlan"]
        self.payload = rng.randbytes(length)
        extended = {
            name: rng.randbytes(4) if name == "imm" else rng.getrandbits(WIDTHS[name])
            for name in OPCODES[self.opcode]
        }
        common = {
            "solicited": rng.getrandbits(1),
            "ack_request": rng.getrandbits(1),
            "pkey": rng.choice([0xFFFF, 0x7FFF]),
            "dest_qp": rng.getrandbits(24),
            "psn": rng.getrandbits(24),
        }
        address = {
            "traffic_class": rng.getrandbits(8),
            "hop_limit": rng.getrandbits(8),
            "udp_source": rng.getrandbits(16),
        }
        label, sl = rng.getrandbits(20), rng.getrandbits(3)
        v6 = gid[:12] != bytes(10) + b"\xff\xff"
        dgid = PEERS[v6]
        # Fields of absent headers hold anything.
        absent = {name: rng.getrandbits(bits) for name, bits in WIDTHS.items()}
        self.row = absent | common | extended
        deth = [self.row.pop(name) for name in DETH]  # at the place of ``va``
        if "qkey" in extended:
            self.row["va"] = deth[0] << 32 | deth[1]
        self.row |= {
            "opcode": self.opcode,
            "length": length,
            "av": address
            | {
                "sgid_index": index,
                "dgid": dgid,
                "dmac": PEER_MAC,
                "flow_label": label,
                "sl": sl,
            },
        }
        # What the peer's ingress makes of it.
        self.arrives = dict(extended)
        self.arrives_payload = self.payload
        payload, headers = self.payload, dict(extended)
        if self.opcode in ATOMICS:
            operands = {
                "swap_add": int.from_bytes(payload[:8], "big"),
                "compare": int.from_bytes(payload[8:], "big"),
            }
            headers |= operands
            self.arrives |= operands
            self.arrives_payload = payload = b""
        elif self.opcode == ATOMIC_ACK:
            found = headers["original_data"] = headers.pop("va")
            del self.arrives["va"]
            self.arrives_payload = found.to_bytes(8, "little")
        self.frame = pk.build(
            self.opcode,
            payload=payload,
            src_gid=gid,
            dst_gid=dgid,
            src_mac=MAC,
            dst_mac=PEER_MAC,
            vlan=vlan,
            priority=sl,
            flow_label=label if v6 else 0,
            **common,
            **headers,
            **address,
        )
        if "qkey" in extended:
            self.arrives_payload = pk.grh_area(self.frame) + self.payload


class Bench:
    def __init__(self, dut, *, header_idle=never, payload_idle=never, stall=never):
        self.dut = dut
        self.header = Source(dut, "header", idle=header_idle)
        self.payload = Source(dut, "payload", idle=payload_idle)
        self.sink = Sink(dut, "o", stall=stall)
        self.taken = 0

    async def start(self) -> None:
        dut = self.dut
        table = 0
        for n, one in enumerate(SOURCES):
            vlan = one["vlan"]
            row = {"valid": 1, "gid": one["gid"], "vlan_valid": int(vlan is not None)}
            table |= pack(GidRow, row | {"vlan_id": vlan or 0}) << n * Shape.cast(GidRow).width
        dut.gids.value = table
        dut.mac_address.value = int.from_bytes(MAC, "little")
        dut.header__payload.value = 0
        dut.payload__payload.value = 0
        dut.rst.value = 1
        cocotb.start_soon(Clock(dut.clk, 4, unit="ns").start())
        await ClockCycles(dut.clk, 3)
        dut.rst.value = 0
        cocotb.start_soon(self.sink.run())
        await ClockCycles(dut.clk, 2)

    async def send(self, sent: list[Packet], *, errors=(), settle: int = 60) -> None:
        """Send all packets and wait until nothing has come out for ``settle`` cycles."""
        words = []
        for n, packet in enumerate(sent):
            words += beats(packet.payload, WIDTH, error=n in errors)
        rows = [pack(TxHeader, packet.row) for packet in sent]
        tasks = [
            cocotb.start_soon(self.header.run(rows)),
            cocotb.start_soon(self.payload.run(words)),
        ]
        for task in tasks:
            await task
        quiet = 0
        while quiet < settle:
            before = len(self.sink.words)
            await ClockCycles(self.dut.clk, 10)
            quiet = quiet + 10 if len(self.sink.words) == before else 0

    def frames(self) -> list[tuple[bytes, bool]]:
        out = list(packets(self.sink.words[self.taken :], WIDTH))
        self.taken = len(self.sink.words)
        return out

    def counters(self) -> dict[str, int]:
        return unpack(EgressCounters, int(self.dut.counters.value))


def same(frames: list[tuple[bytes, bool]], sent: list[Packet]) -> None:
    for n, ((frame, error), packet) in enumerate(zip(frames, sent, strict=False)):
        assert frame == packet.frame, (
            f"packet {n} opcode {packet.opcode:#04x} length {len(packet.payload)}:\n"
            f"{frame.hex()}\n{packet.frame.hex()}"
        )
        assert not error
    assert len(frames) == len(sent), f"{len(frames)} of {len(sent)} frames"


@cocotb.test(**DEADLINE)
async def every_opcode(dut):
    """Each opcode from each source address, byte for byte as scapy builds it."""
    bench = Bench(dut)
    await bench.start()
    rng = random.Random(1)
    sent = [Packet(rng, opcode=opcode, source=source) for opcode in OPCODES for source in range(4)]
    await bench.send(sent)
    same(bench.frames(), sent)
    size = sum(len(packet.frame) for packet in sent)
    assert bench.counters() == {"packets": len(sent), "bytes": size % (1 << BYTES), "errors": 0}
    for packet in sent:
        found = pk.dissect(packet.frame)
        carried = b"" if packet.opcode in ATOMICS else packet.payload  # a header's fields there
        assert found.icrc_good and found.payload == carried


async def _sweep(dut, sizes: list[int]) -> None:
    bench = Bench(dut)
    await bench.start()
    rng = random.Random(2)
    sent = [Packet(rng, opcode=0x01 if n % 3 else 0x0B, length=n, source=n % 4) for n in sizes]
    await bench.send(sent)
    same(bench.frames(), sent)
    total = sum(-(-len(packet.frame) // SIZE) for packet in sent)
    cycles = bench.sink.cycles[-1] - bench.sink.cycles[0] + 1
    # One by one, the next packet's headers are begun when those in front have left.
    most = total + 15 * len(sent) if ONE_BY_ONE else total
    assert total <= cycles <= most, f"{cycles} cycles for {total} beats"


@cocotb.test(**DEADLINE)
async def every_length(dut):
    """Frames of all ``lengths`` back to back: as many cycles as beats."""
    await _sweep(dut, lengths(WIDTH))


@cocotb.test(skip=ONE_BY_ONE, **DEADLINE)
async def single_beats(dut):
    """Acknowledgements only: the highest packet rate."""
    bench = Bench(dut)
    await bench.start()
    rng = random.Random(3)
    sent = [Packet(rng, opcode=0x11, source=0) for _ in range(300)]
    await bench.send(sent)
    same(bench.frames(), sent)
    total = sum(-(-len(packet.frame) // SIZE) for packet in sent)
    assert bench.sink.cycles[-1] - bench.sink.cycles[0] + 1 == total


@cocotb.test(**DEADLINE)
async def gaps_and_stalls(dut):
    """Idle headers, idle payload and a MAC that stalls, in all combinations."""
    patterns = [lambda _: never, lambda _: every(3), lambda seed: sometimes(0.6, seed)]
    rng = random.Random(4)
    bench = Bench(dut)
    await bench.start()
    for header_idle, payload_idle, stall in product(patterns, repeat=3):
        bench.header.idle, bench.payload.idle = header_idle(1), payload_idle(2)
        bench.sink.stall = stall(3)
        sent = [Packet(rng) for _ in range(12)]
        sent.append(Packet(rng, opcode=0x01, length=rng.choice([1024, 4096])))
        await bench.send(sent)
        same(bench.frames(), sent)


@cocotb.test(**DEADLINE)
async def bad_packets(dut):
    """Error in the payload, an invalid source GID, an opcode that is not sent: spoiled; a sender
    that wants to be told is told so."""
    bench = Bench(dut)
    await bench.start()
    rng = random.Random(5)
    lengths = [1, 2, SIZE - 6, SIZE - 2, SIZE, SIZE + 2, 5 * SIZE + 3, 300]
    sent = [Packet(rng, opcode=0x0A, length=n) for n in lengths for _ in range(2)]
    spoiled = set(range(0, len(sent), 2))
    wrong_gid, wrong_opcode = Packet(rng, opcode=0x04), Packet(rng, opcode=0x04)
    wrong_gid.row["av"]["sgid_index"] = 200
    wrong_opcode.row["opcode"] = 0xA4
    all_sent = [*sent, wrong_gid, Packet(rng), wrong_opcode, Packet(rng)]
    told = []

    async def listen():
        while True:
            await RisingEdge(dut.clk)
            if dut.sent.value:
                told.append(int(dut.spoiled.value))

    for packet in all_sent:
        packet.row["told"] = rng.randrange(2)
    listener = cocotb.start_soon(listen())
    await bench.send(all_sent, errors=spoiled)
    listener.cancel()
    bad = spoiled | {len(sent), len(sent) + 2}
    frames = bench.frames()
    assert len(frames) == len(all_sent)
    for n, ((frame, error), packet) in enumerate(zip(frames, all_sent, strict=True)):
        assert error == (n in bad)
        if n < len(sent):
            end = len(packet.frame.rstrip(b"\0"))
            assert frame[: end - 8] == packet.frame[: end - 8]
            assert (frame == packet.frame) == (n not in bad)
            assert pk.dissect(frame).icrc_good == (n not in bad)
    assert told == [int(n in bad) for n, one in enumerate(all_sent) if one.row["told"]]
    good = len(all_sent) - len(bad)
    counters = bench.counters()
    assert (counters["packets"], counters["errors"]) == (good, len(bad))


@cocotb.test(**DEADLINE)
async def reset_in_mid_frame(dut):
    """After a reset in mid-frame everything starts from the beginning."""
    bench = Bench(dut)
    await bench.start()
    rng = random.Random(6)
    for cycles in (1, 7, 23, 40, 61):
        long = [Packet(rng, opcode=0x01, length=4096) for _ in range(3)]
        words = [word for packet in long for word in beats(packet.payload, WIDTH)]
        tasks = [
            cocotb.start_soon(bench.header.run([pack(TxHeader, p.row) for p in long])),
            cocotb.start_soon(bench.payload.run(words)),
        ]
        await ClockCycles(dut.clk, cycles)
        for task in tasks:
            task.cancel()
        dut.header__valid.value = 0
        dut.payload__valid.value = 0
        bench.sink.forget()
        dut.rst.value = 1
        await ClockCycles(dut.clk, 2)
        dut.rst.value = 0
        await ClockCycles(dut.clk, 20)
        bench.sink.forget()
        bench.taken = len(bench.sink.words)
        sent = [Packet(rng) for _ in range(5)]
        await bench.send(sent)
        same(bench.frames(), sent)


@cocotb.test(**DEADLINE)
async def latency(dut):
    """What docs/egress.md says: from a header to the first beat."""
    bench = Bench(dut)
    await bench.start()
    packet = Packet(random.Random(8), opcode=0x11)
    await bench.header.run([pack(TxHeader, packet.row)])
    cycle = 0
    while not dut.o__valid.value:
        await ClockCycles(dut.clk, 1)
        cycle += 1
        assert cycle < 100
    assert cycle == 20 - ONE_BY_ONE
