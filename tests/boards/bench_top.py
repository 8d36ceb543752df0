"""Frames at the rate of the wire through the top of a PCIe card, whose core sends them back.

The MAC's model is what the vendor's is to its user: it takes a beat whenever it is ready, and
within a frame there must be one; what it has received it shows for one cycle.
"""

import os
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, ReadOnly, RisingEdge

from sim.bench.packet_stream import beats

WIDTH, OCTETS = 512, 64
#: Gigabits per second, and bytes of preamble, frame check sequence and gap around a frame.
RATE, OVERHEAD = 100, 24
#: Clock of the MAC's streams.
MAC_HZ = int(os.environ["MAC_HZ"])
#: Bytes of the wire in a cycle.
PER_CYCLE = RATE / 8 * 1e9 / MAC_HZ
LENGTHS = (60, 61, 64, 65, 127, 128, 129, 1024, 1514, 4198)


class Mac:
    """What the MAC has received and has been given."""

    def __init__(self, dut):
        self._dut, self._edge = dut, RisingEdge(dut.mac_clk)
        self.rng, self.sent, self.gaps = random.Random(1), [], 0
        dut.rx_valid.value = 0
        dut.tx_ready.value = 0

    async def receive(self, frames, *, cut=None):
        """Show frames to the core as fast as the wire brings them; with ``cut``, only that many
        beats of the last one."""
        dut, credit = self._dut, 0.0
        for n, frame in enumerate(frames):
            words = beats(frame, WIDTH)
            last_frame = cut is not None and n == len(frames) - 1
            for word in words[:cut] if last_frame else words:
                dut.rx_valid.value = 1
                dut.rx_data.value = word & ((1 << WIDTH) - 1)
                dut.rx_keep.value = word >> WIDTH & ((1 << OCTETS) - 1)
                dut.rx_last.value = word >> WIDTH + OCTETS + 1 & 1
                dut.rx_user.value = 0
                await self._edge
                credit += PER_CYCLE
            dut.rx_valid.value = 0
            credit -= len(frame) + OVERHEAD
            while credit < 0:
                await self._edge
                credit += PER_CYCLE
            credit = 0

    async def send(self):
        """Take frames at the rate of the wire."""
        dut, frame, credit = self._dut, bytearray(), 0.0
        inside = False
        while True:
            ready = inside or credit >= 0
            dut.tx_ready.value = ready
            await ReadOnly()
            valid = int(dut.tx_valid.value)
            if ready and inside and not valid:
                self.gaps += 1
            if ready and valid:
                keep = int(dut.tx_keep.value)
                frame += int(dut.tx_data.value).to_bytes(OCTETS, "little")[: keep.bit_length()]
                inside = not int(dut.tx_last.value)
                if not inside:
                    self.sent.append((bytes(frame), int(dut.tx_user.value)))
                    credit -= len(frame) + OVERHEAD
                    frame.clear()
            await self._edge
            credit = min(0.0, credit + PER_CYCLE)

    async def reach(self, count, cycles=20_000):
        """Wait until ``count`` frames have been sent."""
        for _ in range(cycles):
            if len(self.sent) >= count:
                return
            await self._edge
        raise AssertionError(f"{len(self.sent)} of {count} frames")


async def start(dut):
    """Clocks without relation, then PERST#; the link comes up."""
    for name, period in (
        ("core_clk", 4000),
        ("mac_clk", 2 * round(5e11 / MAC_HZ)),
        ("init_clk", 10_000),
    ):
        cocotb.start_soon(Clock(getattr(dut, name), period, unit="ps").start())
    for name in ("perst_n", "hold", "status", "remote_fault"):
        getattr(dut, name).value = 0
    mac = Mac(dut)
    await ClockCycles(dut.mac_clk, 40)
    assert int(dut.led_running.value) == 0 and int(dut.tx_reset.value) == 1
    assert int(dut.sys_reset.value) == 1 and int(dut.cattrip.value) == 0
    dut.perst_n.value = 1
    await ClockCycles(dut.init_clk, 40)
    assert int(dut.led_running.value) == 1 and int(dut.tx_reset.value) == 0
    assert int(dut.sys_reset.value) == 0
    assert int(dut.led_no_link.value) == 1 and int(dut.send_rfi.value) == 1
    dut.status.value = 1
    await ClockCycles(dut.mac_clk, 20)
    assert int(dut.link_up.value) == int(dut.led_link.value) == 1
    assert int(dut.send_rfi.value) == 0 and int(dut.led_no_link.value) == 0
    cocotb.start_soon(mac.send())
    return mac


