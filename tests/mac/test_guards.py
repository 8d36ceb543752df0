"""TxGuard and RxGuard: a core that is reset at any moment never shows half a frame."""

from __future__ import annotations

import random

import pytest
from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.sim import Simulator

from hdl.common.packet import packet_beat
from hdl.mac.guards import RxGuard, TxGuard
from sim.bench.packet_stream import beats, packets

WIDTH = 64
DEADLINE = 400
#: First cycles of resets: early ones, and some that a slow MAC has frames for.
RESETS = (*range(1, 12), *range(20, 120, 5))


def frames(seed: int, count: int = 12) -> list[bytes]:
    rng = random.Random(seed)
    return [bytes([n]) * rng.choice([1, 7, 8, 9, 16, 40]) for n in range(1, count + 1)]


def next_frame(words: list[tuple[int, int]], at: int) -> int:
    """Index of the first word of the frame after the one that word ``at`` is in the middle of."""
    while 0 < at < len(words) and words[at - 1][0] == words[at][0]:
        at += 1
    return at


def run(kind, sent, *, stall, idle, resets=(), seed=0):
    """Words that came out. In the cycles ``resets`` the core is in reset: the source of a TxGuard
    forgets its frame, the receiver of an RxGuard (and the guard with it) what it has of one."""
    rng = random.Random(seed)
    words = [(n, word) for n, frame in enumerate(sent) for word in beats(frame, WIDTH)]
    guard, reset = kind(width=WIDTH), Signal()
    m = Module()
    m.submodules.guard = ResetInserter(reset)(guard) if kind is RxGuard else guard
    out: list[int] = []

    async def bench(ctx):
        at, offered, waiting = 0, False, None
        for cycle in range(DEADLINE):
            stopped = cycle in resets
            if kind is TxGuard:
                ctx.set(guard.source_reset, int(stopped))
                if stopped:
                    at, offered = next_frame(words, at), False
            else:
                ctx.set(reset, int(stopped))
            in_reset = stopped and kind is TxGuard
            offered = not in_reset and at < len(words) and (offered or rng.random() >= idle)
            ctx.set(guard.i.valid, int(offered))
            if offered:
                ctx.set(guard.i.payload, packet_beat(WIDTH).from_bits(words[at][1]))
            ready = rng.random() >= stall and not (stopped and kind is RxGuard)
            ctx.set(guard.o.ready, int(ready))
            given = ctx.get(guard.o.valid)
            word = ctx.get(guard.o.payload).as_bits() if given else None
            assert waiting in (None, word), "a waiting word has changed"
            waiting = word if given and not ready else None
            if given and ready:
                out.append(word)
            if offered and ctx.get(guard.i.ready):
                at, offered = at + 1, False
            if stopped and kind is RxGuard:
                waiting = None
                while out and not out[-1] >> (WIDTH + WIDTH // 8 + 1) & 1:
                    out.pop()
            await ctx.tick()
        assert at == len(words)

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return list(packets(out, WIDTH))


@pytest.mark.parametrize("guard", [TxGuard, RxGuard])
@pytest.mark.parametrize(("stall", "idle"), [(0, 0), (0.5, 0), (0, 0.5), (0.7, 0.3)])
def test_passes_frames(guard, stall, idle):
    sent = frames(1)
    assert run(guard, sent, stall=stall, idle=idle) == [(frame, False) for frame in sent]


@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize("stall", [0, 0.8])
def test_tx_ends_a_cut_frame(stall, length):
    """However short the reset is and however long the MAC takes."""
    sent = frames(3)
    cut = 0
    for start in RESETS:
        resets = range(start, start + length)
        got = run(TxGuard, sent, stall=stall, idle=0.2, resets=resets, seed=start)
        bad = [frame for frame, error in got if error]
        good = [frame for frame, error in got if not error]
        assert len(bad) <= 1
        assert len(good) >= len(sent) - 1
        assert [frame for frame in sent if frame in good] == good
        cut += len(bad)
    assert cut >= 4


@pytest.mark.parametrize("stall", [0, 0.8])
def test_rx_starts_at_a_first_beat(stall):
    sent = frames(4)
    lost = 0
    for start in RESETS:
        got = run(RxGuard, sent, stall=stall, idle=0.2, resets=range(start, start + 2), seed=start)
        assert not any(error for _, error in got)
        good = [frame for frame, _ in got]
        assert [frame for frame in sent if frame in good] == good
        assert len(good) >= len(sent) - 5
        assert good[-1] == sent[-1]
        lost += len(sent) - len(good)
    assert lost > 4


@pytest.mark.parametrize("guard", [TxGuard, RxGuard])
def test_full_throughput(guard):
    """Back to back: as many cycles as beats."""
    dut = guard(width=WIDTH)
    words = [word for frame in frames(5) for word in beats(frame, WIDTH)]
    out = []

    async def bench(ctx):
        ctx.set(dut.o.ready, 1)
        for word in [*words, None]:
            ctx.set(dut.i.valid, int(word is not None))
            if word is not None:
                ctx.set(dut.i.payload, packet_beat(WIDTH).from_bits(word))
            assert ctx.get(dut.i.ready)
            if ctx.get(dut.o.valid):
                out.append(ctx.get(dut.o.payload).as_bits())
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert out == words
