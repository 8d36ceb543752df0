"""cocotb side of test_ingress.py. ``INGRESS`` in the environment: width and gids, see there."""

from __future__ import annotations

import os
import random
from collections import Counter
from itertools import product
from pathlib import Path

import cocotb
from amaranth.hdl import Shape
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge

from hdl.common.count import BYTES, COUNT
from hdl.ingress.counters import IngressCounters
from hdl.ports.counter_names import DROP_REASONS
from hdl.ports.headers import GidRow, PkeyRow, RxHeader
from hdl.ports.trace import Verdict
from sim.bench.packet_stream import (
    Sink,
    Source,
    always,
    beats,
    every,
    never,
    packets,
    sometimes,
)
from sim.wire import packets as pk
from sim.wire.pcap import read_pcap
from tests.fields import pack, unpack
from tests.ingress.malformed import MAC, malformed, samples, uncovered
from tests.ingress.reference import cause
from tests.lengths import lengths

WIDTH = int(os.environ["INGRESS_WIDTH"])
FULL = WIDTH == 512
SIZE = WIDTH // 8
GOLDEN = sorted((Path(__file__).parents[1] / "data" / "golden").glob("*.pcap"))
ADDRESSES = ["10.0.0.2", "10.0.0.1", "fd00::2", "fd00::1"]
GIDS = [pk.gid_bytes(address) for address in ADDRESSES]
#: The P_Key table: full and limited members, two entries of one partition, the last entry.
PKEYS = {0: 0xFFFF, 2: 0x0123, 5: 0x8123, 9: 0x0042, 15: 0x8777}
SEED = 20
#: Of each test: four million cycles.
DEADLINE = {"timeout_time": 16, "timeout_unit": "ms"}


def table(rows: list[dict]) -> int:
    """The GID table's integer."""
    width = Shape.cast(GidRow).width
    return sum(pack(GidRow, row) << width * n for n, row in enumerate(rows))


class Bench:
    """Clock, reset, streams and what has been counted since the last look."""

    def __init__(self, dut, *, idle=never, stall=never, header_stall=never):
        self.dut = dut
        self.source = Source(dut, "i", idle=idle)
        self.payload = Sink(dut, "payload", stall=stall)
        self.header = Sink(dut, "header", stall=header_stall)
        self.seen: Counter[str] = Counter()  # the counters, when they were last looked at
        self.moved: Counter[str] = Counter()
        self.taken = [0, 0]

    async def start(self, *, lossless: bool = False) -> None:
        dut = self.dut
        rows = [{"valid": 1, "function": 7 + n, "gid": gid} for n, gid in enumerate(GIDS)]
        dut.gids.value = table(rows)
        dut.pkeys__row.value = pack(PkeyRow, {f"key{n}": key for n, key in PKEYS.items()})
        dut.mac_address.value = int.from_bytes(MAC, "little")
        dut.lossless.value = int(lossless)
        dut.i__payload.value = 0
        dut.rst.value = 1
        cocotb.start_soon(Clock(dut.clk, 4, unit="ns").start())
        await ClockCycles(dut.clk, 3)
        dut.rst.value = 0
        cocotb.start_soon(self.payload.run())
        cocotb.start_soon(self.header.run())
        cocotb.start_soon(self._count())
        self.verdicts: list[str] = []
        if hasattr(dut, "verdict"):
            cocotb.start_soon(self._judge())
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
        self._look()
        moved, self.moved = self.moved, Counter()
        return {name.removeprefix("drops_"): count for name, count in moved.items() if count}

    def forget(self) -> None:
        """The room was reset: what it had counted, and what had come out, is over."""
        self.taken = [len(self.header.words), len(self.payload.words)]
        self.seen, self.moved = Counter(), Counter()
        self.verdicts = []

    def _look(self) -> None:
        now = Counter(unpack(IngressCounters, int(self.dut.counters.value)))
        for name, value in now.items():
            bits = BYTES if name == "bytes" else COUNT
            self.moved[name] += (value - self.seen[name]) % (1 << bits)
        self.seen = now

    async def _count(self) -> None:
        """Look at the counters before they can wrap."""
        while True:
            await ClockCycles(self.dut.clk, 500)
            self._look()

    async def _judge(self) -> None:
        """Collect what a trace is told of each frame: the counter of the drop, or nothing."""
        edge = RisingEdge(self.dut.clk)
        while True:
            await edge
            verdict = unpack(Verdict, int(self.dut.verdict.value))
            if verdict["valid"]:
                reasons = verdict["reasons"]
                assert reasons & (reasons - 1) == 0, "two reasons"
                name = DROP_REASONS[reasons.bit_length() - 1] if reasons else ""
                self.verdicts.append(name.removeprefix("rx_drops_"))

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
    payload = found.payload
    if fields["opcode"] == 0x12:  # what the atomic has found is payload, as it lies in memory
        payload = fields.pop("swap_add").to_bytes(8, "little")
        fields["length"] = len(payload)
    if "qkey" in fields:
        payload = pk.grh_area(frame) + payload
        fields["length"] = len(payload)
        fields["priority"] = frame[14] >> 5 if start == 18 else 0
        fields |= partition(fields["pkey"])
    return fields | {"gid_index": index, "function": 7 + index}, payload


