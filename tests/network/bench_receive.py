"""Frames come, and the driver gets those that it wants, byte for byte."""

from __future__ import annotations

import cocotb

from hdl.ports.counter_names import DROP_REASONS
from tests.network import packets
from tests.network.driver import (
    BROADCAST,
    GOOD,
    GUEST_CSUM,
    HEADER,
    MAC,
    MRG_RXBUF,
    NetBench,
    Receiver,
    frame_of,
)
from tests.network.toeplitz import Spread


def reason(name: str) -> int:
    return 1 << DROP_REASONS.index(f"rx_drops_{name}")


NOT_RDMA = reason("ethertype")


def lengths(bench: NetBench) -> list[int]:
    lanes = bench.width // 8
    edges = {n * lanes - HEADER + d for n in (2, 3, 8) for d in (-1, 0, 1)}
    edges |= {n * lanes + d for n in (1, 2, 4) for d in (-1, 0, 1)}
    return sorted(n for n in edges | {14, 60, 64, 1514} if n >= 14)


async def reach(dut, stall: float) -> None:
    """Frames of all lengths, at any address, in chains of one buffer, of more, and indirect."""
    bench = NetBench(dut, seed=3 + bool(stall), stall=stall)
    await bench.begin(gap=stall)
    driver = Receiver(bench, 0, vector=3)
    frames = [frame_of(bench.rng, length) for length in lengths(bench)]
    for n in range(len(frames)):
        if n % 3 == 0:
            driver.post(1600)
        elif n % 3 == 1:
            driver.post(HEADER, 700, 900)
        else:
            driver.post(5, 1595, indirect=True)
    bench.kick(0)
    await bench.cycles(2500)
    for n, frame in enumerate(frames):
        bench.tap.send(frame, (NOT_RDMA, reason("not_roce"), reason("address"))[n % 3])
    await bench.until(lambda: driver.reap() == len(frames), 20000, "all frames")
    assert driver.frames == frames
    assert all(header == bytes(10) + b"\1\0" for header in driver.headers)
    await bench.until(lambda: bench.raised(3) > 0, 500, "an interrupt")
    await bench.cycles(8)
    counts = bench.counts()
    assert counts["net_rx_drops_queue"] == 0 and counts["net_rx_drops_buffer"] == 0
    assert counts["net_rx_frames"] == len(frames)
    assert counts["net_rx_bytes"] == sum(map(len, frames)) & 0x3FFFF
    assert not bench.errors.items


@cocotb.test()
async def frames_reach_their_buffers(dut):
    """While nobody waits."""
    await reach(dut, 0.0)


@cocotb.test()
async def frames_reach_their_buffers_slowly(dut):
    """With gaps, and a host that keeps everybody waiting."""
    await reach(dut, 0.3)


@cocotb.test()
async def frames_are_spread_over_buffers(dut):
    """With MRG_RXBUF a frame has as many chains as it needs."""
    bench = NetBench(dut, seed=5, stall=0.2)
    await bench.begin(features=MRG_RXBUF)
    driver = Receiver(bench, 0)
    rng = bench.rng
    for _ in range(120):
        driver.post(
            *[rng.choice((1, 13, 40, 64, 128, 300, 511)) for _ in range(rng.choice((1, 2)))]
        )
    bench.kick(0)
    await bench.cycles(6000)
    frames = [frame_of(rng, rng.choice((60, 64, 300, 700))) for _ in range(12)]
    for frame in frames:
        bench.tap.send(frame, NOT_RDMA)
        await bench.cycles(1500)
    await bench.cycles(2000)
    driver.reap()
    counts = bench.counts()
    assert counts["net_rx_frames"] + counts["net_rx_drops_queue"] == len(frames)
    assert counts["net_rx_frames"] >= 6
    got = iter(frames)
    assert all(any(frame == sent for sent in got) for frame in driver.frames)
    assert len(driver.frames) == counts["net_rx_frames"]


@cocotb.test()
async def longest_frame(dut):
    """A frame of 9234 bytes is written in bursts; one more is dropped."""
    bench = NetBench(dut, seed=6)
    await bench.begin()
    driver = Receiver(bench, 0)
    for _ in range(3):
        driver.post(9300)
    bench.kick(0)
    await bench.cycles(500)
    frames = [frame_of(bench.rng, length) for length in (9234, 9235, 4096 - HEADER, 4097 - HEADER)]
    for frame in frames:
        bench.tap.send(frame, NOT_RDMA)
    await bench.until(lambda: driver.reap() == 3, 20000, "the frames")
    del frames[1]
    assert driver.frames == frames and bench.counts()["net_rx_drops_buffer"] == 1


