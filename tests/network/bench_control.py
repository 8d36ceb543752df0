"""Broken rings, resets of queues and of the device: each stops what it is about, and no more."""

from __future__ import annotations

import struct

import cocotb
from cocotb.triggers import RisingEdge

from hdl.ports.jobs import QueueErrorCause
from tests.network.bench_receive import NOT_RDMA
from tests.network.driver import NetBench, Receiver, Sender, frame_of


async def deliver(bench: NetBench, driver: Receiver, count: int = 3) -> None:
    """Post buffers and see that frames come into them."""
    before, frames = len(driver.frames), [frame_of(bench.rng, 90 + n) for n in range(count)]
    for _ in frames:
        driver.post(1600)
    bench.kick(driver.number)
    await bench.cycles(300)
    for frame in frames:
        bench.tap.send(frame, NOT_RDMA)
    await bench.until(lambda: driver.reap() == before + count, 2000, "frames")
    assert driver.frames[before:] == frames


async def send(bench: NetBench, driver: Sender, count: int = 3) -> None:
    """Send frames and see that they leave and that their chains come back."""
    before, frames = len(bench.sent()), [frame_of(bench.rng, 90 + n) for n in range(count)]
    returned = driver.returned()
    for frame in frames:
        driver.send(frame)
    bench.kick(driver.number)
    await bench.until(lambda: driver.returned() == (returned + count) & 0xFFFF, 2000, "chains")
    await bench.until(lambda: len(bench.sent_times) == before + count, 2000, "frames")
    assert bench.sent()[before:] == [(frame, False) for frame in frames]


def broken_index(driver: Receiver | Sender) -> None:
    """More is available than the queue has."""
    driver.queue.set_index(driver.queue.avail + driver.queue.size + 1)


def broken_head(driver: Receiver | Sender) -> None:
    """A head beyond the queue."""
    driver.queue.offer(driver.queue.size)


def broken_direction(driver: Receiver | Sender) -> None:
    """A buffer of the wrong kind behind a good one."""
    right = isinstance(driver, Receiver)
    addr = driver.bench.memory.alloc(4096)
    driver.queue.offer(driver.queue.chain([(addr, 100, right), (addr, 100, not right)]))


def broken_loop(driver: Receiver | Sender) -> None:
    """A chain that leads back to its beginning."""
    queue, right = driver.queue, isinstance(driver, Receiver)
    addr = driver.bench.memory.alloc(4096)
    head = queue.chain([(addr, 8, right), (addr, 8, right)])
    second = struct.unpack_from("<H", driver.bench.memory.get(queue.desc + 16 * head, 16), 14)[0]
    queue.set_desc(queue.desc, second, addr, 8, 1 | (2 if right else 0), head)
    queue.offer(head)


BREAKS = {
    broken_index: QueueErrorCause.AVAIL_INDEX,
    broken_head: QueueErrorCause.DESC_INDEX,
    broken_direction: QueueErrorCause.DIRECTION,
    broken_loop: QueueErrorCause.DESC_LOOP,
}


@cocotb.test()
async def a_broken_queue_stops_alone(dut):
    """It is told with its cause, the pair beside it goes on, and so does the other direction. When
    the device has been reset the queue serves again."""
    bench = NetBench(dut, seed=21, stall=0.1)
    await bench.begin()
    errors = 0
    for make, other in ((Receiver, Sender), (Sender, Receiver)):
        for breaks, cause in BREAKS.items():
            size = 16
            driver, beside = make(bench, 1, size), other(bench, 0, 64)
            await serve(bench, driver)
            await serve(bench, beside)
            breaks(driver)
            bench.kick(driver.number)
            errors += 1
            await bench.until(lambda n=errors: len(bench.errors.items) == n, 6000, breaks.__name__)
            error = bench.errors.items[-1]
            assert error == {"queue": driver.number, "cause": cause.value}, (breaks, error)
            bench.kick(driver.number)
            await serve(bench, beside)
            assert len(bench.errors.items) == errors
            await reset(bench)


async def serve(bench: NetBench, driver: Receiver | Sender) -> None:
    if isinstance(driver, Sender):
        await send(bench, driver)
        return
    if driver.pair == 0:
        await deliver(bench, driver)


