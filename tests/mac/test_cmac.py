"""CmacCrossing and FrameGate: no beat is lost but with its whole frame, and that is counted.

The MAC is a model of what CMAC asks: within a frame a beat whenever it is ready; no beat of its own
waits. Its clock has no relation to the core's.
"""

from __future__ import annotations

import random

import pytest
from amaranth.sim import Simulator

from hdl.common.packet import packet_beat
from hdl.mac.cmac import SLACK, CmacCrossing, FrameGate
from sim.bench.packet_stream import beats, packets
from tests.mac.test_rgmii import collect, feed, single

WIDTH = 64
#: MHz of the core and of the MAC; the second core is a slow one.
CLOCKS = [(250, 322.265625), (180, 322.265625)]
FRAME = 128  # bytes of the longest frame: 16 beats


def crossing(**depths):
    return CmacCrossing(width=WIDTH, frame_bytes=FRAME, **{"tx_beats": 64, "rx_beats": 64} | depths)


def run(dut, clocks, *benches):
    """Both clocks of the MAC are one, as on a board, and begin at some time of their own."""
    simulator = Simulator(dut)
    core, mac = (1e-6 / mhz for mhz in clocks)
    simulator.add_clock(core, phase=0.4e-9)
    for domain in ("mac_tx", "mac_rx"):
        simulator.add_clock(mac, phase=0.9e-9, domain=domain)
    for bench in benches:
        simulator.add_testbench(bench)
    simulator.run()


def some(count, seed=1, sizes=(60, 64, 65, 71, 72, 100, 127, 128)):
    rng = random.Random(seed)
    return [rng.randbytes(rng.choice(sizes)) for _ in range(count)]


async def mac_sends(ctx, dut, frames, gaps=lambda: 0):
    """What the MAC receives: nothing of it waits, and ``ready`` is not looked at.
    ``gaps``: cycles between two frames."""
    for frame in frames:
        for word in beats(frame, WIDTH):
            ctx.set(dut.rx.valid, 1)
            ctx.set(dut.rx.payload, packet_beat(WIDTH).from_bits(word))
            await ctx.tick("mac_rx")
        ctx.set(dut.rx.valid, 0)
        for _ in range(gaps()):
            await ctx.tick("mac_rx")


@pytest.mark.parametrize("clocks", CLOCKS)
@pytest.mark.parametrize("idle", [0, 0.4])
def test_a_frame_reaches_the_mac_without_a_gap(clocks, idle):
    """However slowly the core's beats come; the MAC is ready now and then, as behind a PCS."""
    dut, frames, rng, seen = crossing(), some(30), random.Random(2), []

    async def core(ctx):
        await feed(ctx, dut.i, [word for f in frames for word in beats(f, WIDTH)],
                   lambda: rng.random() < idle)  # fmt: skip

    async def mac(ctx):
        inside = False
        ctx.set(dut.tx_up, 1)
        for _ in range(1500):
            ready = rng.random() < 0.9
            ctx.set(dut.tx.ready, ready)
            valid = ctx.get(dut.tx.valid)
            assert valid or not inside, "the MAC waits within a frame"
            if ready and valid:
                seen.append(ctx.get(dut.tx.payload.as_value()))
                inside = not ctx.get(dut.tx.p.last)
            await ctx.tick("mac_tx")

    run(dut, clocks, core, mac)
    assert list(packets(seen, WIDTH)) == [(frame, False) for frame in frames]


@pytest.mark.parametrize("clocks", CLOCKS)
@pytest.mark.parametrize("stall", [0, 0.6])
def test_received_frames_come_whole_or_not_at_all(clocks, stall):
    """A core that is as fast as the wire loses nothing; what another one loses is counted."""
    dut, frames, rng, seen, drops = crossing(), some(60), random.Random(3), [], []

    async def mac(ctx):
        ctx.set(dut.rx_up, 1)
        await ctx.tick("mac_rx").repeat(8)
        await mac_sends(ctx, dut, frames, lambda: 6)

    async def core(ctx):
        await collect(ctx, dut.o, seen, 1600, lambda: rng.random() < stall)
        drops.append(ctx.get(dut.rx_drops))

    run(dut, clocks, mac, core)
    got = list(packets(seen, WIDTH))
    assert not any(error for _, error in got)
    came = [frame for frame, _ in got]
    at = 0
    for frame in came:  # a subsequence: order is kept, and no frame is one of two halves
        at = frames.index(frame, at) + 1
    assert drops == [len(frames) - len(came)]
    assert (drops[0] > 0) == (stall > 0 or clocks[0] < 200)
    assert len(came) >= 8


def test_the_fifo_carries_a_burst_of_its_depth():
    """No frame is dropped while there is room for the longest: the core may pause that long."""
    dut, seen = crossing(rx_beats=128), []
    frames = some(12, sizes=(64,))  # 96 beats, behind which 16 and the slack are free

    async def mac(ctx):
        ctx.set(dut.rx_up, 1)
        await ctx.tick("mac_rx").repeat(8)
        await mac_sends(ctx, dut, frames)

    async def core(ctx):
        await ctx.tick().repeat(200)
        await collect(ctx, dut.o, seen, 300)
        assert ctx.get(dut.rx_drops) == 0

    run(dut, CLOCKS[0], mac, core)
    assert [frame for frame, _ in packets(seen, WIDTH)] == frames


