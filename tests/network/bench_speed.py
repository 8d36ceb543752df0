"""How fast frames come and go, with a host whose reads take 500 ns (125 cycles at 250 MHz)."""

from __future__ import annotations

import cocotb

from tests.network.bench_receive import NOT_RDMA
from tests.network.driver import NetBench, Receiver, Sender, frame_of

#: Cycles of a host read.
LATENCY = 125
MHZ = 250


def rate(times: list[int]) -> float:
    """Frames in a microsecond, without the first and the last quarter."""
    some = times[len(times) // 4 : -len(times) // 4]
    return (len(some) - 1) * MHZ / (some[-1] - some[0])


async def receive(dut, length: int, size: int, count: int, apart: float) -> tuple[float, int]:
    """Frames that come every ``apart`` cycles: rate, and frames that are dropped."""
    bench = NetBench(dut, seed=31, latency=LATENCY)
    bench.rules["event_idx"] = 1
    await bench.begin()
    driver = Receiver(bench, 0, 1024, vector=1)
    for _ in range(count):
        driver.post(size, shift=0)
    bench.kick(0)
    await bench.cycles(8 * LATENCY)
    first = bench.now
    for n in range(count):
        while bench.now - first < n * apart:
            await bench.cycles(1)
        bench.tap.send(frame_of(bench.rng, length), NOT_RDMA)
    await bench.until(lambda: not bench.tap.queue, 100000, "the wire")

    def lost() -> int:
        return sum(bench.counts()[f"net_rx_drops_{name}"] for name in ("queue", "buffer"))

    await bench.until(lambda: driver.reap() + lost() == count, 20000, "all frames")
    ends = [now for now, *what in bench.events if what[0] == "frame"]
    return rate(ends), lost()


async def transmit(dut, length: int, count: int) -> float:
    """Frames of one queue, as fast as they go."""
    bench = NetBench(dut, seed=32, latency=LATENCY)
    bench.rules["event_idx"] = 1
    await bench.begin()
    driver = Sender(bench, 0, 1024, vector=1)
    for _ in range(count):
        driver.send(frame_of(bench.rng, length))
    bench.kick(1)
    await bench.until(lambda: len(bench.sent_times) == count, 100000, "all frames")
    await bench.until(lambda: driver.returned() == count, 5000, "all chains")
    return rate(bench.sent_times)


@cocotb.test()
async def short_frames_come(dut):
    """20 million a second of 64 bytes (with FCS), none lost."""
    found, lost = await receive(dut, 60, 256, 600, 12.5)
    dut._log.info("RATE receive 64 B: %.2f M/s", found)
    assert lost == 0 and found > 19.5


@cocotb.test()
async def short_frames_come_at_the_wire_s_rate(dut):
    """As fast as they can be taken."""
    found, lost = await receive(dut, 60, 256, 600, 1.68)
    dut._log.info("RATE receive 64 B at 148.8 M/s: %.2f M/s, %d of 600 lost", found, lost)
    assert found > 19.5


@cocotb.test()
async def long_frames_come(dut):
    """8.1 million a second of 1518 bytes, the wire's rate, none lost."""
    found, lost = await receive(dut, 1514, 1600, 400, 30.7)
    dut._log.info("RATE receive 1518 B: %.2f M/s", found)
    assert lost == 0 and found > 8.0


@cocotb.test()
async def short_frames_go(dut):
    """20 million a second of 64 bytes."""
    found = await transmit(dut, 60, 600)
    dut._log.info("RATE transmit 64 B: %.2f M/s", found)
    assert found > 19.5


@cocotb.test()
async def long_frames_go(dut):
    """More than the wire takes: 8.1 million a second of 1518 bytes."""
    found = await transmit(dut, 1514, 400)
    dut._log.info("RATE transmit 1518 B: %.2f M/s", found)
    assert found > 8.1