def some(count, seed, lengths=LENGTHS):
    rng = random.Random(seed)
    return [rng.randbytes(rng.choice(lengths)) for _ in range(count)]


def drops(dut):
    return int(dut.tx_drops.value), int(dut.rx_drops.value)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def frames_at_the_rate_of_the_wire(dut):
    """Nothing is lost, and no frame has a gap on its way to the MAC."""
    mac, frames = await start(dut), [bytes([n]) * length for n, length in enumerate(LENGTHS)]
    frames += some(60, 2)
    await mac.receive(frames)
    await mac.reach(len(frames))
    assert mac.sent == [(frame, 0) for frame in frames] and not mac.gaps
    assert drops(dut) == (0, 0)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_core_that_holds_back_loses_whole_frames(dut):
    mac, frames = await start(dut), some(60, 3)
    dut.hold.value = 1
    await mac.receive(frames)
    dut.hold.value = 0
    await ClockCycles(dut.mac_clk, 3000)
    sent, lost = [frame for frame, _ in mac.sent], len(frames) - len(mac.sent)
    at = 0
    for frame in sent:
        at = frames.index(frame, at) + 1
    await ClockCycles(dut.core_clk, 10)
    assert lost > 0 and drops(dut) == (0, lost) and sent[0] == frames[0]
    assert not any(error for _, error in mac.sent) and not mac.gaps


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_link_that_goes_and_comes(dut):
    """Remote fault stops sending, the end of the alignment also what comes; frames then are
    dropped and counted, and the first one behind it is whole."""
    mac, frames = await start(dut), some(12, 4)
    dut.remote_fault.value = 1
    await ClockCycles(dut.mac_clk, 20)
    assert int(dut.led_link.value) == 0 and int(dut.send_rfi.value) == 0
    await mac.receive(frames[:4])
    await ClockCycles(dut.mac_clk, 400)
    assert not mac.sent and drops(dut) == (4, 0)
    dut.remote_fault.value = 0
    await ClockCycles(dut.mac_clk, 20)
    await mac.receive([*frames[4:8], bytes(1000)], cut=3)
    dut.status.value = 0
    await ClockCycles(dut.mac_clk, 100)
    assert int(dut.send_rfi.value) == 1 and int(dut.led_no_link.value) == 1
    dut.status.value = 1
    await ClockCycles(dut.mac_clk, 20)
    await mac.receive(frames[8:])
    await ClockCycles(dut.mac_clk, 600)
    good = [frame for frame, error in mac.sent if not error]
    bad = [frame for frame, error in mac.sent if error]
    assert good == frames[4:] and not mac.gaps
    # The cut frame is the core's to drop; this one sends it back, in the MAC's time or not.
    assert len(bad) + int(dut.tx_drops.value) - 4 == 1


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_bus_that_is_reset(dut):
    """PERST# in the middle of a frame resets all; what comes then is whole."""
    mac, frames = await start(dut), some(8, 5)
    await mac.receive([*frames[:2], bytes(4000)], cut=20)
    await mac.reach(2)
    dut.perst_n.value = 0
    await ClockCycles(dut.mac_clk, 60)
    assert int(dut.led_running.value) == 0 and int(dut.tx_reset.value) == 1
    dut.perst_n.value = 1
    await ClockCycles(dut.init_clk, 40)
    assert int(dut.led_running.value) == 1
    await mac.receive(frames[2:])
    await mac.reach(len(frames))
    assert mac.sent == [(frame, 0) for frame in frames] and not mac.gaps