def test_a_link_that_is_down_holds_nobody():
    """The core's frames are taken and counted; none of them is sent when the link comes up."""
    dut, seen = crossing(), []
    before, after = some(30, seed=4), some(10, seed=5)

    async def core(ctx):
        ctx.set(dut.tx_up, 0)
        await feed(ctx, dut.i, [word for f in before for word in beats(f, WIDTH)])
        await ctx.tick().repeat(40)
        assert ctx.get(dut.tx_drops) == len(before)
        ctx.set(dut.tx_up, 1)
        await ctx.tick().repeat(8)
        await feed(ctx, dut.i, [word for f in after for word in beats(f, WIDTH)])

    async def mac(ctx):
        ctx.set(dut.tx.ready, 1)
        for _ in range(900):
            if ctx.get(dut.tx.valid):
                seen.append(ctx.get(dut.tx.payload.as_value()))
            await ctx.tick("mac_tx")

    run(dut, CLOCKS[0], core, mac)
    assert [frame for frame, _ in packets(seen, WIDTH)] == after


def test_a_mac_that_stops_holds_nobody_when_its_link_is_down():
    """It may stop in the middle of a frame. What is stored waits; what comes then is dropped."""
    dut, frames, taken = crossing(), some(40, seed=6), []

    async def core(ctx):
        ctx.set(dut.tx_up, 1)
        await feed(ctx, dut.i, [word for f in frames[:4] for word in beats(f, WIDTH)])
        ctx.set(dut.tx_up, 0)
        await feed(ctx, dut.i, [word for f in frames[4:] for word in beats(f, WIDTH)])
        await ctx.tick().repeat(40)
        taken.append(ctx.get(dut.tx_drops))

    async def mac(ctx):
        ctx.set(dut.tx.ready, 0)
        await ctx.tick("mac_tx").repeat(900)
        assert taken, "the core waits for the MAC"

    run(dut, CLOCKS[0], core, mac)
    assert len(frames) - 4 <= taken[0] <= len(frames)


@pytest.mark.parametrize("at", [1, 3, 7])
def test_a_frame_that_the_link_cuts_ends_with_an_error(at):
    """The receiver loses the alignment behind beat ``at``; the next frame is good again."""
    dut, seen = crossing(), []
    first, second, third = bytes(range(64)), bytes(range(100)), bytes(range(60))

    async def mac(ctx):
        ctx.set(dut.rx_up, 1)
        await ctx.tick("mac_rx").repeat(8)
        await mac_sends(ctx, dut, [first])
        for word in beats(second, WIDTH)[:at]:
            ctx.set(dut.rx.valid, 1)
            ctx.set(dut.rx.payload, packet_beat(WIDTH).from_bits(word))
            await ctx.tick("mac_rx")
        ctx.set(dut.rx.valid, 0)
        ctx.set(dut.rx_up, 0)
        await ctx.tick("mac_rx").repeat(30)
        ctx.set(dut.rx_up, 1)
        await mac_sends(ctx, dut, [third])

    async def core(ctx):
        await collect(ctx, dut.o, seen, 300)

    run(dut, CLOCKS[0], mac, core)
    found = list(packets(seen, WIDTH))
    assert found[::2] == [(first, False), (third, False)]
    assert found[1][1] and found[1][0][:-1] == second[: 8 * at]


@pytest.mark.parametrize("length,cut", [(16, False), (17, True), (40, True)])
def test_a_frame_that_is_too_long_is_cut(length, cut):
    """It ends with an error where the room that was kept for it ends; the next one is whole."""
    gate, seen, drops = FrameGate(width=WIDTH, beats=16, lossy=True), [], []
    frames = [bytes([1]) * 8 * length, bytes([2]) * 20]

    async def source(ctx):
        ctx.set(gate.room, 1)
        await feed(ctx, gate.i, [word for f in frames for word in beats(f, WIDTH)])

    async def sink(ctx):
        for _ in range(80):
            drops.append(ctx.get(gate.dropped))
            if ctx.get(gate.o.valid):
                seen.append(ctx.get(gate.o.payload.as_value()))
            await ctx.tick()

    single(gate, source, sink)
    (first, error), second = packets(seen, WIDTH)
    assert (first, error) == (frames[0][: 8 * 16], cut) and second == (frames[1], False)
    assert sum(drops) == cut


@pytest.mark.parametrize("lossy", [False, True])
def test_a_gate_without_room_holds_or_drops(lossy):
    gate, seen, drops = FrameGate(width=WIDTH, beats=16, lossy=lossy), [], []
    frames = [bytes([n]) * 20 for n in (1, 2, 3)]

    async def source(ctx):
        await feed(ctx, gate.i, [word for f in frames for word in beats(f, WIDTH)])

    async def sink(ctx):
        for cycle in range(40):
            ctx.set(gate.room, not 2 <= cycle <= 5)  # a frame has three beats
            if ctx.get(gate.o.valid):
                seen.append(ctx.get(gate.o.payload.as_value()))
            *_, dropped = await ctx.tick().sample(gate.dropped)
            drops.append(dropped)

    single(gate, sink, source)  # the source sees ``ready`` as ``room`` has made it
    came = [frame for frame, error in packets(seen, WIDTH) if not error]
    assert came == (frames[::2] if lossy else frames) and sum(drops) == lossy


def test_bad_parameters():
    with pytest.raises(ValueError, match="at least 1, not 0"):
        FrameGate(width=WIDTH, beats=0, lossy=True)
    least = 2 * FRAME * 8 // WIDTH + SLACK
    with pytest.raises(ValueError, match=f"rx_beats must be at least {least} for two frames"):
        crossing(rx_beats=32)
