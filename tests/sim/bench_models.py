"""Host model, link model and platform, on cards that copy and echo."""

import os
import random
import time

import cocotb
import numpy as np
import pytest
import scapy.utils
from cocotb.triggers import Timer

from sim.bench.testbench import Testbench
from sim.models import native
from sim.models.platform import Wire
from sim.wire.pcap import read_pcap
from tests.sim.echo import REGISTERS
from tests.sim.test_models import config

NS_PER_BYTE = 0.08


async def start(dut, cycles=100_000, jump=True, **options):
    conf = config(int(os.environ["WIDTH"]))
    bench = Testbench(dut, config=conf, memory=16 << 20, jump=jump, **options)
    await bench.start()
    bench.deadline(cycles)
    return bench


class Card:
    """Driver of ``tests.sim.echo``."""

    def __init__(self, host):
        self.host = host
        self.interrupts = 0
        self.message = host.interrupts.allocate(self._interrupt)

    def _interrupt(self):
        self.interrupts += 1

    async def put(self, name, value, size=4):
        await self.host.mmio.write(1, 0, REGISTERS[name], size, value)

    async def get(self, name, size=4, lane=0):
        return await self.host.mmio.read(1, 0, REGISTERS[name] + lane, size)

    async def set_up(self):
        await self.put("message_addr", self.message.address)
        await self.put("message_data", self.message.data)

    async def copy(self, source, target, length):
        seen = self.interrupts
        await self.put("source", source)
        await self.put("target", target)
        await self.put("length", length)
        while self.interrupts == seen:
            await self.host.wait_event(10_000)


@cocotb.test()
async def registers(dut):
    """Accesses of every size reach their lanes, reads do not pass writes, times are as set."""
    bench = await start(dut)
    card = Card(bench.hosts[0])
    await card.put("scratch", 0x11223344)
    assert await card.get("scratch") == 0x11223344
    assert await card.get("scratch", 1, 2) == 0x22
    assert await card.get("scratch", 2, 2) == 0x1122
    await bench.hosts[0].mmio.write(1, 0, REGISTERS["scratch"] + 1, 1, 0xAB)
    await bench.hosts[0].mmio.write(1, 0, REGISTERS["scratch"] + 2, 2, 0xCDEF)
    assert await card.get("scratch") == 0xCDEFAB44
    bench.hosts[0].set(mmio_latency_ns=400)
    begun = bench.hosts[0].now()
    assert await bench.management[0].read(REGISTERS["scratch"]) == 0xCDEFAB44
    assert 800 <= bench.hosts[0].now() - begun <= 840
    for addr, size in ((0x21, 4), (0x23, 2), (0x20, 8), (0x20, 3)):
        with pytest.raises(ValueError, match="not within an aligned word"):
            await bench.hosts[0].mmio.read(1, 0, addr, size)


@cocotb.test()
async def copies(dut):
    """Both hosts copy at the same time; data is there when the interrupt comes; nothing else is."""
    bench = await start(dut, 400_000)
    generator = np.random.default_rng(5)

    async def work(host, seed):
        rng = random.Random(seed)
        host.memory.bytes[:] = generator.integers(0, 256, host.memory.bytes.size, dtype=np.uint8)
        image = host.memory.bytes.copy()
        host.set(
            read_jitter_ns=300, write_jitter_ns=2000, stall_write=0.3, stall_read=0.3, seed=seed
        )
        card = Card(host)
        await card.set_up()
        for _ in range(40):
            length = rng.choice([1, 7, 8, 9, 64, 100, 4096, rng.randint(1, 4096)])
            source, target = rng.randrange(4 << 20), rng.randrange(8 << 20, 12 << 20)
            await card.copy(source, target, length)
            piece = slice(target, target + length)
            image[piece] = image[source : source + length]
            assert (host.memory.bytes[piece] == image[piece]).all(), "interrupt before data"
        assert (host.memory.bytes == image).all()
        assert card.interrupts == await card.get("done") == 40
        assert host.stats.interrupts == 40 and not host.interrupts.spurious and not host.faults

    tasks = [cocotb.start_soon(work(host, i + 1)) for i, host in enumerate(bench.hosts)]
    for task in tasks:
        await task