async def reset(bench: NetBench) -> None:
    """A device reset: nothing new, then nothing at all, then forget."""
    dut = bench.dut
    bench.set(running=0)
    dut.hold.value = 1
    await bench.until(lambda: int(dut.idle.value), 4000, "idle")
    accesses = len(bench.memory.reads), len(bench.memory.log)
    await bench.cycles(50)
    assert (len(bench.memory.reads), len(bench.memory.log)) == accesses
    dut.restart.value = 1
    await RisingEdge(dut.clk)
    dut.restart.value = 0
    dut.hold.value = 0
    bench.queues.clear()
    bench.set(running=1)
    await bench.cycles(3)


@cocotb.test()
async def device_reset_in_full_flight(dut):
    """A reset while frames come and go: what follows begins anew, in step with the ingress."""
    bench = NetBench(dut, seed=22, stall=0.1)
    await bench.begin()
    for round_ in range(6):
        receiver, sender = Receiver(bench, 0, 64), Sender(bench, 0, 64)
        await deliver(bench, receiver)
        await send(bench, sender)
        for _ in range(40):
            receiver.post(1600)
            sender.send(frame_of(bench.rng, 300))
        bench.kick(0)
        bench.kick(1)
        await bench.cycles(100 + 37 * round_)
        for _ in range(60):
            bench.tap.send(frame_of(bench.rng, 200), NOT_RDMA)
        await bench.cycles(60 * round_)
        await reset(bench)
        await bench.until(lambda: not bench.tap.queue, 4000, "the wire")
        await bench.cycles(100)
        words = bench.sent_words
        assert not words or words[-1] >> (bench.width * 9 // 8 + 1) & 1, "a frame is cut off"
        bench.sent_words.clear()
        bench.sent_times.clear()
    assert not bench.errors.items


@cocotb.test()
async def queue_reset_while_others_serve(dut):
    """A queue is forgotten, and begins anew with its next rings; the other pair goes on."""
    bench = NetBench(dut, seed=23, stall=0.1)
    await bench.begin()
    other = Sender(bench, 1, 64)
    for make in (Receiver, Sender):
        for _ in range(3):
            driver = make(bench, 0, 64)
            await serve(bench, driver)
            await send(bench, other)
            if make is Receiver:
                for _ in range(20):
                    driver.post(1600)
            else:
                for _ in range(20):
                    driver.send(frame_of(bench.rng, 300))
            bench.kick(driver.number)
            await bench.cycles(bench.rng.randrange(300))
            taken = bench.queue_reset.taken
            bench.queue_reset.queue.append(driver.number)
            await bench.until(lambda n=taken: bench.queue_reset.taken > n, 6000, "the reset")
            log = len(bench.memory.log)
            await bench.cycles(200)
            assert len(bench.memory.log) == log, "the queue is not forgotten"
            del bench.queues[driver.number]
            await bench.cycles(400)
            bench.sent_words.clear()
            bench.sent_times.clear()
    assert not bench.errors.items


@cocotb.test()
async def reset_of_the_ingress(dut):
    """It forgets frames, whose verdicts never come; those behind it are delivered."""
    bench = NetBench(dut, seed=24)
    await bench.begin()
    driver = Receiver(bench, 0, 64)
    await deliver(bench, driver)
    for _ in range(8):
        driver.post(1600)
    bench.kick(0)
    await bench.cycles(200)
    for cycles in (5, 17, 40):
        for _ in range(6):
            bench.tap.send(frame_of(bench.rng, 200), NOT_RDMA)
        await bench.cycles(cycles)
        dut.core_reset.value = 1
        bench.tap.queue.clear()
        bench.tap.verdicts.clear()
        await bench.cycles(3)
        dut.core_reset.value = 0
        await bench.cycles(200)
        driver.reap()
        before, frame = len(driver.frames), frame_of(bench.rng, 77)
        driver.post(1600)
        bench.kick(0)
        await bench.cycles(100)
        bench.tap.send(frame, NOT_RDMA)
        await bench.until(lambda n=before: driver.reap() == n + 1, 500, "the frame behind it")
        assert driver.frames[-1] == frame
