"""MacBorder with loopback: frames to the card itself turn round, and nothing of the wire waits."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from hdl.common.packet import packet_beat
from hdl.config import NicConfig
from hdl.mac.border import MacBorder
from hdl.mac.loopback import frame_beats
from sim.bench.packet_stream import beats, packets
from tests.simulate import simulate

CONFIG = NicConfig(width=64, mtu=256)
MAC = bytes.fromhex("020000000007")
OTHER = bytes.fromhex("020000000008")  # differs in the last byte alone
GROUPS = [bytes.fromhex(mac) for mac in ("01005e010203", "3333000f0001")]
#: Multicast addresses of no IP group, and broadcast.
NO_GROUPS = [bytes.fromhex(mac) for mac in ("0180c2000000", "01005f010203", "ffffffffffff")]
LONGEST = frame_beats(CONFIG) * CONFIG.bytes_per_beat


def frames(rng: random.Random, destination: bytes, count: int) -> list[bytes]:
    sizes = (14, 60, 61, 64, 65, 90, 200, LONGEST - 1, LONGEST)
    return [destination + rng.randbytes(rng.choice(sizes) - 6) for _ in range(count)]


async def give(ctx, port, sent: list[bytes], idle: float, rng: random.Random, never_waits: bool):
    """Hand frames over, beat by beat. never_waits: as a MAC, which has no room for a beat."""
    for frame in sent:
        for word in beats(frame, CONFIG.width):
            while rng.random() < idle:
                ctx.set(port.valid, 0)
                await ctx.tick()
            ctx.set(port.payload, packet_beat(CONFIG.width).from_bits(word))
            ctx.set(port.valid, 1)
            *_, ready = await ctx.tick().sample(port.ready)
            while not ready:
                assert not never_waits, "a beat of the wire has found no room"
                *_, ready = await ctx.tick().sample(port.ready)
    ctx.set(port.valid, 0)


async def take(ctx, port, found: list[int], stall: float, rng: random.Random):
    """Take beats until the simulation ends; a beat that waits must not change."""
    waiting = None
    while True:
        ready = rng.random() >= stall
        ctx.set(port.ready, ready)
        *_, valid, beat = await ctx.tick().sample(port.valid, port.payload)
        assert waiting is None or (valid and waiting == beat.as_bits()), "a waiting beat changes"
        waiting = beat.as_bits() if valid and not ready else None
        if valid and ready:
            found.append(beat.as_bits())


class Run:
    """Frames from the core and from the wire, and where each has gone."""

    def __init__(self, *, seed: int = 1, turns: int = 1, idle=(0.0, 0.0), stall=(0.0, 0.0)):
        self.rng, self.turns, self.idle, self.stall = random.Random(seed), turns, idle, stall
        self.core, self.wire = list[int](), list[int]()
        self.groups = 0
        self.counted = (0, 0)

    def play(self, sent: list[bytes], arriving: list[bytes], *, mac_waits: bool = False) -> None:
        dut = MacBorder(config=CONFIG)
        rngs = [random.Random(self.rng.random()) for _ in range(4)]

        async def core(ctx):
            ctx.set(dut.mac_address, int.from_bytes(MAC, "little"))
            ctx.set(dut.loopback, self.turns)
            ctx.set(dut.groups, self.groups)
            await give(ctx, dut.sent, sent, self.idle[0], rngs[0], False)
            await ctx.tick().repeat(400 + 40 * len(sent))
            self.turned = ctx.get(dut.loopback_packets)
            self.counted = (ctx.get(dut.loopback_copies), ctx.get(dut.loopback_drops))

        async def mac(ctx):
            await give(ctx, dut.mac_rx, arriving, self.idle[1], rngs[1], not mac_waits)

        async def to_core(ctx):
            await take(ctx, dut.received, self.core, self.stall[0], rngs[2])

        async def to_wire(ctx):
            await take(ctx, dut.mac_tx, self.wire, self.stall[1], rngs[3])

        simulate(dut, core, mac, deadline=30_000, background=(to_core, to_wire))

    def received(self) -> list[bytes]:
        return list(self._good(self.core))

    def left(self) -> list[bytes]:
        return list(self._good(self.wire))

    @staticmethod
    def _good(words: list[int]) -> Iterator[bytes]:
        for frame, error in packets(words, CONFIG.width):
            assert not error
            yield frame


@pytest.mark.parametrize(
    ("idle", "stall"),
    [
        ((0, 0.3), (0, 0)),
        ((0.5, 0.3), (0, 0.5)),
        ((0.2, 0.9), (0, 0.3)),
        ((0.9, 0.25), (0, 0)),
        ((0.5, 0), (0, 0)),
    ],
)
def test_each_frame_goes_where_its_address_says(idle, stall):
    """A core that takes each beat: the wire never waits, whatever turns round."""
    rng = random.Random(7)
    sent = [frame for n in range(40) for frame in frames(rng, MAC if n % 3 else OTHER, 1)]
    arriving = frames(rng, MAC, 60)
    run = Run(idle=idle, stall=stall)
    run.play(sent, arriving)
    mine = [frame for frame in sent if frame[:6] == MAC]
    got = run.received()
    assert [frame for frame in got if frame in mine] == mine
    assert [frame for frame in got if frame in arriving] == arriving
    assert len(got) == len(mine) + len(arriving)
    assert run.left() == [frame for frame in sent if frame[:6] != MAC]
    assert run.turned == len(mine)
    order = [frame in mine for frame in got]
    assert order != sorted(order) and order != sorted(order, reverse=True)  # they were mixed


@pytest.mark.parametrize("stall", [0.3, 0.7])
def test_a_core_that_waits_loses_nothing(stall):
    """With pauses on the link the MAC waits too."""
    rng = random.Random(8)
    sent, arriving = frames(rng, MAC, 20), frames(rng, MAC, 20)
    run = Run(stall=(stall, 0))
    run.play(sent, arriving, mac_waits=True)
    got = run.received()
    assert [frame for frame in got if frame in sent] == sent
    assert [frame for frame in got if frame in arriving] == arriving


@pytest.mark.parametrize(("idle", "stall"), [((0.6, 0.5), (0, 0.2)), ((0.4, 0.9), (0, 0.7))])
def test_frames_to_groups_go_both_ways(idle, stall):
    """Whole, in order, among frames that turn round alone and frames of the wire."""
    rng = random.Random(11)
    choice = [MAC, OTHER, *GROUPS, *NO_GROUPS]
    sent = [frame for n in range(60) for frame in frames(rng, choice[n % len(choice)], 1)]
    arriving = frames(rng, MAC, 20)
    run = Run(idle=idle, stall=stall)
    run.groups = 1
    run.play(sent, arriving)
    both = [frame for frame in sent if frame[:6] in GROUPS]
    mine = [frame for frame in sent if frame[:6] == MAC]
    got = run.received()
    turned = [frame for frame in got if frame in sent]
    copied, dropped = run.counted
    assert run.left() == [frame for frame in sent if frame[:6] != MAC]
    assert [frame for frame in turned if frame in mine] == mine and run.turned == len(mine)
    assert copied + dropped == len(both) and copied == len(turned) - len(mine) > 5
    order = iter(sent)
    assert all(frame in order for frame in turned), "a copy overtakes"
    assert [frame for frame in got if frame in arriving] == arriving


def test_a_copy_never_stops_the_wire():
    """The core takes nothing: frames to groups leave as fast as the MAC takes them, and what finds
    no room on the way to the core is counted."""
    sent = frames(random.Random(12), GROUPS[0], 40)
    run = Run(stall=(1, 0))
    run.groups = 1
    run.play(sent, [])
    copied, dropped = run.counted
    assert run.left() == sent and not run.core
    assert copied + dropped == len(sent) and copied >= 2 and dropped > 20


@pytest.mark.parametrize(("turns", "groups"), [(0, 1), (1, 0)])
def test_nobody_wants_a_copy(turns, groups):
    """Without loopback, or without a member on the card, frames to groups go to the wire alone."""
    sent = [frame for group in GROUPS for frame in frames(random.Random(13), group, 5)]
    run = Run(turns=turns)
    run.groups = groups
    run.play(sent, [])
    assert run.left() == sent and not run.core and run.counted == (0, 0)


def test_switched_off_all_frames_leave():
    rng = random.Random(9)
    sent = frames(rng, MAC, 10)
    run = Run(turns=0)
    run.play(sent, [])
    assert run.left() == sent and not run.core and run.turned == 0


def test_the_wire_has_no_latency_and_no_gap():
    """Back to back, and nothing turns round: a beat in the cycle in which it comes."""
    rng = random.Random(10)
    dut, arriving = MacBorder(config=CONFIG), frames(rng, MAC, 12)

    async def bench(ctx):
        ctx.set(dut.received.ready, 1)
        for frame in arriving:
            for word in beats(frame, CONFIG.width):
                ctx.set(dut.mac_rx.payload, packet_beat(CONFIG.width).from_bits(word))
                ctx.set(dut.mac_rx.valid, 1)
                assert ctx.get(dut.mac_rx.ready) and ctx.get(dut.received.valid)
                assert ctx.get(dut.received.payload).as_bits() == word
                await ctx.tick()

    simulate(dut, bench)