def partition(pkey: int) -> dict[str, int]:
    """Where a datagram's P_Key is in the table."""
    for index, own in PKEYS.items():
        if own & 0x7FFF == pkey & 0x7FFF and (own | pkey) & 0x8000:
            return {"pkey_hit": 1, "pkey_index": index}
    return {"pkey_hit": 0}


def check(received, frames: list[bytes]) -> None:
    assert len(received) == len(frames), f"{len(received)} of {len(frames)} packets"
    for n, ((fields, body), frame) in enumerate(zip(received, frames, strict=True)):
        want, payload = expected(frame)
        got = {name: fields[name] for name in want}
        assert got == want, f"packet {n}: {got} is not {want}"
        assert body == payload, f"packet {n}: payload differs"


def golden() -> list[bytes]:
    """Every RoCE frame of the captures, with the card's MAC address as the destination."""
    frames = pk.roce_frames(frame for path in GOLDEN for _, frame in read_pcap(path))
    return [MAC + frame[len(MAC) :] for frame in frames]


async def judge(bench: Bench, frames: list[bytes], *, errors=()) -> Counter[str]:
    """Send frames; what is delivered and counted must be what the reference says."""
    want = [cause(f, MAC, GIDS, error=n in errors) for n, f in enumerate(frames)]
    bench.verdicts = []
    await bench.send(frames, errors=errors)
    await bench.settle()
    assert bench.verdicts == want
    good = [f for f, why in zip(frames, want, strict=True) if not why]
    counts = Counter(why or "packets" for why in want)
    counted = bench.counted()
    counted.pop("bytes", None)
    assert counted == dict(counts), f"{counted} is not {dict(counts)}"
    check(bench.received(), good)
    return counts


async def judge_each(bench: Bench, frames: list[bytes]) -> Counter[str]:
    """As they come, and then one cause after the other, so that no two can be confused."""
    counts = await judge(bench, frames)
    groups: dict[str, list[bytes]] = {}
    for frame in frames:
        groups.setdefault(cause(frame, MAC, GIDS), []).append(frame)
    for group in groups.values():
        await judge(bench, group)
    return counts


def flip(frame: bytes, bit: int) -> bytes:
    changed = bytearray(frame)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@cocotb.test(**DEADLINE)
async def captures(dut):
    """Every packet of every capture comes out as scapy sees it; where beats are small every 4th."""
    bench = Bench(dut)
    await bench.start()
    frames = golden()
    assert len(frames) > 1500
    frames = frames[:: 1 if FULL else 4]
    await bench.send(frames)
    await bench.settle()
    counted = bench.counted()
    assert counted == {"packets": len(frames), "bytes": sum(map(len, frames))}
    check(bench.received(), frames)
    assert bench.source.stalls == 0


@cocotb.test(**DEADLINE)
async def samples_pass(dut):
    bench = Bench(dut)
    await bench.start()
    await bench.send(samples())
    await bench.settle()
    counted = bench.counted()
    assert counted.get("packets") == len(samples()), counted
    check(bench.received(), samples())


@cocotb.test(**DEADLINE)
async def invalid_gids(dut):
    """A row that is not valid matches nothing; of two equal rows the lower one counts."""
    bench = Bench(dut)
    await bench.start()
    frame = samples()[0]
    rows = [{"valid": 0, "gid": GIDS[0]}, {"valid": 1, "gid": GIDS[1]}]
    rows += [{"valid": 1, "gid": GIDS[0], "function": 9}, {"valid": 1, "gid": GIDS[0]}]
    dut.gids.value = table(rows)
    await bench.send([frame])
    await bench.settle()
    ((fields, body),) = bench.received()
    assert (fields["gid_index"], fields["function"], body) == (2, 9, b"abcdefg")
    dut.gids.value = table(rows[:2])
    await bench.send([frame])
    await bench.settle()
    assert not bench.received()
    assert bench.counted()["address"] == 1


@cocotb.test(**DEADLINE)
async def flipped_bits(dut):
    """Seeded bits of every captured packet; where beats are small of every third."""
    bench = Bench(dut)
    await bench.start()
    rng = random.Random(SEED)
    frames = []
    for frame in golden()[:: 1 if FULL else 3]:
        for _ in range(2 if len(frame) < 200 or rng.random() < 0.2 else 1):
            # Half of them in the headers, where the bits differ most.
            size = min(len(frame), 80) if rng.random() < 0.5 else len(frame)
            frames.append(flip(frame, rng.randrange(8 * size)))
    counts = await judge(bench, frames)
    assert {"icrc", "ipv4_checksum", "packets", "ethertype", "not_roce"} <= set(counts)


