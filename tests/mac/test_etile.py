"""EtileStreams against frames as E-tile's streams carry them, in Amaranth's simulator."""

import random

import pytest
from amaranth.hdl import Module, Signal

from hdl.mac.etile import EtileStreams
from tests.simulate import simulate

WIDTH = 512
OCTETS = WIDTH // 8


def clocked(dut):
    """The streams, which have no clock, where one is."""
    m = Module()
    m.submodules.dut = dut
    m.d.sync += Signal().eq(1)
    return m


def frames(rng):
    """Frames of all lengths of their last beat."""
    return [rng.randbytes(length) for length in [*range(60, 2 * OCTETS + 3), 4000]]


def test_sent():
    """The first byte is the highest one, and ``empty`` counts what is free below the last."""
    rng, dut, got = random.Random(1), EtileStreams(width=WIDTH), []
    sent = [(frame, rng.random() < 0.2) for frame in frames(rng)]

    async def card(ctx):
        for frame, error in sent:
            for at in range(0, len(frame), OCTETS):
                part, last = frame[at : at + OCTETS], at + OCTETS >= len(frame)
                ctx.set(dut.tx.payload, {
                    "data": int.from_bytes(part, "little"), "keep": (1 << len(part)) - 1,
                    "first": at == 0, "last": last, "error": error and last,
                })  # fmt: skip
                ctx.set(dut.tx.valid, 1)
                await ctx.tick().until(dut.tx.ready)
                ctx.set(dut.tx.valid, 0)

    async def mac(ctx):
        octets = None
        while len(got) < len(sent):
            ctx.set(dut.o_tx_ready, rng.random() < 0.7)
            _, _, valid, ready, data, sop, eop, empty, error = await ctx.tick().sample(
                dut.i_tx_valid, dut.o_tx_ready, dut.i_tx_data, dut.i_tx_startofpacket,
                dut.i_tx_endofpacket, dut.i_tx_empty, dut.i_tx_error,
            )  # fmt: skip
            if valid and ready:
                assert sop == (octets is None)
                octets = (octets or b"") + data.to_bytes(OCTETS, "big")[: OCTETS - empty]
                if eop:
                    got.append((octets, bool(error)))
                    octets = None

    simulate(clocked(dut), card, mac)
    assert got == sent


def test_received():
    """Bytes, ``keep`` and errors of what is received, in the cycle in which it comes."""
    rng, dut = random.Random(1), EtileStreams(width=WIDTH)

    async def bench(ctx):
        for frame in frames(rng):
            errors, octets = rng.choice([0, 0, 1, 0x20]), b""
            for at in range(0, len(frame), OCTETS):
                part, last = frame[at : at + OCTETS], at + OCTETS >= len(frame)
                ctx.set(dut.o_rx_data, int.from_bytes(part.ljust(OCTETS, b"?"), "big"))
                ctx.set(dut.o_rx_empty, OCTETS - len(part) if last else rng.randrange(OCTETS))
                ctx.set(dut.o_rx_startofpacket, at == 0)
                ctx.set(dut.o_rx_endofpacket, last)
                ctx.set(dut.o_rx_error, errors if last else rng.randrange(64))
                ctx.set(dut.o_rx_valid, 1)
                await ctx.delay(1e-8)
                beat = ctx.get(dut.rx.payload)
                assert ctx.get(dut.rx.valid) and beat.first == (at == 0) and beat.last == last
                assert beat.error == (last and errors != 0)
                assert beat.keep == (1 << len(part)) - 1
                octets += beat.data.to_bytes(OCTETS, "little")[: len(part)]
                await ctx.tick()
            assert octets == frame

    simulate(clocked(dut), bench)


def test_bad_width():
    with pytest.raises(ValueError, match="Width must be a power of two, at least 16 bits, not 24"):
        EtileStreams(width=24)