@cocotb.test()
async def read_after_write(dut):
    """A copy reads what the copy before it wrote although that is not visible to the host yet."""
    bench = await start(dut)
    host = bench.hosts[0]
    host.set(write_delay_ns=20_000, read_latency_ns=50)
    host.memory.bytes[:64] = 0x5A
    host.memory.bytes[4096:16384] = 0
    card = Card(host)
    for source, target in ((0, 4096), (4096, 8192)):
        await card.put("source", source)
        await card.put("target", target)
        await card.put("length", 64)
        await Timer(2000, "ns")
        if target == 4096:
            assert not host.memory.bytes[4096:4160].any(), "visible before its time"
    assert (host.memory.bytes[4096:4160] == 0x5A).all(), "a read did not push the write"
    assert not host.memory.bytes[8192:8256].any()
    # The completion of a register read pushes writes too.
    assert await card.get("done") == 2
    assert (host.memory.bytes[8192:8256] == 0x5A).all()


@cocotb.test()
async def clearing_counts_delays_no_write(dut):
    """What is on its way when the statistics are cleared becomes visible all the same."""
    bench = await start(dut)
    host = bench.hosts[0]
    host.set(write_delay_ns=5000)
    host.memory.bytes[:64] = 0x5A
    host.memory.bytes[4096:4160] = 0
    card = Card(host)
    for name, value in (("source", 0), ("target", 4096), ("length", 64)):
        await card.put(name, value)
    await Timer(3000, "ns")
    assert host.stats.writes_pending and not host.memory.bytes[4096:4160].any()
    native.clear(host.stats)
    await Timer(10_000, "ns")
    assert (host.memory.bytes[4096:4160] == 0x5A).all()
    assert host.stats.writes_pending == 0


@cocotb.test()
async def bandwidth_of_data(dut):
    """A limit below what the port takes is met: no part of a cycle is lost, nothing is too much."""
    bench = await start(dut)
    host, beat = bench.hosts[0], bench.config.bytes_per_beat
    card = Card(host)
    await card.set_up()

    async def copied(**limit):
        """Time in ns from the first write to the last one, with reads and writes in order."""
        host.set(reorder=False, **limit)
        native.clear(host.stats)
        await card.copy(4096, 8192, 4096)
        return (host.stats.last_write_ps - host.stats.first_write_ps) / 1000

    unlimited = await copied()  # the card pauses between its bursts
    for share in (0.95, 0.7, 0.3):
        gbps = share * 8 * beat * 1000 / bench.period_ps
        expected = 8 * (4096 - beat) / gbps
        for name in ("read_gbps", "write_gbps"):
            took = await copied(**{name: gbps})
            seen = (name, share, took, expected, unlimited)
            # The first burst of a read is there before anything is written.
            assert took >= (0.9 if name == "read_gbps" else 0.99) * expected, seen
            assert took <= max(expected, unlimited) + 6 * bench.period_ps / 1000, seen


@cocotb.test()
async def headers_count_in_the_limit(dut):
    """20 bytes for each packet below 4 GiB: completions, writes, and requests on writes' way."""
    bench = await start(dut)
    host, beat = bench.hosts[0], bench.config.bytes_per_beat
    card = Card(host)
    await card.set_up()
    gbps = 0.2 * 8 * beat * 1000 / bench.period_ps

    async def copied(**settings):
        """Time in ns from the first to the last write, and read request."""
        host.set(reorder=False, **settings)
        native.clear(host.stats)
        await card.copy(4096, 8192, 4096)
        seen = host.stats
        return seen.last_write_ps - seen.first_write_ps, seen.last_read_ps - seen.first_read_ps

    for name in ("read_gbps", "write_gbps"):
        plain, _ = await copied(**{name: gbps})
        for payload in (64, 128, 256):
            took, _ = await copied(**{name: gbps}, tlp_payload=payload)
            assert took == pytest.approx(plain * (payload + 20) / payload, rel=0.04), (
                name,
                payload,
            )
    # 16 reads of 256 bytes, each asked for in four packets.
    _, took = await copied(write_gbps=gbps, tlp_read=64)
    assert took / 1000 == pytest.approx(8 * 15 * 4 * 20 / gbps, rel=0.1)
    assert (host.memory.bytes[4096:8192] == host.memory.bytes[8192:12288]).all()