@cocotb.test(**DEADLINE)
async def every_bit(dut):
    """All bits of one packet of every kind; bits that nothing covers by their own table.

    Where beats are small every third bit goes through the gateware: two or three of each byte.
    """
    bench = Bench(dut)
    await bench.start()
    for frame in samples():
        free = uncovered(frame)
        frames = [flip(frame, bit) for bit in range(8 * len(frame))]
        for bit, changed in enumerate(frames):
            why = cause(changed, MAC, GIDS)
            expected_why = free.get(bit)
            assert (why == expected_why) if bit in free else why, f"bit {bit} of {frame.hex()}"
        await judge_each(bench, frames[:: 1 if FULL else 3])


@cocotb.test(**DEADLINE)
async def malformed_packets(dut):
    """Whatever a peer can send that is wrong: the reference's cause for each."""
    bench = Bench(dut)
    await bench.start()
    frames = malformed()
    counts = await judge_each(bench, frames)
    causes = {name.removeprefix("drops_") for name in unpack(IngressCounters, 0)}
    elsewhere = {"unclaimed", "multicast_copies"}  # tests/ingress/bench_groups.py
    assert causes - set(counts) == {"frame", "buffer", "bytes"} | elsewhere
    random.Random(SEED).shuffle(frames)
    await judge(bench, frames)
    # Cut at every length.
    cuts = [frame[:size] for frame in samples() for size in range(1, len(frame))]
    await judge_each(bench, cuts)
    # Marked by the MAC.
    good = golden()[:60]
    await judge(bench, good, errors=set(range(0, 60, 3)))


@cocotb.test(**DEADLINE)
async def partitions(dut):
    """Datagrams of every partition, with every priority, one behind the other."""
    bench = Bench(dut)
    await bench.start()
    rng, frames = random.Random(SEED), []
    near = [pkey ^ bit for pkey in PKEYS.values() for bit in (0, 0x8000, 1, 0x4000)]
    for number, pkey in enumerate(3 * [*near, 0x0777, 0x4777]):
        tag = {"vlan": 9, "priority": number % 8} if number % 3 else {}
        fields = {"qkey": 5, "src_qp": rng.getrandbits(24), "pkey": pkey} | tag
        frames.append(pk.build(0x64, dst_mac=MAC, payload=bytes(number % 9), **fields))
    assert {partition(pkey).get("pkey_index") for pkey in near} == {None, 0, 2, 5, 9, 15}
    await judge(bench, frames)


