"""cocotb side of test_ingress.py: datagrams to groups among other packets, of two functions."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product

import cocotb
from amaranth.hdl import Shape
from cocotb.triggers import ClockCycles, RisingEdge

from hdl.abi.limits import GROUP_MEMBERS
from hdl.ports.headers import GroupAddress, GroupRow
from sim.bench.packet_stream import always, beats, every, never, sometimes
from sim.wire import packets as pk
from tests.fields import pack
from tests.ingress.bench_ingress import DEADLINE, GIDS, SEED, SIZE, WIDTH, Bench, expected, flip
from tests.ingress.malformed import MAC
from tests.ingress.reference import cause

SHARE = 4  # groups of a function
V4, V6, ALONE, EMPTY, LEFT = (
    pk.gid_bytes(address)
    for address in ("239.129.2.3", "ff15::7:1", "ff02::1:2", "224.0.0.9", "239.1.2.3")
)
#: Row -> address and members by place. V4 is a group of both functions; of LEFT, whose MAC address
#: is that of V4, and of EMPTY nobody is a member any more.
ROWS: dict[int, tuple[bytes, dict[int, int]]] = {
    1: (V4, {0: 0x10001, 1: 0x10003}),
    2: (EMPTY, {}),
    3: (LEFT, {}),
    4: (V4, dict(enumerate(range(0x20000, 0x20000 + GROUP_MEMBERS)))),
    6: (V6, {0: 0x20009}),
}
#: Functions of the guests.
FUNCTIONS = (1, 2)


def members(gid: bytes) -> list[tuple[int, int]]:
    """(function, QPN) of each member, in the order of their copies."""
    rows = (row for row in ROWS.items() if row[1][0] == gid)
    return [
        (FUNCTIONS[number // SHARE], places[place])
        for number, (_, places) in rows
        for place in sorted(places)
    ]


def mac(gid: bytes) -> bytes:
    """Of a group: RFC 1112, 6.4, or RFC 2464, 7."""
    if gid[0] == 0xFF:
        return b"\x33\x33" + gid[12:]
    return b"\x01\x00\x5e" + bytes([gid[13] % 128]) + gid[14:]


def datagram(gid: bytes, length: int, rng: random.Random, **changes) -> bytes:
    source = GIDS[3] if gid[0] == 0xFF else GIDS[1]
    fields = {"dst_mac": mac(gid), "dst_gid": gid, "src_gid": source, "dest_qp": 0xFFFFFF}
    fields |= {"qkey": rng.getrandbits(32), "src_qp": 9, "psn": rng.getrandbits(24)}
    return pk.build(0x64, payload=rng.randbytes(length), **fields | changes)


class GroupBench(Bench):
    """With groups, whose table answers a cycle after it was asked."""

    async def start(self, **options) -> None:
        width = Shape.cast(GroupAddress).width
        rows = {n: {"valid": 1, "gid": gid} for n, (gid, _) in ROWS.items()}
        self.dut.groups.value = sum(pack(GroupAddress, row) << width * n for n, row in rows.items())
        await super().start(**options)
        cocotb.start_soon(self._table())

    async def _table(self) -> None:
        port, index = self.dut, 0
        while True:
            await RisingEdge(port.clk)
            if port.group_rows__enable.value == 1:
                index = int(port.group_rows__index.value)
                gid, places = ROWS.get(index, (bytes(16), {}))
                row = {"valid": 1, "gid": gid} | {f"member{n}": q for n, q in places.items()}
                port.group_rows__row.value = pack(GroupRow, row)


def judge(bench: GroupBench, frames: list[bytes]) -> Counter[str]:
    """What has come out must be what the reference says; returns what was counted."""
    groups = [gid for gid, _ in ROWS.values()]
    received, counts = iter(bench.received()), Counter[str]()
    for number, frame in enumerate(frames):
        why = cause(frame, MAC, GIDS, groups)
        counts[why or "packets"] += 1
        if why:
            continue
        start = 18 if frame[12:14] == b"\x81\x00" else 14
        if frame[:6] == MAC:
            copies = [(None, None)]
        else:
            v4 = frame[start] >> 4 == 4
            at = start + (16 if v4 else 24)
            raw = frame[at : at + (4 if v4 else 16)]
            copies = members(bytes(10) + b"\xff\xff" + raw if v4 else raw)
            counts["multicast_copies"] += len(copies)
            counts["unclaimed"] += not copies
        for function, qpn in copies:
            fields, body = next(received)
            want, payload = expected(frame) if qpn is None else copy_of(frame, function, qpn)
            got = {name: fields[name] for name in want}
            assert got == want, f"packet {number}: {got} is not {want}"
            assert body == payload, f"packet {number}: payload differs"
    assert next(received, None) is None, "more packets than frames"
    counted = Counter(bench.counted())
    counted.pop("bytes", None)
    assert counted == +counts, f"{counted} is not {+counts}"
    return counts


def copy_of(frame: bytes, function: int, qpn: int) -> tuple[dict, bytes]:
    """A copy is the datagram with the member's number and function."""
    fields = {
        name: int.from_bytes(value, "little") if isinstance(value, bytes) else value
        for name, value in pk.dissect(frame).fields.items()
    }
    payload = pk.grh_area(frame) + pk.dissect(frame).payload
    wanted = fields | {"dest_qp": qpn, "function": function, "length": len(payload)}
    return wanted, payload


