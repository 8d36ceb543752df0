"""Latencies inside the card: what is measured, against a list of events, and the histograms."""

from __future__ import annotations

import random

import pytest

from hdl.config import NicConfig
from hdl.mac.histogram import CYCLE_BITS, Histogram
from hdl.mac.latency import Latency, ReceiveProbe, SendProbe
from hdl.ports.counter_names import LATENCY_BUCKETS
from sim.rtl.build import Rtl, lint
from tests.simulate import simulate

BEFORE = 13


async def counts(ctx, port) -> list[int]:
    found = []
    for n in range(LATENCY_BUCKETS):
        ctx.set(port.counts.index, n)
        ctx.set(port.counts.enable, 1)
        await ctx.tick()
        found.append(ctx.get(port.counts.row))
    return found


def test_histogram():
    """Each power of two and its neighbours, the sum of all; samples that come back to back."""
    dut = Histogram()
    values = [0, 1, (1 << CYCLE_BITS) - 1]
    values += [v for n in range(1, CYCLE_BITS) for v in ((1 << n) - 1, 1 << n, (1 << n) + 1)]
    rng = random.Random(1)
    values = [v for v in values if v < 1 << CYCLE_BITS] * 3
    rng.shuffle(values)

    async def run(ctx):
        assert not ctx.get(dut.sample.ready)
        for value in values:
            ctx.set(dut.sample.payload, value)
            ctx.set(dut.sample.valid, 1)
            *_, ready = await ctx.tick().sample(dut.sample.ready)
            while not ready:
                *_, ready = await ctx.tick().sample(dut.sample.ready)
            if rng.random() < 0.3:
                ctx.set(dut.sample.valid, 0)
                await ctx.tick().repeat(rng.randrange(1, 6))
        ctx.set(dut.sample.valid, 0)
        await ctx.tick().repeat(5)
        lengths = [value.bit_length() for value in values]
        assert await counts(ctx, dut.port) == [lengths.count(n) for n in range(LATENCY_BUCKETS)]
        assert ctx.get(dut.port.sum) == sum(values)

    simulate(dut, run)


def sending(rng: random.Random, length: int, busy: float):
    """Events by cycle: doorbells, jobs of requests and of others, headers, frames, in order."""
    events: list[dict] = [{} for _ in range(length)]
    jobs: list[tuple[int, int]] = []
    headers: list[int] = []
    for cycle, now in enumerate(events):
        if rng.random() < busy:
            now["doorbell"] = rng.randrange(4)
        if headers and rng.random() < 0.4:
            now["frame"] = headers.pop(0)
        if jobs and rng.random() < 0.4:
            _, key = jobs.pop(0)
            if rng.random() < 0.9:  # the others are refused
                now["header"] = key
                headers.append(key)
        if rng.random() < busy * 2 and len(jobs) + len(headers) < 12:
            qp = rng.choice([None, 0, 1, 2, 3])
            now["job"] = qp
            now["key"] = cycle << 3 | 5
            jobs.append((qp, now["key"]))
    return events


def sent_samples(events) -> list[int]:
    """From the newest doorbell before a QP's next packet to that packet's frame."""
    found, cycle = [], 0
    while True:
        begin = next((n for n in range(cycle, len(events)) if "doorbell" in events[n]), None)
        if begin is None:
            return found
        qp = events[begin]["doorbell"]
        job = next((n for n in range(begin + 1, len(events)) if events[n].get("job") == qp), None)
        if job is None:
            return found
        begin = max(n for n in range(begin, job) if events[n].get("doorbell") == qp)
        ends = [n for n in range(job, len(events)) if events[n].get("frame") == events[job]["key"]]
        if not ends:
            return found
        found.append(ends[0] - begin)
        cycle = ends[0] + 1


@pytest.mark.parametrize("seed", range(6))
def test_from_doorbell_to_wire(seed):
    dut, rng, found = SendProbe(), random.Random(seed), list[int]()
    events = sending(rng, 3000, (0.05, 0.1, 0.3)[seed % 3])
    # A packet that is refused is given up much later: without such ones here.
    for now in events:
        if "key" in now and not any(other.get("header") == now["key"] for other in events):
            now["job"] = None

    async def run(ctx):
        for now in events:
            steps = {
                "doorbell": int("doorbell" in now),
                "doorbell_qp": now.get("doorbell", 0),
                "job": int(now.get("job") is not None),
                "job_qp": now.get("job") or 0,
                "job_key": now.get("key", 0),
                "header": int("header" in now),
                "header_key": now.get("header", 0),
                "frame": int("frame" in now),
            }
            ctx.set(dut.steps, steps)
            await ctx.tick()

    async def take(ctx):
        ctx.set(dut.sample.ready, 1)
        while True:
            *_, valid, cycles = await ctx.tick().sample(dut.sample.valid, dut.sample.payload)
            if valid:
                found.append(cycles)

    simulate(dut, run, background=[take])
    expected = sent_samples(events)
    assert len(expected) > 8 and found == expected[: len(found)]
    assert len(expected) - len(found) <= 1


