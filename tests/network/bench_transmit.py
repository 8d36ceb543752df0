"""The driver sends, and its frames leave without their headers, byte for byte."""

from __future__ import annotations

import cocotb

from tests.network.driver import HEADER, NetBench, Sender, frame_of

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