@cocotb.test()
async def watches(dut):
    """A handler is called for each write to what is watched, when it is visible, and no other."""
    bench = await start(dut)
    host = bench.hosts[0]
    card = Card(host)
    await card.set_up()
    host.memory.bytes[:4096] = 0x5A
    host.memory.bytes[8192:16384] = 0
    seen, others = [], []

    def written(time):
        seen.append((time, host.now(), bool((host.memory.bytes[8292:8296] == 0x5A).all())))

    host.watch(8292, 4, written)
    host.watch(12288, 4096, others.append)
    for length in (100, 108, 4096):
        await card.copy(0, 8192, length)
        assert len(seen) == (length > 100) + (length > 108)
    assert all(there and time // 1000 == now for time, now, there in seen) and not others
    await card.copy(0, 12288 + 4095, 2)
    assert len(others) == 1 and len(seen) == 2
    with pytest.raises(ValueError, match="Cannot watch 0 bytes"):
        host.watch(0, 0, written)


@cocotb.test()
async def faults(dut):
    """Outside memory: an error or a lost write, a fault each, and an unknown message is counted."""
    bench = await start(dut)
    host = bench.hosts[0]
    card = Card(host)
    await card.put("message_addr", 0xFEE0_0FFC)
    await card.put("message_data", 77)
    size = host.memory.bytes.size
    for source, target in ((size - 8, 0), (0, size - 8)):
        await card.put("source", source)
        await card.put("target", target)
        await card.put("length", 16)
        await Timer(3000, "ns")
    # Only the pieces beyond the end: 8 bytes each, of the read and of the write.
    assert [(f.write, f.addr, f.length) for f in host.faults] == [(False, size, 8), (True, size, 8)]
    assert [(m.address, m.data) for m, _ in host.interrupts.spurious] == [(0xFEE0_0FFC, 77)] * 2


@cocotb.test()
async def echoes(dut):
    """One card, Python at the far end: frames of every length come back, in time, in the pcap."""
    bench = await start(dut, 400_000, connect=False)
    card, wire = Card(bench.hosts[0]), bench.wires[0]
    await card.put("echo", 1)
    await card.get("echo")
    Wire.capture("echo.pcap")
    frames = [bytes(random.randbytes(n)) for n in (14, 59, 60, 61, 64, 65, 1514, 4200, 9000)] * 2
    for stall in (0, 0.5):
        wire.set(delay_ns=250, stall_tx=stall, stall_rx=stall)
        for frame in frames:
            wire.inject(frame)
        for frame in frames:
            got, _ = await wire.receive(50_000)
            assert got == frame.ljust(60, b"\0")
    wire.inject(frames[0], error=True)
    with pytest.raises(TimeoutError):
        await wire.receive(2000)
    assert wire.stats.tx_bad == 1 and wire.stats.tx_frames == 2 * len(frames)
    Wire.end_capture()
    # Every frame twice (there and back), but the bad one once; ordered, spaced by the line.
    records = list(read_pcap("echo.pcap"))
    assert len(records) == 4 * len(frames) + 1
    assert [t for t, _ in records] == sorted(t for t, _ in records)
    assert len(scapy.utils.rdpcap("echo.pcap")) == len(records)


@cocotb.test()
async def line_rate(dut):
    """Back-to-back frames begin exactly their time on the wire apart: preamble, FCS and gap too."""
    bench = await start(dut, 400_000, connect=False)
    wire = bench.wires[0]
    lengths = [60, 64, 1000, 1514, 4096, 60, 60, 9000] * 8
    slow, fast = (100, 1000) if bench.config.width >= 512 else (10, 100)
    card = Card(bench.hosts[0])
    for echo in (0, 1):
        await card.put("echo", echo)
        await card.get("echo")
        # To the card: exactly as sent. From it: all is there long before the line has taken it.
        wire.set(gbps=fast if echo else slow)
        Wire.capture("line.pcap")
        for length in lengths:
            wire.inject(bytes(length))
        wire.set(gbps=slow)
        if echo:
            for _ in lengths:
                await wire.receive(200_000)
        else:
            await Timer(200, "us")
        Wire.end_capture()
        records = list(read_pcap("line.pcap"))
        assert len(records) == (1 + echo) * len(lengths)
        ns_per_byte = 8 / slow
        if echo:
            took = (wire.stats.last_tx_ps - wire.stats.first_tx_ps) / 1000
            assert round(took, 3) == round((sum(lengths) + 24 * len(lengths) - 20) * ns_per_byte, 3)
        else:
            times = [time for time, _ in records]
            for i, length in enumerate(lengths[:-1]):
                gap = times[i + 1] - times[i]
                assert abs(gap - (length + 24) * ns_per_byte) <= 1, (i, length, gap)


@cocotb.test()
async def arrival(dut):
    """A frame's last beat comes with its last bit: an echo begins two beats after that."""
    bench = await start(dut, connect=False)
    wire, card = bench.wires[0], Card(bench.hosts[0])
    await card.put("echo", 1)
    await card.get("echo")
    per_beat = bench.period_ps
    for length in (60, 1514, 4096):
        wire.set(delay_ns=500, gbps=10)
        Wire.capture("arrival.pcap")
        wire.inject(bytes(length))
        _, arrived = await wire.receive(50_000)
        Wire.end_capture()
        (there, _), (back, _) = read_pcap("arrival.pcap")
        line_ps, last = 800, there * 1000 + (length + 4) * 800 + 500_000
        burst = (-(-length // bench.config.bytes_per_beat) - 1) * per_beat
        first = max(last - burst, there * 1000 + 500_000)
        begun = back * 1000 - 8 * line_ps
        assert first <= begun <= first + bench.config.bytes_per_beat * line_ps + 4 * per_beat
        assert abs(arrived - (back * 1000 + (length + 4) * line_ps + 500_000)) <= 1000


@cocotb.test()
async def two_cards(dut):
    """A frame goes to and fro between two echoing cards; none is lost, the line takes its time."""
    bench = await start(dut, 400_000)
    cards = [Card(host) for host in bench.hosts]
    for wire in bench.wires:
        wire.set(delay_ns=100)
    for card in cards:
        await card.put("echo", 1)
        await card.get("echo")
    Wire.capture("two.pcap")
    for _ in range(3):
        bench.wires[0].inject(bytes(range(200)))
    await Timer(20, "us")
    Wire.end_capture()
    records = list(read_pcap("two.pcap"))
    assert {frame for _, frame in records} == {bytes(range(200))}
    stats = [wire.stats for wire in bench.wires]
    assert min(s.tx_frames for s in stats) > 50
    assert abs(stats[0].tx_frames - stats[1].rx_frames) <= 3
    # One frame's half round: at least its time on the line, the delay, and two cycles a card.
    assert stats[0].tx_frames < 20_000 / (228 * NS_PER_BYTE + 100) * 3


@cocotb.test()
async def broken_card(dut):
    """The deadline fails a test, with a report."""
    bench = await start(dut)
    asked = []

    async def report():
        asked.append(await bench.management[0].read(REGISTERS["scratch"]))
        return "room x waits for y"

    deadline = bench.deadline(100, report)
    deadline.cancel()
    deadline = bench.deadline(100, report)
    task = deadline._task
    with pytest.raises(AssertionError, match="100 cycles(.|\n)*room x waits for y"):
        await task
    assert asked


@cocotb.test()
async def speed(dut):
    """Idle cards: what the models cost."""
    bench = await start(dut, 10_000_000, jump=False)
    begun = time.perf_counter()
    await bench.cycles(100_000)
    took = time.perf_counter() - begun
    rate = 100_000 / took
    dut._log.info("%d idle cards: %.0f cycles/s", len(bench.hosts), rate)
    # An order of magnitude below what an idle machine does, for busy ones.
    assert rate > 20_000