def test_what_takes_too_long_is_given_up(monkeypatch):
    """A doorbell without packets keeps nobody from being measured for ever."""
    monkeypatch.setattr("hdl.mac.latency.CYCLE_BITS", 6)
    dut, found = SendProbe(), list[int]()

    async def run(ctx):
        ctx.set(dut.sample.ready, 1)

        async def step(**steps):
            ctx.set(dut.steps, steps)
            await ctx.tick()
            ctx.set(dut.steps, {})

        async def message(last):
            for steps in (
                {"doorbell": 1, "doorbell_qp": 2},
                {"job": 1, "job_qp": 2, "job_key": 7},
                {"header": 1, "header_key": 7},
                {"frame": 1},
            )[:last]:
                await step(**steps)

        for last in (1, 2, 3):  # given up in each state
            await message(last)
            await ctx.tick().repeat(70)
            if last == 3:
                await step(frame=1)
            await message(4)
            await ctx.tick()
            assert ctx.get(dut.sample.valid) and ctx.get(dut.sample.payload) == 3

    simulate(dut, run)
    assert not found


def receiving(rng: random.Random, length: int):
    """Packets through a buffer: (copies, kept, passes, freed), and when each pass is taken."""
    cycle, packets, taken = 0, [], []
    free = 0
    while cycle < length:
        cycle += rng.choice([1, 1, 2, 5, 40])
        copies = rng.choice([1, 1, 1, 1, 0, 3])
        free = max(free + 1, cycle + 3)
        passes = []
        for _ in range(copies):
            free += rng.randrange(1, 6)
            passes.append(free)
        if copies != 1:
            free += rng.randrange(1, 4)
        packets.append((cycle, passes, free))
        for at in passes:
            taken.append(max(at + 2, (taken or [0])[-1] + 1) + rng.choice([0, 0, 7]))
    return packets, taken


def received_samples(packets, taken) -> list[int]:
    found, cycle, order = [], 0, [at for _, passes, _ in packets for at in passes]
    for kept, passes, freed in packets:
        if kept < cycle:
            continue
        if not passes:
            cycle = freed + 1
            continue
        ends = taken[order.index(passes[0])]
        found.append(ends - kept + BEFORE)
        cycle = ends + 1
    return found


@pytest.mark.parametrize("seed", range(6))
def test_from_wire_to_host(seed):
    """Packets to groups too, which are taken by none or several, and packets that wait."""
    dut, found = ReceiveProbe(before=BEFORE), list[int]()
    packets, taken = receiving(random.Random(seed), 1200)
    kept = {one[0] for one in packets}
    passed = {at for _, passes, _ in packets for at in passes}
    freed = {one[2] for one in packets}
    assert len(kept) == len(freed) == len(packets) and len(set(taken)) == len(passed)

    async def run(ctx):
        for cycle in range(max(*taken, *freed) + 1):
            steps = {"kept": cycle in kept, "passed": cycle in passed, "freed": cycle in freed}
            ctx.set(dut.steps, {name: int(value) for name, value in steps.items()})
            ctx.set(dut.taken, cycle in taken)
            await ctx.tick()
        ctx.set(dut.steps, {})
        await ctx.tick().repeat(5)

    async def take(ctx):
        ctx.set(dut.sample.ready, 1)
        while True:
            *_, valid, cycles = await ctx.tick().sample(dut.sample.valid, dut.sample.payload)
            if valid:
                found.append(cycles)

    simulate(dut, run, background=[take])
    expected = received_samples(packets, taken)
    assert len(expected) > 8 and found == expected


def test_beats_that_were_not_counted_do_no_harm():
    """What is taken when nothing has left the buffer, as a GRH alone, is passed over."""
    dut = ReceiveProbe(before=BEFORE)

    async def run(ctx):
        ctx.set(dut.sample.ready, 1)
        for _ in range(3):
            ctx.set(dut.taken, 1)
            await ctx.tick()
        ctx.set(dut.taken, 0)
        for steps in ({"kept": 1}, {}, {}, {"passed": 1, "freed": 1}, {}):
            ctx.set(dut.steps, steps)
            await ctx.tick()
        ctx.set(dut.taken, 1)
        await ctx.tick()
        ctx.set(dut.taken, 0)
        await ctx.tick()
        assert ctx.get(dut.sample.valid) and ctx.get(dut.sample.payload) == 5 + BEFORE

    simulate(dut, run)


def test_device_reset():
    """What is measured is given up; what has been counted stays."""
    dut = Latency(before=BEFORE)

    async def run(ctx):
        await ctx.tick().repeat(40)

        async def packet(*, reset: bool):
            ctx.set(dut.receive, {"kept": 1})
            await ctx.tick()
            ctx.set(dut.receive, {"passed": 1, "freed": 1})
            await ctx.tick()
            ctx.set(dut.receive, {})
            ctx.set(dut.core_reset, reset)
            await ctx.tick()
            ctx.set(dut.core_reset, 0)
            ctx.set(dut.taken, 1)
            await ctx.tick()
            ctx.set(dut.taken, 0)
            await ctx.tick().repeat(8)

        for reset in (False, True, False):
            await packet(reset=reset)
        assert sum(await counts(ctx, dut.port.receive)) == 2
        assert ctx.get(dut.port.receive.sum) == 2 * (3 + BEFORE)
        assert sum(await counts(ctx, dut.port.send)) == 0

    simulate(dut, run)


def test_lint():
    lint(Rtl("hdl.mac.latency:Latency", {"before": BEFORE}))
    assert not NicConfig().latency
