"""Impairments of a wire: every frame is accounted for, and what happens is what was asked for."""

import itertools
import random

import cocotb
import pytest
from cocotb.triggers import Timer

from sim.models.impairments import Drop, Impairments
from sim.wire.packets import build
from tests.sim.bench_models import Card, start

WAIT_NS = 60_000


async def echoing(dut):
    """A card that sends back what Python sends it."""
    bench = await start(dut, 400_000, connect=False)
    card = Card(bench.hosts[0])
    await card.put("echo", 1)
    await card.get("echo")
    return bench.wires[0]


async def through(wire, frames, outward=None, inward=None):
    """What comes back of ``frames``, in order."""
    wire.impair(outward, inward)
    for frame in frames:
        wire.inject(frame)
    await Timer(WAIT_NS, "ns")
    found = [frame for frame, _ in iter(wire.take, None)]
    for stats in (wire.outward, wire.inward):
        missing = stats.lost + stats.dropped + stats.overflowed
        assert stats.sent == stats.frames + stats.duplicated - missing
    return found


def numbered(count, size=200):
    rng = random.Random(5)
    return [n.to_bytes(4, "big") + rng.randbytes(size - 4) for n in range(count)]


@cocotb.test()
async def nothing(dut):
    """Without impairments everything comes; afterwards too."""
    wire, frames = await echoing(dut), numbered(20)
    assert await through(wire, frames) == frames
    assert wire.outward.frames == wire.inward.frames == 0
    assert len(await through(wire, frames, Impairments(loss=1))) == 0
    assert await through(wire, frames) == frames


@cocotb.test()
async def losses(dut):
    """By chance, in bursts, each n-th; in both directions; the seed decides which."""
    wire, frames = await echoing(dut), numbered(400)
    some = await through(wire, frames, Impairments(loss=0.1))
    assert 20 <= 400 - len(some) == wire.outward.lost <= 65
    assert some == [frame for frame in frames if frame in some]
    assert await through(wire, frames, Impairments(loss=0.1)) == some
    assert await through(wire, frames, Impairments(loss=0.1, seed=2)) != some
    assert await through(wire, frames, inward=Impairments(every=7)) == [
        frame for n, frame in enumerate(frames, 1) if n % 7
    ]
    bursts = await through(wire, frames, Impairments(loss=0.02, burst=5))
    lost = [n for n, frame in enumerate(frames) if frame not in bursts]
    assert lost and len(lost) == wire.outward.lost
    begins = [n for n in lost if n - 1 not in lost]
    assert all(n + k in lost for n in begins for k in range(5) if n + k < 400)


@cocotb.test()
async def copies_and_changes(dut):
    """Some frames come twice, one behind the other; some with one bit changed."""
    wire, frames = await echoing(dut), numbered(300)
    twice = await through(wire, frames, inward=Impairments(duplicate=0.2))
    copies = [n for n in range(1, len(twice)) if twice[n] == twice[n - 1]]
    assert 30 <= len(copies) == wire.inward.duplicated <= 90
    assert [frame for n, frame in enumerate(twice) if n not in copies] == frames
    changed = await through(wire, frames, Impairments(corrupt=0.2))
    differ = [
        (int.from_bytes(a, "big") ^ int.from_bytes(b, "big")).bit_count()
        for a, b in zip(frames, changed, strict=True)
    ]
    assert set(differ) == {0, 1} and sum(differ) == wire.outward.corrupted
    assert 30 <= sum(differ) <= 90


@cocotb.test()
async def order_and_time(dut):
    """Frames are overtaken by up to so many; jitter delays, and keeps the order."""
    wire, frames = await echoing(dut), numbered(300)
    mixed = await through(wire, frames, Impairments(reorder=4, overtaken=0.1))
    assert sorted(mixed) == frames and mixed != frames
    places = [int.from_bytes(frame[:4], "big") for frame in mixed]
    behind = [at - number for at, number in enumerate(places) if at > number]
    assert len(behind) >= 0.5 * wire.outward.overtaken > 5
    assert max(behind) <= 4 + wire.outward.overtaken / 10
    # The last frame waits for none.
    await through(wire, frames[:1], Impairments(reorder=4, overtaken=1))
    assert wire.outward.sent == 1
    jittered = await through(wire, frames, Impairments(delay_us=3, jitter_us=2))
    assert jittered == frames
    wire.impair(Impairments(delay_us=3))
    wire.inject(frames[0])
    with pytest.raises(TimeoutError):
        await wire.receive(3000)
    assert (await wire.receive(1000))[0] == frames[0]


