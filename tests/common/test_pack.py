"""Packer and Rotator against bytes: every split of a packet, gaps and backpressure."""

import random

import pytest
from amaranth.sim import Simulator

from hdl.common.pack import Packer
from hdl.common.shift import Rotator

DEADLINE = 4000


def simulate(dut, *processes):
    """Run until every process has ended."""
    sim = Simulator(dut)
    sim.add_clock(4e-9)
    for process in processes:
        sim.add_testbench(process)
    sim.run()


def pack(width, packets, *, idle=0.0, stall=0.0, seed=1):
    """Send ``packets`` (lists of chunks, a chunk is bytes) through a Packer; return its packets.

    Also returns the cycles from the first input beat to the last output beat.
    """
    rng = random.Random(seed)
    dut = Packer(width=width)
    lanes = width // 8
    errors = {n for n in range(len(packets)) if seed > 1 and rng.random() < 0.3}
    out, cycles = [], [0]

    async def send(ctx):
        for number, chunks in enumerate(packets):
            bad = rng.randrange(len(chunks)) if number in errors else None
            for place, chunk in enumerate(chunks):
                while rng.random() < idle:
                    await ctx.tick()
                start = rng.randrange(min(lanes - len(chunk) + 1, lanes))
                ctx.set(
                    dut.i.payload,
                    {
                        # junk beside the bytes must not show
                        "data": int.from_bytes(
                            b"\xdd" * start + chunk.ljust(lanes - start, b"\xee"), "little"
                        ),
                        "start": start,
                        "count": len(chunk),
                        "end": place == len(chunks) - 1,
                        "error": place == bad,
                    },
                )
                ctx.set(dut.i.valid, 1)
                await ctx.tick().until(dut.i.ready)
                ctx.set(dut.i.valid, 0)

    async def receive(ctx):
        packet = bytearray()
        while len(out) < len(packets):
            ctx.set(dut.o.ready, rng.random() >= stall)
            _, _, valid, ready, beat = await ctx.tick().sample(
                dut.o.valid, dut.o.ready, dut.o.payload
            )
            cycles[0] += 1
            assert cycles[0] < DEADLINE, f"{len(out)} of {len(packets)} packets"
            if not (valid and ready):
                continue
            assert beat.first == (not packet)
            count = beat.keep.bit_count()
            assert count and beat.keep == (1 << count) - 1
            assert beat.last or count == lanes
            packet += beat.data.to_bytes(lanes, "little")[:count]
            if beat.last:
                assert beat.error == (len(out) in errors)
                out.append(bytes(packet))
                packet.clear()
            else:
                assert not beat.error
        await ctx.tick().repeat(8)
        assert not ctx.get(dut.o.valid)

    simulate(dut, send, receive)
    return out, cycles[0]


def cut(rng, payload, lanes):
    chunks = []
    while payload:
        size = min(rng.choice([1, 2, lanes - 1, lanes, lanes, rng.randint(0, lanes)]), len(payload))
        chunks.append(payload[:size])
        payload = payload[size:]
    return chunks


@pytest.mark.parametrize("idle", [0.0, 0.5])
@pytest.mark.parametrize("stall", [0.0, 0.5])
@pytest.mark.parametrize("width", [64, 128])
def test_packets_come_out_whole(width, idle, stall):
    rng = random.Random(width)
    lanes = width // 8
    sizes = [1, lanes - 1, lanes, lanes + 1, 2 * lanes, 3 * lanes - 1]
    sizes += [rng.randint(1, 90) for _ in range(30)]
    packets = [cut(rng, rng.randbytes(size), lanes) for size in sizes]
    for seed in (1, 2):
        out, _ = pack(width, packets, idle=idle, stall=stall, seed=seed)
        assert out == [b"".join(chunks) for chunks in packets]


def test_every_pair_of_lengths():
    packets = [[bytes([n]) * n, bytes([m + 64]) * m] for n in range(1, 9) for m in range(1, 9)]
    out, _ = pack(64, packets)
    assert out == [b"".join(chunks) for chunks in packets]


def test_one_input_beat_per_cycle():
    """Two unaligned chunks of a packet that fills its beats: no cycle is lost between packets."""
    chunks = [b"a" * 8] * 9 + [b"b" * 3] + [b"c" * 8] * 9 + [b"d" * 5]
    _, cycles = pack(64, [chunks] * 20)
    assert cycles <= 20 * len(chunks) + 6


def test_reset_in_mid_packet():
    from amaranth.hdl import ResetInserter, Signal

    reset = Signal()
    dut = Packer(width=64)

    async def bench(ctx):
        async def beat(value, end):
            ctx.set(
                dut.i.payload, {"data": value, "start": 0, "count": 5, "end": end, "error": 1 - end}
            )
            ctx.set(dut.i.valid, 1)
            await ctx.tick().until(dut.i.ready)
            ctx.set(dut.i.valid, 0)

        ctx.set(dut.o.ready, 1)
        await beat(0x1111111111, 0)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        await beat(0x2222222222, 1)
        (got,) = await ctx.tick().sample(dut.o.payload).until(dut.o.valid)
        assert got.first and got.last and not got.error
        assert got.keep == 0x1F and got.data & 0xFFFFFFFFFF == 0x2222222222

    simulate(ResetInserter(reset)(dut), bench)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("width", [16, 64, 128])
def test_rotator_every_amount(width, left):
    dut = Rotator(width=width, side=8, left=left)
    lanes = width // 8
    value = bytes(range(1, lanes + 1))

    async def send(ctx):
        for amount in range(lanes):
            ctx.set(
                dut.i.payload,
                {"data": int.from_bytes(value, "little"), "amount": amount, "side": amount + 7},
            )
            ctx.set(dut.i.valid, 1)
            await ctx.tick().until(dut.i.ready)
        ctx.set(dut.i.valid, 0)

    async def receive(ctx):
        for amount in range(lanes):
            ctx.set(dut.o.ready, 0)
            await ctx.tick().repeat(1 + amount % 3)
            ctx.set(dut.o.ready, 1)
            (beat,) = await ctx.tick().sample(dut.o.payload).until(dut.o.valid)
            turn = -amount if left else amount
            expected = bytes(value[(lane + turn) % lanes] for lane in range(lanes))
            assert beat.data.to_bytes(lanes, "little") == expected
            assert beat.side == amount + 7

    simulate(dut, send, receive)


@pytest.mark.parametrize("width", [0, 8, 24, 100])
def test_bad_width_is_named(width):
    with pytest.raises(ValueError, match=f"not {width}"):
        Packer(width=width)
    with pytest.raises(ValueError, match=f"not {width}"):
        Rotator(width=width, side=1)
