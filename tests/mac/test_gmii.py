"""GmiiTx and GmiiRx against frames that Python makes with zlib's CRC-32."""

from __future__ import annotations

import random
import zlib

import pytest
from amaranth.sim import Simulator

from hdl.mac.gmii import GmiiRx, GmiiTx
from sim.bench.packet_stream import beats

LENGTHS = (1, 14, 59, 60, 61, 64, 65, 300)


def wire(frame: bytes) -> bytes:
    """Preamble, the padded frame and its check sequence."""
    body = frame.ljust(60, b"\0")
    return b"\x55" * 7 + b"\xd5" + body + zlib.crc32(body).to_bytes(4, "little")


def frames(seed: int) -> list[bytes]:
    rng = random.Random(seed)
    return [rng.randbytes(length) for length in LENGTHS]


def simulate(dut, bench) -> None:
    simulator = Simulator(dut)
    simulator.add_clock(8e-9)
    simulator.add_testbench(bench)
    simulator.run()


def send(
    sent: list[bytes], *, errors=(), late=()
) -> tuple[list[tuple[bytes, bool]], list[int], int]:
    """Returns what was on the wire (bytes, whether TX_ER), gaps, underruns. The frames ``errors``
    end with an error; of the frames ``late`` the 20th byte comes late."""
    dut, seen, gaps, count = GmiiTx(), [], [], []
    words = [
        (n, at, word, at == len(frame) - 1)
        for n, frame in enumerate(sent)
        for at, word in enumerate(beats(frame, 8))
    ]

    async def bench(ctx):
        at, now, bad, quiet, pause = 0, b"", False, 0, 3
        for _ in range(4000):
            offered = at < len(words)
            if offered and words[at][0] in late and words[at][1] == 20 and pause:
                offered, pause = False, pause - 1
            ctx.set(dut.i.valid, offered)
            if offered:
                n, _, word, last = words[at]
                ctx.set(dut.i.payload, dut.i.payload.shape().from_bits(word))
                ctx.set(dut.i.p.error, int(last and n in errors))
            taken = offered and ctx.get(dut.i.ready)
            await ctx.tick()
            at += taken
            if ctx.get(dut.en):
                if not now and seen:
                    gaps.append(quiet)
                now, bad, quiet = now + bytes([ctx.get(dut.data)]), bad or ctx.get(dut.er), 0
            else:
                if now:
                    seen.append((now, bool(bad)))
                now, bad, quiet = b"", False, quiet + 1
        count.append(ctx.get(dut.underruns))

    simulate(dut, bench)
    return seen, gaps, count[0]


def receive(signals: list[tuple[int, int, int]]) -> list[tuple[bytes, bool]]:
    """Returns frames and whether they were bad, of RXD, RX_DV and RX_ER in each cycle."""
    dut, seen = GmiiRx(), []

    async def bench(ctx):
        now = b""
        for data, dv, er in [*signals, *[(0, 0, 0)] * 10]:
            ctx.set(dut.data, data)
            ctx.set(dut.dv, dv)
            ctx.set(dut.er, er)
            await ctx.tick()
            if ctx.get(dut.o.valid):
                assert ctx.get(dut.o.p.first) == (not now) and ctx.get(dut.o.p.keep) == 1
                now += bytes([ctx.get(dut.o.p.data)])
                if ctx.get(dut.o.p.last):
                    seen.append((now, bool(ctx.get(dut.o.p.error))))
                    now = b""
        assert not now

    simulate(dut, bench)
    return seen


def cycles(text: bytes, *, er: int = -1, gap: int = 12) -> list[tuple[int, int, int]]:
    return [(byte, 1, int(n == er)) for n, byte in enumerate(text)] + [(0, 0, 0)] * gap


@pytest.mark.parametrize("seed", [1, 2])
def test_sends_frames_as_the_standard_says(seed):
    sent = frames(seed)
    seen, gaps, underruns = send(sent)
    assert seen == [(wire(frame), False) for frame in sent]
    assert gaps == [12] * (len(sent) - 1) and underruns == 0


def test_spoils_frames_with_errors():
    sent = frames(3)
    seen, _, underruns = send(sent, errors=range(0, len(sent), 2))
    for n, (frame, (text, bad)) in enumerate(zip(sent, seen, strict=True)):
        right = wire(frame)
        spoiled = right[:-4] + bytes(byte ^ 255 for byte in right[-4:])
        assert (text, bad) == ((spoiled, True) if n % 2 == 0 else (right, False))
    assert underruns == 0


def test_a_late_frame_is_spoiled_and_the_next_is_whole():
    sent = frames(4)
    seen, gaps, underruns = send(sent, late=[6])
    assert underruns == 1 and min(gaps) >= 12
    assert [one for n, one in enumerate(seen) if n != 6] == [
        (wire(frame), False) for n, frame in enumerate(sent) if n != 6
    ]
    text, bad = seen[6]
    assert bad and zlib.crc32(text[8:-4]).to_bytes(4, "little") != text[-4:]


@pytest.mark.parametrize("gap", [1, 12])
def test_receives_frames(gap):
    sent = frames(5)
    seen = receive([one for frame in sent for one in cycles(wire(frame), gap=gap)])
    assert seen == [(frame.ljust(60, b"\0"), False) for frame in sent]


def test_receives_errors():
    text = wire(b"hello" * 20)
    body = text[8:-4]
    flipped = text[:30] + bytes([text[30] ^ 4]) + text[31:]
    seen = receive(cycles(flipped) + cycles(text, er=50) + cycles(text))
    assert seen == [(flipped[8:-4], True), (body, True), (body, False)]


def test_what_is_no_frame_leaves_no_trace():
    text = wire(bytes(range(60)))
    rubbish = cycles(b"\x55\x55\x13" + text) + cycles(b"\x55\xd5abcd") + cycles(b"\x55" * 20)
    assert receive(rubbish + cycles(text)) == [(bytes(range(60)), False)]
