"""Rgmii and GigabitMac: frames through the pins, with the registers of the pins as a model."""

from __future__ import annotations

import random
import zlib

import pytest
from amaranth.hdl import ClockDomain, ClockSignal, Elaboratable, Fragment, Module, Mux, Signal
from amaranth.lib import io
from amaranth.sim import Simulator

from hdl.mac.frame_fifo import FrameFifo
from hdl.mac.gigabit import GigabitMac, Narrow, Widen
from hdl.mac.rgmii import Rgmii, RgmiiPins
from sim.bench.packet_stream import beats, packets
from tests.mac.test_gmii import wire

WIDTH = 64
LENGTHS = (60, 61, 63, 64, 65, 71, 72, 300)


class Cells:
    """A platform whose double data rate registers are models of the ECP5's (TN1265): both bits of
    an input appear at the rising edge that follows them."""

    def get_io_buffer(self, buffer: io.DDRBuffer) -> Elaboratable:
        return _Cell(buffer)


class _Cell(Elaboratable):
    def __init__(self, buffer: io.DDRBuffer):
        self._buffer = buffer

    def elaborate(self, platform) -> Module:
        m, buffer = Module(), self._buffer
        width = len(buffer.port)
        rising, falling = Signal(width), Signal(width)
        if buffer.direction is io.Direction.Output:
            m.d[buffer.o_domain] += [rising.eq(buffer.o[0]), falling.eq(buffer.o[1])]
            high = ClockSignal(buffer.o_domain)
            m.d.comb += buffer.port.o.eq(Mux(high, rising, falling))
            return m
        name = f"falling_{buffer.i_domain}"
        m.domains += ClockDomain(name, clk_edge="neg", local=True, reset_less=True)
        m.d.comb += ClockSignal(name).eq(ClockSignal(buffer.i_domain))
        m.d[name] += falling.eq(buffer.port.i)
        m.d[buffer.i_domain] += [
            rising.eq(buffer.port.i),
            buffer.i[0].eq(rising),
            buffer.i[1].eq(falling),
        ]
        return m


class Card(Elaboratable):
    """The MAC on the pins of a PHY that sends back what it gets: RXC is TXC."""

    def __init__(self) -> None:
        wide = {"tx_data": 4, "rx_data": 4}
        ports = {
            name: io.SimulationPort("io"[name.startswith("tx")], wide.get(name, 1), name=name)
            for name in ("tx_clk", "tx_ctl", "tx_data", "rx_ctl", "rx_data")
        }
        self.pins = RgmiiPins(**ports)
        self.mac = GigabitMac(width=WIDTH, frame_bytes=512)

    def elaborate(self, platform) -> Module:
        m = Module()
        # Memories of a platform are instances, which the simulator has none of.
        m.submodules.mac = Fragment.get(self.mac, None)
        m.submodules.rgmii = rgmii = Rgmii(pins=self.pins)
        for way in ("data", "en", "er"):
            m.d.comb += [
                getattr(rgmii.tx, way).eq(getattr(self.mac.tx, way)),
                getattr(self.mac.rx, way).eq(getattr(rgmii.rx, way)),
            ]
        return m


def clocks(simulator: Simulator) -> None:
    simulator.add_clock(20e-9, domain="sync")
    simulator.add_clock(8e-9, domain="mac_tx", phase=4e-9)
    simulator.add_clock(8e-9, domain="mac_txc", phase=6e-9)
    simulator.add_clock(8e-9, domain="mac_rx", phase=7e-9)


async def feed(ctx, port, words, pause=lambda: False) -> None:
    for word in words:
        while pause():
            await ctx.tick()
        ctx.set(port.valid, 1)
        ctx.set(port.payload, port.payload.shape().from_bits(word))
        while True:
            taken = ctx.get(port.ready)
            await ctx.tick()
            if taken:
                break
        ctx.set(port.valid, 0)


async def collect(ctx, port, seen: list[int], cycles: int, stall=lambda: False) -> None:
    for _ in range(cycles):
        ready = not stall()
        ctx.set(port.ready, ready)
        if ready and ctx.get(port.valid):
            seen.append(ctx.get(port.payload.as_value()))
        await ctx.tick()


