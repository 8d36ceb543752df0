"""The driver sends, and its frames leave without their headers, byte for byte."""

from __future__ import annotations

import struct

import cocotb

from tests.network.driver import CSUM, HEADER, NetBench, Sender, frame_of

NO_MEMORY = 4096  # nothing answers there


def lengths(bench: NetBench) -> list[int]:
    lanes = bench.width // 8
    edges = {n * lanes + d for n in (2, 3, 8) for d in (-1, 0, 1)}
    edges |= {n * lanes - HEADER + d for n in (1, 3, 4) for d in (-1, 0, 1)}
    return sorted(n for n in edges | {14, 15, 60, 1514} if n >= 14)


def cuts(bench: NetBench, n: int, length: int) -> dict:
    """How a chain is made: of one buffer, of header and frame, of many, indirect."""
    rng, total = bench.rng, HEADER + length
    if n % 4 == 0:
        return {}
    if n % 4 == 1:
        return {"cuts": (HEADER,)}
    some = tuple(sorted(rng.sample(range(1, total), 4)))
    return {"cuts": some, "indirect_from": None if n % 4 == 2 else rng.choice((0, 2))}


async def send(dut, stall: float) -> None:
    """Frames of all lengths in all kinds of chains, in order; all chains come back."""
    bench = NetBench(dut, seed=13 + bool(stall), stall=stall)
    await bench.begin()
    driver = Sender(bench, 0, vector=6)
    frames = [frame_of(bench.rng, length) for length in lengths(bench)]
    for n, frame in enumerate(frames):
        driver.send(frame, **cuts(bench, n, len(frame)))
    bench.kick(1)
    await bench.until(lambda: driver.returned() == len(frames), 40000, "all chains")
    await bench.until(lambda: len(bench.sent_times) == len(frames), 4000, "all frames")
    assert bench.sent() == [(frame, False) for frame in frames]
    await bench.until(lambda: bench.raised(6) > 0, 500, "an interrupt")
    counts = bench.counts()
    assert counts["net_tx_frames"] == len(frames) and counts["net_tx_errors"] == 0
    assert counts["net_tx_bytes"] == sum(map(len, frames)) & 0x3FFFF
    for n in range(len(frames)):
        assert driver.queue.used(n) == (driver.queue.offered[n], 0)
    assert not bench.errors.items


@cocotb.test()
async def frames_leave(dut):
    """While nobody waits."""
    await send(dut, 0.0)


@cocotb.test()
async def frames_leave_slowly(dut):
    """With a host and a wire that keep everybody waiting."""
    await send(dut, 0.3)


@cocotb.test()
async def chains_that_are_no_frames(dut):
    """Too short, too long, or not to be read: they go back, are counted, and nothing leaves."""
    bench = NetBench(dut, seed=15, stall=0.1)
    await bench.begin()
    driver = Sender(bench, 0)
    rng, good, bad = bench.rng, [], 0

    def sound() -> None:
        good.append(frame_of(rng, rng.choice((60, 200))))
        driver.send(good[-1])

    for total in (1, 5, HEADER, HEADER + 13):
        driver.post(rng.randbytes(total))
        bad += 1
        sound()
    longest = frame_of(rng, 9234)
    driver.send(longest)
    good.append(longest)
    for total in (HEADER + 9235, 12000):
        driver.post(rng.randbytes(total), cuts=(HEADER, 4000))
        bad += 1
        sound()
    # A buffer of 128 KiB and more, which is not read at all, in front of a frame's bytes.
    addr = bench.memory.alloc(64)
    driver.queue.offer(driver.queue.chain([(addr, 1 << 20, False), (addr, 64, False)]))
    driver.sent += 1
    bad += 1
    sound()
    # Memory that does not answer.
    driver.queue.offer(driver.queue.chain([(addr, 12, False), (NO_MEMORY, 100, False)]))
    driver.sent += 1
    bad += 1
    sound()
    bench.kick(1)
    await bench.until(lambda: driver.returned() == driver.sent, 60000, "all chains")
    await bench.until(lambda: len(bench.sent_times) == len(good), 4000, "the good frames")
    assert bench.sent() == [(frame, False) for frame in good]
    counts = bench.counts()
    assert counts["net_tx_frames"] == len(good) and counts["net_tx_errors"] == bad
    assert not bench.errors.items


