"""FrameMerge: whole frames of two sources, and how the way is shared."""

from __future__ import annotations

import random

import pytest

from hdl.mac.merge import FrameMerge
from sim.bench.packet_stream import beats, packets
from tests.simulate import simulate

WIDTH = 64


def run(sources: list[list[bytes]], *, gap: float, stall: float, cycles: int) -> list[bytes]:
    """The frames that leave within ``cycles``."""
    merge, words = FrameMerge(width=WIDTH), []

    async def source(ctx, port, frames: list[bytes], rng: random.Random) -> None:
        for frame in frames:
            for word in beats(frame, WIDTH):
                while rng.random() < gap:
                    await ctx.tick()
                ctx.set(port.payload, merge.o.payload.shape().from_bits(word))
                ctx.set(port.valid, 1)
                await ctx.tick().until(port.ready)
                ctx.set(port.valid, 0)

    async def sink(ctx) -> None:
        rng = random.Random(3)
        for _ in range(cycles):
            ctx.set(merge.o.ready, rng.random() >= stall)
            _, _, valid, ready, word = await ctx.tick().sample(
                merge.o.valid, merge.o.ready, merge.o.payload.as_value()
            )
            if valid and ready:
                words.append(word)

    def of(number: int):
        async def bench(ctx) -> None:
            port = getattr(merge, f"i{number}")
            await source(ctx, port, sources[number], random.Random(number))

        return bench

    simulate(merge, sink, background=(of(0), of(1)), deadline=cycles + 100)
    last = max(n for n, word in enumerate(words) if word >> (WIDTH * 9 // 8 + 1) & 1)
    return [frame for frame, _error in packets(words[: last + 1], WIDTH)]


def frames(seed: int, lengths: list[int]) -> list[bytes]:
    """Frames whose first byte tells their source."""
    rng = random.Random(seed)
    return [bytes([seed]) + rng.randbytes(length - 1) for length in lengths]


@pytest.mark.parametrize(("gap", "stall"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.4), (0.3, 0.3)])
def test_frames_stay_whole_and_in_order(gap: float, stall: float) -> None:
    rng = random.Random(7)
    sources = [frames(n, [rng.choice((1, 7, 8, 9, 64, 100)) for _ in range(40)]) for n in (0, 1)]
    out = run(sources, gap=gap, stall=stall, cycles=3000)
    for number, source in enumerate(sources):
        assert [frame for frame in out if frame[0] == number] == source


def test_each_gets_half_of_the_bytes() -> None:
    """One with short frames, one with long ones."""
    out = run([frames(0, [64] * 2000), frames(1, [1500] * 200)], gap=0, stall=0.2, cycles=4000)
    sent = [sum(len(frame) for frame in out if frame[0] == number) for number in (0, 1)]
    assert 0.85 < sent[0] / sent[1] < 1.18, sent
    assert min(sent) > 8000


def test_who_is_alone_has_all() -> None:
    """Nor does it pay for that later."""
    out = run([frames(0, [64] * 2000), []], gap=0, stall=0, cycles=1000)
    assert len(out) == 125