@cocotb.test()
async def only_what_the_driver_wants(dut):
    """Broken frames, frames of RDMA and frames to others do not reach the driver."""
    bench = NetBench(dut, seed=7)
    other, listed, group = b"\2abcde", b"\2listd", b"\1\0\x5e\0\0\1"
    listed_group = b"\1\0\x5e\0\0\7"
    table = [{"valid": 1, "address": int.from_bytes(a, "little")} for a in (listed, listed_group)]
    packed = sum((one["valid"] | one["address"] << 1) << 49 * n for n, one in enumerate(table))
    await bench.begin(table=packed)
    driver = Receiver(bench, 0)
    wanted = []
    filtered = 0

    async def send(frame, reasons=NOT_RDMA, *, comes, error=False):
        nonlocal filtered
        driver.post(1600)
        bench.kick(0)
        await bench.cycles(150)
        bench.tap.send(frame, reasons, error=error)
        await bench.cycles(100)
        if comes:
            wanted.append(frame)
        elif reasons == NOT_RDMA:
            filtered += 1
        driver.reap()
        assert driver.frames == wanted, (frame[:6].hex(), comes)
        assert bench.counts()["net_rx_filtered"] == filtered

    def to(address):
        return frame_of(bench.rng, 80, address)

    for address, comes in (
        (MAC, True),
        (BROADCAST, True),
        (listed, True),
        (listed_group, True),
        (other, False),
        (group, False),
    ):
        await send(to(address), comes=comes)
    for name in ("frame", "icrc", "udp_checksum", "opcode", "pkey", "buffer", "cnp"):
        await send(to(MAC), reason(name), comes=False)
    await send(to(MAC), GOOD, comes=False)
    names = ("mac", "multicast", "short", "ip_header", "ipv4_checksum", "ip_length", "udp_length")
    for name in names:
        await send(to(MAC), reason(name), comes=True)
    for setting, address, comes in (
        ("promiscuous", other, True),
        ("all_multicast", group, True),
        ("all_unicast", other, True),
        ("no_broadcast", BROADCAST, False),
        ("no_unicast", MAC, False),
        ("no_multicast", listed_group, False),
    ):
        bench.set(**{setting: 1})
        await send(to(address), comes=comes)
        bench.set(**{setting: 0})
        await send(to(other), comes=False)
    bench.set(running=0)
    await send(to(MAC), comes=False)


@cocotb.test()
async def no_buffer_no_frame(dut):
    """Without buffers frames are dropped at once and counted; with new ones they come again."""
    bench = NetBench(dut, seed=8)
    await bench.begin()
    driver = Receiver(bench, 0)
    for _ in range(100):
        bench.tap.send(frame_of(bench.rng, 200), NOT_RDMA)
    await bench.until(lambda: bench.counts()["net_rx_drops_queue"] == 100, 6000, "drops")
    driver.post(100)  # too small, and stays
    bench.kick(0)
    await bench.cycles(200)
    bench.tap.send(frame_of(bench.rng, 200), NOT_RDMA)
    await bench.until(lambda: bench.counts()["net_rx_drops_queue"] == 101, 300, "a drop")
    frame = frame_of(bench.rng, 80)
    bench.tap.send(frame, NOT_RDMA)
    await bench.until(lambda: driver.reap() == 1, 300, "the frame that fits")
    assert driver.frames == [frame]


@cocotb.test()
async def events_are_as_asked_for(dut):
    """With EVENT_IDX: the driver is asked for a notification, and interrupted where it wants."""
    bench = NetBench(dut, seed=9)
    bench.rules["event_idx"] = 1
    await bench.begin()
    driver = Receiver(bench, 0, vector=5)
    driver.queue.set_used_event(2)
    for _ in range(4):
        driver.post(1600)
    bench.kick(0)
    await bench.until(lambda: driver.queue.avail_event() == 4, 500, "avail_event")
    for n in range(4):
        assert bench.raised(5) == (n > 2), n
        bench.tap.send(frame_of(bench.rng, 80), NOT_RDMA)
        await bench.cycles(200)
        assert driver.reap() == n + 1
    assert bench.raised(5) == 1