@cocotb.test()
async def wire_that_stands_still(dut):
    """Chains wait while nothing leaves, and none is lost."""
    bench = NetBench(dut, seed=16)
    await bench.begin()
    driver = Sender(bench, 0)
    bench.open = False
    frames = [frame_of(bench.rng, 1500) for _ in range(60)]
    for frame in frames:
        driver.send(frame)
    bench.kick(1)
    await bench.cycles(20000)
    assert 10 < driver.returned() < len(frames)
    bench.open = True
    await bench.until(lambda: len(bench.sent_times) == len(frames), 30000, "all frames")
    assert bench.sent() == [(frame, False) for frame in frames]


def with_sum(frame: bytes, start: int, place: int) -> bytes:
    """A frame whose 16-bit words from ``start`` on are summed up (RFC 1071), as they come."""
    rest = frame[start:] + bytes(len(frame[start:]) % 2)
    total = sum(struct.unpack(f">{len(rest) // 2}H", rest))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    both = ((total ^ 0xFFFF) or 0xFFFF).to_bytes(2, "big")
    return (frame[:place] + both + frame[place + 2 :])[: len(frame)]


def header_of(start: int, offset: int, flags: int = 1) -> bytes:
    return struct.pack("<BBHHHHH", flags, 0, 0, 0, start, offset, 0)


async def checksums(dut, stall: float, features: int) -> None:
    """Every start and place near the edges of beats; frames between them that want none."""
    bench = NetBench(dut, seed=18 + bool(stall), stall=stall)
    await bench.begin(features=features)
    driver, rng = Sender(bench, 0), bench.rng
    lanes, want = bench.width // 8, []

    def post(frame: bytes, start: int, offset: int, flags: int = 1) -> None:
        asked = features and flags & 1
        want.append(with_sum(frame, start, start + offset) if asked else frame)
        driver.post(
            header_of(start, offset, flags) + frame, cuts=rng.choice(((), (HEADER,), (20,)))
        )

    for length in (60, 61, 3 * lanes, 3 * lanes + 1, 1514):
        for start in (0, 1, 14, 33, 34, lanes - 1, lanes, lanes + 1):
            offset = rng.choice((6, 16, 7))
            post(frame_of(rng, length), start, offset)
            if rng.random() < 0.3:
                post(frame_of(rng, length), start, offset, flags=rng.choice((0, 2)))
    for place in range(lanes - 2, lanes + 2):  # over the edge of a beat
        post(frame_of(rng, 100), 4, place - 4)
    post(bytes(80), 14, 16)  # a sum of nothing but zeros
    post(b"\xff" * 80, 14, 16)
    post(b"\xff" * 9234, 0, 2)  # the largest sum
    for start, offset in ((40, 19), (40, 20), (40, 0xFFFF), (0xFFFF, 2), (9000, 10)):
        post(frame_of(rng, 60), start, offset)  # at the frame's end, and where there is none
    bench.kick(1)
    await bench.until(lambda: driver.returned() == len(want), 60000, "all chains")
    await bench.until(lambda: len(bench.sent_times) == len(want), 8000, "all frames")
    assert bench.sent() == [(frame, False) for frame in want]
    assert not bench.counts()["net_tx_errors"] and not bench.errors.items


@cocotb.test()
async def checksums_are_put_in(dut):
    await checksums(dut, 0.0, CSUM)


@cocotb.test()
async def checksums_are_put_in_slowly(dut):
    await checksums(dut, 0.3, CSUM)


@cocotb.test()
async def checksums_nobody_negotiated(dut):
    """Frames leave as they are."""
    await checksums(dut, 0.0, 0)


@cocotb.test()
async def many_short_frames_with_sums(dut):
    """More than there is room for, bad ones between them; the wire stands still in between."""
    bench = NetBench(dut, seed=20)
    await bench.begin(features=CSUM)
    driver, rng = Sender(bench, 0, size=1024), bench.rng
    bench.open, want = False, []
    for number in range(400):
        frame = frame_of(rng, 54)
        if number % 7 == 3:
            driver.post(header_of(14, 6) + frame[:10])
            continue
        want.append(with_sum(frame, 34, 34 + 6))
        driver.post(header_of(34, 6) + frame)
    bench.kick(1)
    await bench.cycles(9000)
    bench.open = True
    await bench.until(lambda: driver.returned() == 400, 60000, "all chains")
    await bench.until(lambda: len(bench.sent_times) == len(want), 8000, "all frames")
    assert bench.sent() == [(frame, False) for frame in want]
