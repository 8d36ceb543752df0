"""Frames between a core and AXI4-Stream, whose MAC has clocks of its own."""

import random

import pytest
from amaranth.hdl import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.sim import Simulator

from hdl.axi.bus import AxiStream
from hdl.common.count import COUNT
from hdl.common.packet import packet_stream
from hdl.mac_streams import MAC_COUNTERS, drop_counts, join_frames
from sim.bench.packet_stream import beats
from tests.simulate import simulate

WIDTH = 64
#: MHz of the core, and of the MAC's two clocks, neither of which is a multiple of another.
CORE, TX, RX = 200, 156.25, 157.1


class Core(wiring.Component):
    """What ``Nic`` has at its network side; it sends what it receives."""

    def __init__(self):
        super().__init__(
            {
                "mac_tx": Out(packet_stream(WIDTH)),
                "mac_rx": In(packet_stream(WIDTH)),
                "link_up": In(1),
                "around": In(data.StructLayout(dict.fromkeys(MAC_COUNTERS, COUNT))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        connect(m, flipped(self.mac_rx), flipped(self.mac_tx))
        return m


class Frames(wiring.Component):
    """A top around it, as ``AxiNic`` is; ``core`` can be looked into."""

    def __init__(self, *, mac_clocks: bool):
        self._mac_clocks, self.core = mac_clocks, Core()
        super().__init__(
            {
                "m_axis_tx": Out(AxiStream(WIDTH)),
                "s_axis_rx": In(AxiStream(WIDTH)),
                "link_up": In(1),
                **drop_counts(mac_clocks=mac_clocks),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.core = self.core
        join_frames(m, self.core, self, width=WIDTH, mac_clocks=self._mac_clocks)
        return m


async def send(ctx, bus, frames, gaps):
    """A MAC that receives them: no beat waits, and TREADY is not looked at."""
    for frame in frames:
        for at in range(0, len(frame), WIDTH // 8):
            part = frame[at : at + WIDTH // 8]
            ctx.set(bus.tvalid, 1)
            ctx.set(bus.tdata, int.from_bytes(part, "little"))
            ctx.set(bus.tkeep, (1 << len(part)) - 1)
            ctx.set(bus.tlast, at + len(part) == len(frame))
            await ctx.tick("mac_rx")
        ctx.set(bus.tvalid, 0)
        for _ in range(gaps()):
            await ctx.tick("mac_rx")


async def take(ctx, bus, seen, cycles):
    """A MAC that sends them, and wants a beat in each cycle once a frame has begun."""
    frame, inside = b"", False
    ctx.set(bus.tready, 1)
    for _ in range(cycles):
        valid = ctx.get(bus.tvalid)
        assert valid or not inside, "the MAC waits within a frame"
        if valid:
            count = ctx.get(bus.tkeep).bit_count()
            frame += ctx.get(bus.tdata).to_bytes(WIDTH // 8, "little")[:count]
            inside = not ctx.get(bus.tlast)
            if not inside:
                seen.append((frame, bool(ctx.get(bus.tuser))))
                frame = b""
        await ctx.tick("mac_tx")


def run(dut, *benches):
    simulator = Simulator(dut)
    for domain, mhz, phase in (("sync", CORE, 0.4), ("mac_tx", TX, 0.9), ("mac_rx", RX, 1.7)):
        simulator.add_clock(1e-6 / mhz, phase=phase * 1e-9, domain=domain)
    for bench in benches:
        simulator.add_testbench(bench)
    simulator.run()


def some(count, sizes):
    rng = random.Random(1)
    return [rng.randbytes(rng.choice(sizes)) for _ in range(count)]


@pytest.mark.parametrize("most", [0, 30])
def test_frames_go_whole_between_the_clocks(most):
    """Each comes back as it was sent, in order, and is one frame for the core; no drop counts."""
    dut, rng, seen, firsts = Frames(mac_clocks=True), random.Random(2), [], []
    frames = some(15, (60, 61, 64, 200, 500))

    async def mac(ctx):
        ctx.set(dut.link_up, 1)
        await ctx.tick("mac_rx").repeat(8)
        await send(ctx, dut.s_axis_rx, frames, lambda: 3 + rng.randrange(most + 1))

    async def wire(ctx):
        await take(ctx, dut.m_axis_tx, seen, 1000)
        assert ctx.get(dut.core.link_up)
        assert [ctx.get(dut.core.around[name]) for name in MAC_COUNTERS] == [0, 0]

    async def core(ctx):
        for _ in range(1300):
            port = dut.core.mac_rx
            if ctx.get(port.valid) and ctx.get(port.ready):
                firsts.append((ctx.get(port.p.first), ctx.get(port.p.last)))
            await ctx.tick()

    run(dut, mac, wire, core)
    assert seen == [(frame, False) for frame in frames]
    lengths = [len(list(beats(frame, WIDTH))) for frame in frames]
    marks = [(n == 0, n == length - 1) for length in lengths for n in range(length)]
    assert [(bool(first), bool(last)) for first, last in firsts] == marks


def test_drops_are_counted():
    """A MAC that sends nothing holds the core back; received frames then find no room."""
    dut, seen, counts = Frames(mac_clocks=True), [], []
    frames = some(30, (900, 1000))

    async def mac(ctx):
        ctx.set(dut.link_up, 1)
        await ctx.tick("mac_rx").repeat(8)
        await send(ctx, dut.s_axis_rx, frames, lambda: 3)
        await ctx.tick("mac_rx").repeat(40)
        counts.append([ctx.get(dut.core.around[name]) for name in MAC_COUNTERS])
        ctx.set(dut.m_axis_tx.tready, 1)
        for _ in range(4500):
            if ctx.get(dut.m_axis_tx.tvalid) and ctx.get(dut.m_axis_tx.tlast):
                seen.append(ctx.get(dut.m_axis_tx.tuser))
            await ctx.tick("mac_tx")

    run(dut, mac)
    ((sent, received),) = counts
    assert not sent and 0 < received < len(frames)
    assert len(seen) == len(frames) - received and not any(seen)


def test_drops_of_the_design_around_are_passed_on():
    dut = Frames(mac_clocks=False)

    async def bench(ctx):
        ctx.set(dut.mac_tx_drops, 3)
        ctx.set(dut.mac_rx_drops, (1 << COUNT) + 5)
        await ctx.tick()
        assert ctx.get(dut.core.around.mac_tx_drops) == 3
        assert ctx.get(dut.core.around.mac_rx_drops) == 5

    simulate(dut, bench)