def test_frames_pass_the_pins_both_ways():
    """What a PHY samples at TXC's edges is the wire's text; sent back, it is the frame again."""
    rng = random.Random(1)
    sent = [rng.randbytes(length) for length in LENGTHS]
    card, seen, text = Card(), [], []
    simulator = Simulator(Fragment.get(card, Cells()))
    clocks(simulator)

    async def core(ctx):
        await feed(ctx, card.mac.i, [word for frame in sent for word in beats(frame, WIDTH)])

    async def host(ctx):
        await collect(ctx, card.mac.o, seen, 1200)

    async def phy(ctx):
        """Samples at both edges of TXC, and answers with the same pins: RXC comes 3 ns later than
        TXD changes."""
        pins, now = card.pins, []
        last = ctx.get(pins.tx_clk.o)
        while True:
            await ctx.delay(1e-9)
            ctx.set(pins.rx_data.i, ctx.get(pins.tx_data.o))
            ctx.set(pins.rx_ctl.i, ctx.get(pins.tx_ctl.o))
            clock = ctx.get(pins.tx_clk.o)
            if clock != last:
                now.append((clock, ctx.get(pins.tx_ctl.o), ctx.get(pins.tx_data.o)))
                if not clock and len(now) >= 2:
                    (_, enable, low), (_, other, high) = now[-2:]
                    text.append((enable, enable ^ other, low | high << 4))
            last = clock

    simulator.add_testbench(core)
    simulator.add_testbench(host)
    simulator.add_testbench(phy, background=True)
    simulator.run()
    assert list(packets(seen, WIDTH)) == [(frame, False) for frame in sent]
    bytes_seen = bytes(byte for enable, _, byte in text if enable)
    assert bytes_seen == b"".join(wire(frame) for frame in sent)
    assert not any(error for _, error, _ in text)
    assert zlib.crc32(bytes_seen[8:68]) == int.from_bytes(bytes_seen[68:72], "little")


def test_pins_are_checked():
    ports = {name: io.SimulationPort("o", 1) for name in ("tx_clk", "tx_ctl", "rx_ctl", "rx_data")}
    with pytest.raises(ValueError, match="tx_data must have 4 pins, not 3"):
        Rgmii(pins=RgmiiPins(tx_data=io.SimulationPort("o", 3), **ports))


def single(dut, *benches) -> None:
    simulator = Simulator(dut)
    simulator.add_clock(8e-9)
    for bench in benches:
        simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("stalls", [0, 0.5])
def test_a_frame_leaves_the_fifo_whole(stalls):
    """No gap inside a frame that fits, however slowly it comes; a longer one leaves too."""
    rng = random.Random(2)
    sent = [rng.randbytes(length) for length in (1, 8, 9, 64, 200, 128, 3)]
    dut, seen, gaps = FrameFifo(width=WIDTH, depth=16), [], []

    async def source(ctx):
        words = [word for frame in sent for word in beats(frame, WIDTH)]
        await feed(ctx, dut.i, words, lambda: rng.random() < stalls)

    async def sink(ctx):
        inside, length = False, 0
        ctx.set(dut.o.ready, 1)
        for _ in range(600):
            if ctx.get(dut.o.valid):
                seen.append(ctx.get(dut.o.payload.as_value()))
                length += 1
                inside = not ctx.get(dut.o.p.last)
                length = length if inside else 0
            elif inside and length <= 8:
                gaps.append(length)
            await ctx.tick()

    single(dut, source, sink)
    assert [frame for frame, _ in packets(seen, WIDTH)] == sent
    assert not gaps


def test_bytes_without_gaps():
    sent = [bytes(range(length)) for length in (1, 7, 8, 9, 64, 65)]
    dut, seen, cycles = Narrow(width=WIDTH), [], []

    async def source(ctx):
        await feed(ctx, dut.i, [word for frame in sent for word in beats(frame, WIDTH)])

    async def sink(ctx):
        ctx.set(dut.o.ready, 1)
        for cycle in range(300):
            if ctx.get(dut.o.valid):
                seen.append(ctx.get(dut.o.payload.as_value()))
                cycles.append(cycle)
            await ctx.tick()

    single(dut, source, sink)
    assert [frame for frame, _ in packets(seen, 8)] == sent
    assert cycles[-1] - cycles[0] == len(cycles) - 1


@pytest.mark.parametrize("refused", [(), (2,), (1, 2), (4,)])
def test_what_finds_no_room_is_marked(refused):
    """Frames whose beats are refused end with an error or never appear; the others are whole."""
    sent = [bytes([n]) * 40 for n in range(1, 6)]
    dut, seen, lost = Widen(width=WIDTH), [], []

    async def source(ctx):
        for n, frame in enumerate(sent):
            for at, word in enumerate(beats(frame, 8)):
                ctx.set(dut.i.valid, 1)
                ctx.set(dut.i.payload, dut.i.payload.shape().from_bits(word))
                # Of a frame that is refused the first beat and the last one find room.
                await ctx.tick()
                ctx.set(dut.o.ready, n not in refused or at >= 30)
                lost.append(ctx.get(dut.lost))
            ctx.set(dut.i.valid, 0)
            ctx.set(dut.o.ready, 1)
            await ctx.tick().repeat(12)

    async def sink(ctx):
        for _ in range(400):
            if ctx.get(dut.o.valid) and ctx.get(dut.o.ready):
                seen.append(ctx.get(dut.o.payload.as_value()))
            await ctx.tick()

    single(dut, source, sink)
    found = list(packets(seen, WIDTH))
    good = [frame for n, frame in enumerate(sent) if n not in refused]
    assert [frame for frame, error in found if not error] == good
    bad = [frame for frame, error in found if error]
    assert len(bad) == len(refused) == sum(lost)
    assert all(len(frame) < 40 for frame in bad)
