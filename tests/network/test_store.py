"""FrameStore: frames are kept, forgotten or lost whole, also behind a reset."""

from __future__ import annotations

import random

import pytest
from amaranth.hdl import ResetInserter, Signal

from hdl.network.store import FrameStore
from sim.bench.packet_stream import beats, packets
from tests.simulate import simulate

DEPTH, FRAMES = 32, 8


def run(width: int, frames: list[tuple[bytes, bool, bool]], *, lossy: bool, stall: float):
    """Frames with ``keep``, and whether a reset comes before their last beat. Returns what leaves
    and the facts of each, and the numbers of those that are kept."""
    store = FrameStore(width=width, depth=DEPTH, frames=FRAMES, side=16, lossy=lossy)
    reset, words, facts, kept = Signal(), [], [], []
    shape, rng = store.i.payload.shape(), random.Random(4)
    done = []

    async def drive(ctx) -> None:
        for number, (frame, keep, cut) in enumerate(frames):
            parts = beats(frame, width)
            ctx.set(store.keep, keep)
            ctx.set(store.facts, number)
            for word in parts:
                while rng.random() < 0.2:
                    await ctx.tick()
                if cut and word is parts[-1]:
                    await ctx.tick().repeat(20)  # what was kept has left
                    ctx.set(reset, 1)
                    await ctx.tick()
                    ctx.set(reset, 0)
                ctx.set(store.i.payload, shape.from_bits(word))
                ctx.set(store.i.valid, 1)
                await ctx.tick().until(store.i.ready)
                ctx.set(store.i.valid, 0)
        done.append(1)

    async def look(ctx) -> None:
        number = 0
        async for _, _, ended, good in ctx.tick().sample(store.ended, store.kept):
            if ended and good:
                kept.append(number)
            number += ended

    async def take(ctx) -> None:
        quiet = 0
        while quiet < 20:
            ctx.set(store.o.ready, bool(done) or rng.random() >= stall)
            ctx.set(store.frame.ready, bool(done) or rng.random() >= stall)
            found = await ctx.tick().sample(
                store.o.valid & store.o.ready,
                store.o.payload.as_value(),
                store.frame.valid & store.frame.ready,
                store.frame.payload.side,
            )
            _, _, passes, word, tells, number = found
            if passes:
                words.append(word)
            if tells:
                facts.append(number)
            quiet = 0 if passes or tells or not done else quiet + 1

    simulate(ResetInserter(reset)(store), drive, take, background=(look,), deadline=20000)
    return [frame for frame, _error in packets(words, width)], facts, kept


def some(seed: int, width: int) -> list[tuple[bytes, bool]]:
    rng, size = random.Random(seed), width // 8
    lengths = [rng.choice((1, size - 1, size, size + 1, 5 * size)) for _ in range(60)]
    return [(rng.randbytes(length), rng.random() < 0.7) for length in lengths]


@pytest.mark.parametrize("width", [64, 512])
def test_kept_frames_leave_whole(width: int) -> None:
    frames = some(1, width)
    wanted = [n for n, (_frame, keep) in enumerate(frames) if keep]
    out, facts, kept = run(width, [(*one, False) for one in frames], lossy=False, stall=0.5)
    assert facts == kept == wanted
    assert out == [frames[n][0] for n in wanted]


@pytest.mark.parametrize("width", [64, 512])
def test_what_finds_no_room_is_lost_whole(width: int) -> None:
    frames = [(frame * 2, keep) for frame, keep in some(2, width)]
    out, facts, kept = run(width, [(*one, False) for one in frames], lossy=True, stall=0.9)
    assert facts == kept and out == [frames[n][0] for n in kept]
    wanted = {n for n, (_frame, keep) in enumerate(frames) if keep}
    assert set(kept) < wanted and len(kept) > 5


def test_rest_of_a_frame_behind_a_reset() -> None:
    """It is no frame, nor does it become a part of the next one."""
    frames = [(bytes([n]) * 40, True, n in (1, 3)) for n in range(6)]
    out, facts, kept = run(64, frames, lossy=True, stall=0.0)
    assert not {1, 3} & {*kept}
    assert out == [frames[n][0] for n in facts] and {4, 5} <= {*facts}


def test_bad_parameters() -> None:
    for bad in ({"depth": 3, "frames": 2}, {"depth": 4, "frames": 1}):
        with pytest.raises(ValueError, match="must be a power of two, at least 2"):
            FrameStore(width=64, side=1, **bad)