@cocotb.test()
async def flows_are_steered(dut):
    """Each frame goes to the queue that its hash says, and frames of a queue keep their order."""
    bench = NetBench(dut, seed=10)
    rng = bench.rng
    await bench.begin(promiscuous=1)
    drivers = [Receiver(bench, pair) for pair in range(2)]
    seen = [0, 0]
    for types, size, other in ((63, 128, 0), (2, 64, 1), (0, 1, 1), (63, 1, 0)):
        table = tuple(rng.randrange(2) for _ in range(size))
        spread = Spread(types, rng.randbytes(40), table, other)
        bench.set(steering=spread.values())
        frames = [
            packets.Shape(rng.choice((4, 6)), rng.choice((6, 17)), payload=20).build(rng)
            for _ in range(30)
        ] + [frame_of(rng, 60) for _ in range(4)]
        rng.shuffle(frames)
        for driver in drivers:
            for _ in frames:
                driver.post(300)
            bench.kick(driver.number)
        await bench.cycles(600)
        for frame in frames:
            bench.tap.send(frame, NOT_RDMA)
        wanted = [[one for one in frames if spread.pair(one) == pair] for pair in range(2)]
        goal = [before + len(those) for before, those in zip(seen, wanted, strict=True)]
        await bench.until(lambda g=goal: [one.reap() for one in drivers] == g, 5000, "all frames")
        assert [one.frames[n:] for one, n in zip(drivers, seen, strict=True)] == wanted
        seen = goal
    assert all(seen)


@cocotb.test()
async def pairs_that_are_not_there(dut):
    """Whatever the table says, a frame goes to one of the pairs that the card has."""
    bench = NetBench(dut, seed=17)
    await bench.begin(steering={"other": 7})
    driver = Receiver(bench, 1)
    driver.post(300)
    bench.kick(driver.number)
    await bench.cycles(300)
    frame = frame_of(bench.rng, 60)
    bench.tap.send(frame, NOT_RDMA)
    await bench.until(lambda: driver.reap() == 1, 500, "the frame")
    assert driver.frames == [frame]


async def checked(dut, features: int, stall: float) -> None:
    """Packets of each shape, right and spoilt: the header of each frame tells which is which."""
    bench = NetBench(dut, seed=11 + bool(stall), stall=stall)
    await bench.begin(features=features, gap=stall, promiscuous=1)
    driver, rng, frames = Receiver(bench, 0), bench.rng, []
    for shape in packets.shapes(rng):
        frame = shape.build(rng)
        if len(frame) < 1500 and rng.random() < 0.6:
            frames.append(frame)
            if rng.random() < 0.5:
                frames.append(packets.spoilt(frame, rng.randrange(12, len(frame)), rng))
    for start in range(0, len(frames), 40):
        some = frames[start : start + 40]
        for frame in some:
            rest = HEADER + len(frame) - 200 if features & MRG_RXBUF else 0
            driver.post(200 if features & MRG_RXBUF else 1600)
            if rest > 0:
                driver.post(rest)
        bench.kick(0)
        await bench.cycles(1500)
        for frame in some:
            bench.tap.send(frame, NOT_RDMA)
        done = min(start + 40, len(frames))
        await bench.until(lambda n=done: driver.reap() == n, 20000, "the frames")
    assert driver.frames == frames
    told = [header[0] for header in driver.headers]
    wanted = [2 * (bool(features & GUEST_CSUM) and packets.right(frame)) for frame in frames]
    assert told == wanted
    assert all(not any(header[1:10]) for header in driver.headers)
    if features & GUEST_CSUM:
        assert 30 < sum(map(bool, told)) < len(frames) - 30


@cocotb.test()
async def checksums_are_told(dut):
    await checked(dut, GUEST_CSUM, 0.0)


@cocotb.test()
async def checksums_are_told_slowly(dut):
    """With gaps, and of frames that fill several buffers."""
    await checked(dut, GUEST_CSUM | MRG_RXBUF, 0.2)


@cocotb.test()
async def checksums_nobody_wants_to_know(dut):
    await checked(dut, 0, 0.0)