@cocotb.test(**DEADLINE)
async def every_length(dut):
    """Frames of 58 to 4200 bytes without a gap: one beat per cycle, nothing held back."""
    bench = Bench(dut)
    await bench.start()
    opcodes = [(0x01, {}), (0x0B, {"rkey": 3}), (0x0D, {"msn": 5})]
    opcodes += [(0x64, {"qkey": 5, "src_qp": 9}), (0x65, {"qkey": 7, "imm": b"imm!"})]
    frames = []
    for number, length in enumerate(lengths(WIDTH)):
        opcode, fields = opcodes[number % 5]
        fields = fields | {"vlan": 7} if length % 7 == 1 else fields
        v6 = {"src_gid": GIDS[3], "dst_gid": GIDS[2]} if length % 5 == 1 else {}
        payload = random.Random(length).randbytes(length)
        frame = pk.build(opcode, payload=payload, pad_frame=False, **v6, **fields)
        # Packets are 2 modulo 4 bytes long; bytes behind them give the lengths between.
        frames.append(frame + bytes(range(length // 4 % 4)))
    frames[-1] = frames[-1].ljust(4200, b"x")
    assert min(map(len, frames)) == 58 and max(map(len, frames)) == 4200
    await bench.send(frames)
    await bench.settle()
    check(bench.received(), frames)
    assert bench.source.stalls == 0
    between = sum(-(-len(frame) // SIZE) for frame in frames[1:])
    assert bench.header.cycles[-1] - bench.header.cycles[0] == between


@cocotb.test(**DEADLINE)
async def single_beats(dut):
    """The smallest packets back to back: at 512 bits one each cycle."""
    bench = Bench(dut)
    await bench.start()
    frames = [pk.build(0x11, psn=n, msn=n, pad_frame=False) for n in range(300)]
    await bench.send(frames)
    await bench.settle()
    check(bench.received(), frames)
    per_frame = -(-len(frames[0]) // SIZE)
    assert bench.header.cycles[-1] - bench.header.cycles[0] == 299 * per_frame


def mixed(rng: random.Random, count: int) -> list[bytes]:
    """Packets of the lengths that matter, of both IP versions, tagged and not."""
    frames = []
    for _ in range(count):
        length = rng.choice([0, 1, SIZE - 1, SIZE, SIZE + 1, 5 * SIZE, 1024, rng.randrange(2000)])
        opcode = rng.choice([0x04, 0x0A, 0x24, 0x64])
        v6 = {"src_gid": GIDS[3], "dst_gid": GIDS[2]} if rng.random() < 0.5 else {}
        vlan = rng.choice([None, 1, 100])
        payload = rng.randbytes(length)
        frames.append(pk.build(opcode, payload=payload, psn=rng.getrandbits(24), vlan=vlan, **v6))
    return frames


@cocotb.test(**DEADLINE)
async def gaps_and_stalls(dut):
    """Idle input and stalled outputs in all combinations; with ``lossless`` nothing is lost."""
    patterns = [lambda _: never, lambda _: every(3), lambda seed: sometimes(0.7, seed)]
    rng = random.Random(SEED)
    bench = Bench(dut)
    await bench.start(lossless=True)
    for idle, stall, header_stall in product(patterns, repeat=3):
        bench.source.idle = idle(1)
        bench.payload.stall, bench.header.stall = stall(2), header_stall(3)
        frames = mixed(rng, 14)
        await bench.send(frames)
        await bench.settle()
        check(bench.received(), frames)
    assert set(bench.counted()) == {"packets", "bytes"}


@cocotb.test(**DEADLINE)
async def lossless_holds_back(dut):
    """A consumer slower than the wire: the MAC waits, every packet arrives."""
    bench = Bench(dut, stall=sometimes(0.8, 1), header_stall=sometimes(0.5, 2))
    await bench.start(lossless=True)
    frames = [pk.build(0x01, payload=bytes([n] * 4096), psn=n) for n in range(24)]
    frames += [pk.build(0x11, psn=n) for n in range(300)]
    bad = [flip(frame, 8 * 60) for frame in frames[:4]]
    frames = [*frames[:6], *bad, *frames[6:]]
    await bench.send(frames)
    await bench.settle(400)
    check(bench.received(), [*frames[:6], *frames[10:]])
    assert bench.source.stalls > 100
    assert bench.counted()["icrc"] == 4


@cocotb.test(**DEADLINE)
async def full_buffer_drops(dut):
    """Nothing is taken out: what does not fit is dropped whole and counted, the rest is good."""
    bench = Bench(dut, stall=always, header_stall=always)
    await bench.start()
    frames = [pk.build(0x01, payload=bytes([n] * 1000), psn=n) for n in range(40)]
    frames += [pk.build(0x11, psn=0x100 + n) for n in range(200)]
    await bench.send(frames)
    await bench.settle(100)
    bench.payload.stall = bench.header.stall = never
    await bench.settle(100)
    counted, received = bench.counted(), bench.received()
    assert counted["packets"] == len(received)
    assert counted["packets"] + counted["buffer"] == len(frames)
    assert counted["buffer"] > 20 + 30
    kept = {fields["psn"] for fields, _ in received}
    stays = [pk.dissect(f).fields["psn"] in kept for f in frames]
    check(received, [f for f, stay in zip(frames, stays, strict=True) if stay])
    assert bench.verdicts == ["" if stay else "buffer" for stay in stays]
    assert bench.source.stalls == 0
    # And then everything fits again.
    await judge(bench, golden()[:50])


@cocotb.test(**DEADLINE)
async def reset_in_mid_packet(dut):
    """A reset at any moment leaves nothing behind."""
    bench = Bench(dut)
    await bench.start()
    frames = golden()[:40]
    words = [word for frame in frames for word in beats(frame, WIDTH)]
    for cycles in (1, 2, 5, 11, 17, 19, 30):
        task = cocotb.start_soon(bench.source.run(words))
        await ClockCycles(dut.clk, cycles)
        task.cancel()
        dut.i__valid.value = 0
        dut.rst.value = 1
        await ClockCycles(dut.clk, 2)
        bench.payload.forget()
        bench.header.forget()
        dut.rst.value = 0
        await ClockCycles(dut.clk, 40)
        bench.forget()
        assert not bench.counted()
        await judge(bench, frames)


@cocotb.test(**DEADLINE)
async def latency(dut):
    """What docs/ingress.md says: from a frame's last beat to its header and payload."""
    bench = Bench(dut)
    await bench.start()
    for length in (1, 64, 200):
        await bench.send([pk.build(0x04, payload=bytes(length))])
        cycles = dict.fromkeys(("header", "payload"), 0)
        for cycle in range(1, 40):
            await ClockCycles(dut.clk, 1)
            for name in cycles:
                if getattr(dut, f"{name}__valid").value and not cycles[name]:
                    cycles[name] = cycle
        assert cycles == {"header": 16, "payload": 20}