def mixed(rng: random.Random, count: int) -> list[bytes]:
    """Datagrams to groups among packets to the card, of the lengths that matter."""
    frames = []
    for _ in range(count):
        length = rng.choice([0, 1, SIZE - 1, SIZE, SIZE + 1, 1024, rng.randrange(2000)])
        if rng.random() < 0.5:
            tag = {"vlan": 5, "priority": 3} if rng.random() < 0.3 else {}
            frames.append(datagram(rng.choice([V4, V6, EMPTY, LEFT]), length, rng, **tag))
        else:
            frames.append(pk.build(rng.choice([0x04, 0x64]), payload=rng.randbytes(length)))
    return frames


@cocotb.test(**DEADLINE)
async def filter_of_groups(dut):
    """Each way in which a frame is not for a group, and beside it each in which it is."""
    bench, rng = GroupBench(dut), random.Random(SEED)
    await bench.start()
    frames = []
    for gid in (V4, V6):
        good = datagram(gid, 20, rng)
        frames += [good, datagram(gid, 20, rng, vlan=4), datagram(gid, 0, rng)]
        # A MAC address of another group, each bit of it; the card's own; a unicast destination.
        frames += [flip(good, bit) for bit in range(48)]
        frames.append(MAC + good[6:])
        unicast = {"dst_gid": GIDS[2] if gid == V6 else GIDS[0]}
        frames.append(datagram(gid, 20, rng, **unicast))
        # No datagram, or not to QP FFFFFFh.
        frames += [datagram(gid, 20, rng, dest_qp=qpn) for qpn in (0, 0x10001, 0xFFFFFE, 0x7FFFFF)]
        rest = {"dst_mac": mac(gid), "dst_gid": gid, "src_gid": GIDS[3 if gid == V6 else 1]}
        frames += [pk.build(op, payload=b"1234", dest_qp=0xFFFFFF, **rest) for op in (0x04, 0x24)]
        frames.append(flip(good, 8 * 60))  # a wrong ICRC
    # Groups that nobody has, one of them with the MAC address of another; ARP and neighbours.
    frames += [datagram(ALONE, 20, rng), datagram(pk.gid_bytes("224.1.2.3"), 20, rng)]
    arp = b"\xff" * 6 + MAC + b"\x08\x06" + bytes(46)
    frames += [
        arp,
        bytes.fromhex("3333ff000002") + arp[6:],
        bytes.fromhex("01005e800001") + arp[6:],
    ]
    await bench.send(frames)
    await bench.settle()
    counts = judge(bench, frames)
    assert {"mac", "multicast", "address", "icrc", "multicast_copies"} <= set(counts)
    for frame in frames:  # one after the other, so that no two can be confused
        await bench.send([frame])
        await bench.settle(150)
        judge(bench, [frame])


@cocotb.test(**DEADLINE)
async def gaps_and_stalls(dut):
    """Idle input and stalled outputs in all combinations; with ``lossless`` nothing is lost."""
    patterns = [lambda _: never, lambda _: every(3), lambda seed: sometimes(0.7, seed)]
    bench, rng = GroupBench(dut), random.Random(SEED)
    await bench.start(lossless=True)
    for idle, stall, header_stall in product(patterns, repeat=3):
        bench.source.idle = idle(1)
        bench.payload.stall, bench.header.stall = stall(2), header_stall(3)
        frames = mixed(rng, 14)
        await bench.send(frames)
        await bench.settle(150)
        judge(bench, frames)


@cocotb.test(**DEADLINE)
async def longest(dut):
    """The longest datagram, ten times over; behind it a packet waits for no more than these."""
    bench, rng = GroupBench(dut), random.Random(SEED)
    await bench.start(lossless=True)
    frames = [datagram(V4, 4096, rng), pk.build(0x04, payload=b"behind")]
    await bench.send(frames)
    await bench.settle(150)
    copies = len(members(V4))
    before, last = bench.payload.cycles[0], bench.payload.cycles[-1]
    judge(bench, frames)
    assert last - before <= (copies * (4096 + 40) + 6) // SIZE + 12 * copies + 40


@cocotb.test(**DEADLINE)
async def many_more_than_fit(dut):
    """Copies take no room: what finds the buffer full is dropped whole, and what is kept leaves."""
    bench, rng = GroupBench(dut, stall=always, header_stall=always), random.Random(SEED)
    await bench.start()
    frames = [datagram(V4, 1000, rng) for _ in range(30)]
    await bench.send(frames)
    bench.payload.stall = bench.header.stall = never
    await bench.settle(400)
    counted, received = bench.counted(), bench.received()
    assert counted["packets"] + counted["buffer"] == len(frames) and counted["buffer"] > 5
    assert counted["multicast_copies"] == len(received) == counted["packets"] * len(members(V4))
    dut.lossless.value = 1
    frames = mixed(rng, 12)  # and then everything fits again
    bench.source.idle = sometimes(0.8, 3)
    await bench.send(frames)
    await bench.settle(400)
    judge(bench, frames)


@cocotb.test(**DEADLINE)
async def reset_between_copies(dut):
    """A reset at any moment leaves nothing behind."""
    bench, rng = GroupBench(dut), random.Random(SEED)
    await bench.start()
    frames = [datagram(V4, 200, rng) for _ in range(4)]
    words = [word for frame in frames for word in beats(frame, WIDTH)]
    for cycles in (40, 60, 75, 90, 120, 150):
        await bench.source.run(words)
        await ClockCycles(dut.clk, cycles)
        dut.i__valid.value = 0
        dut.rst.value = 1
        await ClockCycles(dut.clk, 2)
        bench.payload.forget()
        bench.header.forget()
        dut.rst.value = 0
        await ClockCycles(dut.clk, 40)
        bench.forget()
        good = mixed(rng, 6)
        bench.source.idle = sometimes(0.5, 1)
        await bench.send(good)
        await bench.settle(300)
        judge(bench, good)
        bench.source.idle = never
