"""The trace of frames: bytes, lengths, times, reasons, starts and stops."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from hdl.common.packet import packet_beat
from hdl.config import TRACE_BYTES, NicConfig
from hdl.mac.trace import Trace
from hdl.ports.counter_names import DROP_REASONS
from sim.bench.packet_stream import beats
from sim.rtl.build import Rtl, lint
from tests.simulate import simulate

FRAMES = 8
#: Cycles from a frame's last beat to its verdict, as the ingress has them.
DECISION = 13
SIZES = (1, 14, 63, 64, 65, 127, 128, 129, 200, 1500)


@dataclass
class Frame:
    """A frame of one direction. ``reason``: as in ``FrameFacts``."""

    octets: bytes
    reason: int = 0
    error: int = 0
    begun: int = 0

    def facts(self) -> dict[str, int]:
        return {"length": len(self.octets), "reason": self.reason, "error": self.error}


@dataclass
class Bench:
    """Plays beats into a trace; every frame has its verdict ``DECISION`` cycles behind its end."""

    width: int
    rng: random.Random = field(default_factory=lambda: random.Random(1))
    idle: float = 0.0
    frames: int = FRAMES

    def __post_init__(self):
        self.dut = Trace(width=self.width, frames=self.frames)
        self.shape = packet_beat(self.width)

    async def play(self, ctx, sent: list[Frame], received: list[Frame]) -> None:
        """Both directions at once, and some cycles more."""
        ways = [
            (self.dut.sent, self.words(sent), None),
            (self.dut.received, self.words(received), {}),
        ]
        due = ways[1][2]
        cycle = 0
        while any(words for _, words, _ in ways) or (due and cycle <= max(due)):
            for tap, words, verdicts in ways:
                goes = bool(words) and self.rng.random() >= self.idle
                ctx.set(tap.valid, goes)
                if goes:
                    frame, word = words.pop(0)
                    beat = self.shape.from_bits(word)
                    ctx.set(tap.beat, beat)
                    if beat.first:
                        # The trace has a register in front of it.
                        frame.begun = ctx.get(self.dut.port.now) + 1
                    if beat.last and verdicts is not None:
                        verdicts[cycle + DECISION] = frame
            frame = due.pop(cycle, None)
            reasons = 1 << frame.reason - 1 if frame and frame.reason else 0
            ctx.set(self.dut.verdict, {"valid": int(frame is not None), "reasons": reasons})
            await ctx.tick()
            cycle += 1
        for tap in (self.dut.sent, self.dut.received):
            ctx.set(tap.valid, 0)
        ctx.set(self.dut.verdict.valid, 0)
        await ctx.tick().repeat(6)

    def words(self, frames: list[Frame]) -> list[tuple[Frame, int]]:
        found = []
        for frame in frames:
            words = beats(frame.octets, self.width)
            if frame.error:
                last = self.shape.from_bits(words[-1])
                values = {name: getattr(last, name) for name in ("data", "keep", "first", "last")}
                words[-1] = self.shape.const({**values, "error": 1}).as_bits()
            found += [(frame, word) for word in words]
        return found

    async def start(self, ctx, *, snap: int = TRACE_BYTES, stop: int = 0) -> None:
        port = self.dut.port
        ctx.set(port.snap, snap)
        ctx.set(port.stop_reasons, stop)
        ctx.set(port.start, 1)
        await ctx.tick()
        ctx.set(port.start, 0)

    async def ring(self, ctx, received: int) -> list[tuple[dict[str, int], bytes]]:
        """Facts and bytes of the frames of one direction, the oldest first."""
        port, name = self.dut.port, ("sent", "received")[received]
        place, full = ctx.get(getattr(port, f"{name}_next")), ctx.get(getattr(port, f"{name}_full"))
        slots = [*(range(place, self.frames) if full else ()), *range(place)]
        found = []
        ctx.set(port.received, received)
        for slot in slots:
            ctx.set(port.frame, slot)
            await ctx.tick().repeat(2)
            facts = ctx.get(port.facts)
            octets = b""
            for word in range(TRACE_BYTES // 4):
                ctx.set(port.word, word)
                ctx.set(port.read, 1)
                await ctx.tick()
                ctx.set(port.read, 0)
                ctx.set(port.word, 0)
                await ctx.tick()
                octets += ctx.get(port.data).to_bytes(4, "little")
            found.append(({name: getattr(facts, name) for name in facts.shape().members}, octets))
        return found

    async def expect(self, ctx, received: int, frames: list[Frame], snap=TRACE_BYTES) -> None:
        ring = await self.ring(ctx, received)
        assert len(ring) == len(frames)
        for (facts, octets), frame in zip(ring, frames, strict=True):
            assert facts == {"time": frame.begun, **frame.facts()}
            kept = min(snap, len(frame.octets))
            assert octets[:kept] == frame.octets[:kept]

    def random_frames(self, count: int, *, reasons: bool) -> list[Frame]:
        made = []
        for _ in range(count):
            octets = self.rng.randbytes(self.rng.choice(SIZES))
            reason = self.rng.choice((0, *range(len(DROP_REASONS)))) if reasons else 0
            made.append(Frame(octets, reason, int(self.rng.random() < 0.2)))
        return made


@pytest.mark.parametrize("width", [64, 128, 256, 512])
@pytest.mark.parametrize("idle", [0.0, 0.4])
def test_frames_of_both_ways(width, idle):
    """The last ones are there, whole or their first bytes, with what is known of them."""
    bench = Bench(width, idle=idle)

    async def run(ctx):
        await bench.play(ctx, bench.random_frames(2, reasons=False), [])
        for count in (3, FRAMES, FRAMES + 5):
            await bench.start(ctx)
            sent = bench.random_frames(count, reasons=False)
            received = bench.random_frames(count, reasons=True)
            await bench.play(ctx, sent, received)
            await bench.expect(ctx, 0, sent[-FRAMES:])
            await bench.expect(ctx, 1, received[-FRAMES:])

    simulate(bench.dut, run, deadline=40_000)


@pytest.mark.parametrize("width", [64, 512])
def test_a_frame_in_each_cycle(width):
    """As many as the ingress takes, one beat each."""
    bench = Bench(width, frames=64)

    async def run(ctx):
        await bench.start(ctx)
        ways = [[Frame(bench.rng.randbytes(width // 8), n % 3) for n in range(60)] for _ in "ab"]
        for frame in ways[0]:
            frame.reason = 0
        await bench.play(ctx, *ways)
        await bench.expect(ctx, 0, ways[0])
        await bench.expect(ctx, 1, ways[1])

    simulate(bench.dut, run, deadline=20_000)


@pytest.mark.parametrize("width", [64, 512])
def test_snap(width):
    """What is beyond it stays out of the card's memory, but for the rest of its beat."""
    bench, size = Bench(width), width // 8

    async def run(ctx):
        frames = [Frame(bytes([n]) * 128) for n in range(1, FRAMES + 1)]
        await bench.start(ctx)
        await bench.play(ctx, frames, [])
        for snap in (0, 1, size, 54):
            later = [Frame(bytes([0x80 | n]) * 128) for n in range(1, FRAMES + 1)]
            await bench.start(ctx, snap=snap)
            await bench.play(ctx, later, [])
            kept = -(-snap // size) * size
            for (facts, octets), old, new in zip(
                await bench.ring(ctx, 0), frames, later, strict=True
            ):
                assert facts["length"] == 128
                assert octets == new.octets[:kept] + old.octets[kept:]
            await bench.start(ctx)
            await bench.play(ctx, frames, [])

    simulate(bench.dut, run, deadline=40_000)


def test_stop_and_start():
    """Nothing is recorded before a start or after a stop; a start forgets what was there."""
    bench = Bench(64)
    port = bench.dut.port

    async def run(ctx):
        assert not ctx.get(port.running)
        await bench.play(ctx, [Frame(b"a" * 64)], [Frame(b"b" * 64)])
        assert await bench.ring(ctx, 0) == await bench.ring(ctx, 1) == []
        await bench.start(ctx)
        assert ctx.get(port.running)
        first = [Frame(b"c" * 64)], [Frame(b"d" * 64)]
        await bench.play(ctx, *first)
        ctx.set(port.stop, 1)
        await ctx.tick()
        ctx.set(port.stop, 0)
        await ctx.tick()
        assert not ctx.get(port.running) and not ctx.get(port.dropped)
        await bench.play(ctx, [Frame(b"e" * 64)], [Frame(b"f" * 64)])
        for received in (0, 1):
            await bench.expect(ctx, received, first[received])
        await bench.start(ctx)
        assert await bench.ring(ctx, 0) == await bench.ring(ctx, 1) == []

    simulate(bench.dut, run, deadline=20_000)


@pytest.mark.parametrize("after", range(24))
def test_start_in_mid_frame(after):
    """A frame that has begun before, or waits for its verdict, is in no record of the new run."""
    bench = Bench(64)
    port = bench.dut.port

    async def run(ctx):
        await bench.start(ctx)
        await bench.play(ctx, [Frame(b"x" * 20)] * 3, [Frame(b"y" * 20)] * 2)
        old = [Frame(b"a" * 40), Frame(b"b" * 9)]
        new = [Frame(b"c" * 40, 0), Frame(b"d" * 128)]

        words = bench.words(old)
        due = {}
        for cycle in range(60):
            ctx.set(port.start, cycle == after)
            ctx.set(bench.dut.sent.valid, bool(words))
            ctx.set(bench.dut.received.valid, bool(words))
            if words:
                _, word = words.pop(0)
                for tap in (bench.dut.sent, bench.dut.received):
                    ctx.set(tap.beat, bench.shape.from_bits(word))
                if bench.shape.from_bits(word).last:
                    due[cycle + DECISION] = 1
            ctx.set(bench.dut.verdict.valid, due.get(cycle, 0))
            await ctx.tick()
        # Those that began behind the start are there, and nothing of the others.
        kept = [frame for frame, first in zip(old, (0, 5), strict=True) if first + 1 > after]
        for received in (0, 1):
            lengths = [facts["length"] for facts, _ in await bench.ring(ctx, received)]
            assert lengths == [len(frame.octets) for frame in kept]
        await bench.play(ctx, new, new)
        for received in (0, 1):
            ring = await bench.ring(ctx, received)
            assert [facts["length"] for facts, _ in ring] == [
                len(frame.octets) for frame in (*kept, *new)
            ]
            for (_, octets), frame in zip(ring, (*kept, *new), strict=True):
                assert octets[: len(frame.octets)] == frame.octets

    simulate(bench.dut, run, deadline=20_000)


@pytest.mark.parametrize("reason", [1, DROP_REASONS.index("rx_drops_icrc") + 1])
def test_stops_at_a_drop(reason):
    """Only at those that were asked for; what has begun meanwhile is still recorded."""
    bench = Bench(64)

    async def run(ctx):
        await bench.start(ctx, stop=1 << reason - 1)
        others = [Frame(b"a" * 8, n) for n in range(len(DROP_REASONS) + 1) if n != reason]
        await bench.play(ctx, [], others)
        assert ctx.get(bench.dut.port.running)
        await bench.start(ctx, stop=1 << reason - 1)
        begun = [Frame(b"b" * 8), Frame(b"c" * 8, reason), Frame(b"d" * 96)]
        late = [Frame(b"e" * 96), Frame(b"f" * 8)]
        await bench.play(ctx, [], [*begun, *late])
        assert not ctx.get(bench.dut.port.running) and ctx.get(bench.dut.port.dropped)
        await bench.expect(ctx, 1, [*begun, late[0]])

    simulate(bench.dut, run, deadline=20_000)


@pytest.mark.parametrize("length", [1, 2, 5])
def test_device_reset(length):
    """Frames that lose their verdict leave no record, and those behind have the right one."""
    bench = Bench(64)

    async def run(ctx):
        await bench.start(ctx)
        before = [Frame(b"a" * 30, 2)]
        await bench.play(ctx, before, before)
        for word in [word for _, word in bench.words([Frame(b"b" * 20), Frame(b"c" * 20)])][:5]:
            ctx.set(bench.dut.received.valid, 1)
            ctx.set(bench.dut.received.beat, bench.shape.from_bits(word))
            await ctx.tick()
        ctx.set(bench.dut.core_reset, 1)
        await ctx.tick().repeat(length)
        ctx.set(bench.dut.received.valid, 0)
        ctx.set(bench.dut.core_reset, 0)
        behind = [Frame(b"d" * 30, 3), Frame(b"e" * 31)]
        await bench.play(ctx, behind, behind)
        await bench.expect(ctx, 1, [*before, *behind])

    simulate(bench.dut, run, deadline=20_000)


@pytest.mark.parametrize("width", [64, 128, 256, 512])
def test_lint(width):
    """With the border, between whose guards it is."""
    config = NicConfig(width=width, trace_frames=16)
    lint(Rtl("hdl.mac.border:MacBorder", {"config": config}, name=f"traced_border_{width}"))


def test_bad_parameters():
    with pytest.raises(ValueError, match="power of two, at least 2, not 6"):
        Trace(width=64, frames=6).elaborate(None)
    with pytest.raises(ValueError, match="trace_frames must be 0 or at least 2, not 1"):
        NicConfig(trace_frames=1)