@cocotb.test()
async def slow_line(dut):
    """A slower line behind spaces the frames; its queue loses what finds it full."""
    wire, frames = await echoing(dut), numbered(50, 1000)
    wire.impair(Impairments(gbps=5))
    for frame in frames:
        wire.inject(frame)
    times = [(await wire.receive(WAIT_NS))[1] for _ in frames]
    assert {b - a for a, b in itertools.pairwise(times)} == {1024 * 1600}
    some = await through(wire, frames, Impairments(gbps=5, queue=8000))
    assert wire.outward.overflowed == len(frames) - len(some) > 20
    assert some[:8] == frames[:8]


@cocotb.test()
async def pauses(dut):
    """The sender stops for so long at this interval, between two frames; nothing is lost."""
    wire, frames = await echoing(dut), numbered(40, 1000)
    wire.set(gbps=10)  # slower than the card at each width
    usual_ps, pause_ps, every_ps = 1024 * 800, 3_000_000, 11_000_000
    paused = {"pause_us": 3, "pause_every_us": 11}

    async def gaps(outward=None, inward=None):
        """When frames came later behind the one before than usual (ps), and by how much."""
        wire.impair(outward, inward)
        for frame in frames:
            wire.inject(frame)
        found = [await wire.receive(WAIT_NS) for _ in frames]
        assert [frame for frame, _ in found] == frames
        times = [when for _, when in found]
        steps = [(b, b - a - usual_ps) for a, b in itertools.pairwise(times)]
        return [step for step in steps if step[1] > usual_ps // 2]

    assert await gaps() == []
    wheres = []
    for seed in (1, 2):
        for direction in ("outward", "inward"):
            found = await gaps(**{direction: Impairments(**paused, seed=seed)})
            counted = getattr(wire, direction)
            assert 3 <= len(found) <= counted.paused <= 5  # in 32.8 us and the pauses
            # A frame that has begun goes to its end, and takes its time from the pause.
            assert all(pause_ps - usual_ps <= late <= pause_ps + 10_000 for _, late in found)
            places = [when % every_ps for when, _ in found]
            assert max(places) - min(places) < 10_000, "they come at the interval"
            wheres.append(min(places))
    assert wheres[:2] != wheres[2:], "the seed decides where"
    both = Impairments(**paused, every=10, duplicate=0.1)
    some = await through(wire, frames, both)
    assert wire.outward.lost == 4 and wire.outward.paused >= 3
    assert [f for f, _ in itertools.groupby(some)] == [
        frame for n, frame in enumerate(frames, 1) if n % 10
    ]
    before = wire.stats.tx_frames
    wire.impair(Impairments(pause_us=20, pause_every_us=21))
    for frame in frames:
        wire.inject(frame)
    await Timer(15_000, "ns")
    assert wire.stats.tx_frames - before <= 3
    assert wire.under_way(to_card=True) > 20_000, "the card is held, and takes no more"


@cocotb.test()
async def roles(dut):
    """Packets of a role are lost by number; others, and frames of other protocols, pass."""
    wire = await echoing(dut)
    common = {"dest_qp": 5, "pkey": 0xFFFF}
    frames = []
    for psn in range(6):
        frames += [
            build(0x11, **common, psn=psn, syndrome=syndrome, msn=0)
            for syndrome in (0x00, 0x2C, 0x60)
        ]
        frames.append(build(0x08, **common, psn=psn, payload=b"last"))
    frames.append(bytes(60))
    for role, first, count, place in (
        ("ack", 1, 1, 0),
        ("rnr", 2, 2, 1),
        ("nak", 3, 100, 2),
        ("write_last", 6, 1, 3),
        ("write", 1, 6, 3),
    ):
        gone = [4 * n + place for n in range(6) if first <= n + 1 < first + count]
        expected = [frame for n, frame in enumerate(frames) if n not in gone]
        drop = Impairments(drop=Drop(role, first, count))
        assert await through(wire, frames, inward=drop) == expected, role
