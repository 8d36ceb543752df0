"""The AXI adapter between both DMA engines and a memory that answers as late as it may."""

import os
import random

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, Timer
from cocotbext.axi import (
    AxiLiteBus,
    AxiLiteMaster,
    AxiStreamBus,
    AxiStreamFrame,
    AxiStreamSink,
    AxiStreamSource,
)

from tests.axi.card import READS, WINDOW, WIRES
from tests.axi.memory import PIECE, AxiMemory
from tests.axi.test_axi import BURSTS, WRITERS, config
from tests.host.dma_clients import Reader, make_writer

SIZE = 1 << 16
PERIOD_NS = 4

WEATHER = {
    "quick": {"read": 1, "write": 1},
    "late": {"read": 60, "read_more": 200, "write": 100, "write_more": 150},
    "mixed": {"read": 5, "read_more": 60, "write": 20, "write_more": 60, "mixed": True},
    "stalls": {"read": 5, "read_more": 30, "write": 5, "write_more": 50, "stall": 0.4},
}


class Bench:
    """Everything around the card."""

    def __init__(self, dut):
        self.dut, self.config = dut, config(int(os.environ["WIDTH"]))
        rng = np.random.default_rng(3)
        self.octets = rng.integers(0, 256, SIZE, dtype=np.uint8)
        self.image = self.octets.copy()
        self.log = []

    async def start(self, cycles):
        dut, width = self.dut, self.config.width
        dut.rst.value = 1
        dut.nic0_level.value = 0
        Clock(dut.clk, PERIOD_NS, "ns").start()
        self.memory = AxiMemory(dut, "nic0_m_axi_", self.octets)
        self.readers = [Reader(dut, i, width) for i in range(READS)]
        self.writers = [make_writer(dut, i, width, self.log) for i in range(WRITERS)]
        self.registers = AxiLiteMaster(
            AxiLiteBus.from_prefix(dut, "nic0_s_axil_"), dut.clk, dut.rst
        )
        self.source = AxiStreamSource(
            AxiStreamBus.from_prefix(dut, "nic0_s_axis_"), dut.clk, dut.rst
        )
        self.sink = AxiStreamSink(AxiStreamBus.from_prefix(dut, "nic0_m_axis_"), dut.clk, dut.rst)
        await ClockCycles(dut.clk, 4)
        dut.rst.value = 0
        await ClockCycles(dut.clk, 2)

        async def deadline():
            await Timer(cycles * PERIOD_NS, "ns")
            raise AssertionError(f"Not finished after {cycles} cycles")

        cocotb.start_soon(deadline())

    async def cycles(self, count):
        await ClockCycles(self.dut.clk, count)

    async def finish(self):
        """Everything has been answered."""
        busy = [*self.readers, *self.writers]
        while any(one.waiting or getattr(one, "pending", getattr(one, "busy", 0)) for one in busy):
            await self.cycles(10)
        await self.cycles(5)
        while not self.dut.nic0_idle.value or self.memory.pending_writes:
            await self.cycles(5)
        await self.cycles(2 + 2 * BURSTS)
        while self.memory.pending_writes:
            await self.cycles(5)
        await self.cycles(10)

    def applied(self):
        """What memory must hold, by the order in which bursts were issued."""
        for addr, octets, _ in self.log:
            self.image[addr : addr + len(octets)] = np.frombuffer(octets, np.uint8)
        self.log.clear()
        return self.image


@cocotb.test()
async def reads_and_writes(dut):
    """Any lengths at any addresses in any weather: reads of one half, writes of the other."""
    bench = Bench(dut)
    await bench.start(200_000)
    rng, beat = random.Random(cocotb.RANDOM_SEED), bench.config.bytes_per_beat
    half = SIZE // 2
    for weather in WEATHER.values():
        bench.memory.set(**weather)
        for _ in range(12):
            corners = [1, beat - 1, beat, beat + 1, 255, 256, 511, 512, 513, 4096]
            for reader in bench.readers:
                length = rng.choice([*corners, rng.randint(1, 64), rng.randint(1, 4096)])
                reader.read(rng.randrange(half - length), length, rng.choice([0, 0, 9]))
            for writer in bench.writers:
                length = rng.choice([*corners, rng.randint(1, 64), rng.randint(1, 2000)])
                addr = half + rng.randrange(half - length)
                writer.write(addr, rng.randbytes(length), idle=rng.choice([0, 0, 0.5]))
        await bench.finish()
        for reader in bench.readers:
            assert len(reader.done) == 12
            for request in reader.done:
                place = slice(request.addr, request.addr + request.length)
                assert not request.error
                assert bytes(request.data) == bench.image[place].tobytes(), request.addr
            reader.done.clear()
        assert (bench.octets == bench.applied()).all()
    assert bench.memory.functions == {1} and 1 < bench.memory.most_writes <= BURSTS
    assert not int(dut.nic0_read_errors.value) and not int(dut.nic0_write_errors.value)


@cocotb.test()
async def reads_see_writes_before_them(dut):
    """A read of what was just written, while the write's response is late."""
    bench = Bench(dut)
    await bench.start(100_000)
    rng = random.Random(5)
    reader, writer = bench.readers[0], bench.writers[0]
    for weather in ("late", "quick", "stalls"):
        bench.memory.set(**WEATHER[weather])
        for _ in range(20):
            addr = rng.randrange(2048)
            octets = rng.randbytes(rng.randint(1, 600))
            writer.write(addr, octets)
            while (addr, octets, 0) not in bench.log:
                await RisingEdge(dut.clk)
            request = reader.read(addr, len(octets))
            if rng.random() < 0.5:  # another one, which the read need not wait for
                writer.write(40_000, rng.randbytes(300))
            while reader.waiting or reader.pending:
                await bench.cycles(3)
            assert bytes(request.data) == octets
        await bench.finish()


@cocotb.test()
async def errors(dut):
    """SLVERR and DECERR end the reads that they hit and no others; writes are counted."""
    bench = Bench(dut)
    await bench.start(100_000)
    rng = random.Random(6)
    bench.memory.broken = {9, 200, 300, 301}
    bench.memory.set(**WEATHER["mixed"])

    def bad(addr, length):
        pieces = range(addr // PIECE, (addr + length - 1) // PIECE + 1)
        return any(one in bench.memory.broken or one >= SIZE // PIECE for one in pieces)

    for _ in range(16):
        for reader in bench.readers:
            length = rng.randint(1, 2000)
            reader.read(rng.randrange(SIZE + 4096 - length), length)
    await bench.finish()
    faults = 0
    for reader in bench.readers:
        for request in reader.done:
            assert request.error == bad(request.addr, request.length), hex(request.addr)
            faults += request.error
            if not request.error:
                place = slice(request.addr, request.addr + request.length)
                assert bytes(request.data) == bench.image[place].tobytes()
    assert faults > 4 and int(dut.nic0_read_errors.value) >= faults
    for addr in (9 * PIECE, 10 * PIECE, SIZE, 301 * PIECE, 302 * PIECE):
        bench.writers[0].write(addr, b"\1")
    await bench.finish()
    assert int(dut.nic0_write_errors.value) == 3
    assert bench.octets[10 * PIECE] == bench.octets[302 * PIECE] == 1


@cocotb.test()
async def a_beat_in_every_cycle(dut):
    """Both ways at once, with bursts of 512 and 256 bytes and with bursts of one beat."""
    bench = Bench(dut)
    await bench.start(60_000)
    beat, memory = bench.config.bytes_per_beat, bench.memory
    memory.set(read=20, write=20)
    for size in (4096, beat):
        memory.read_beats.clear()
        memory.written_beats.clear()
        count = 20 if size > beat else 240
        bursts = memory.bursts
        for n in range(count):
            for reader in bench.readers[1:2]:
                reader.read(n * size % 16384, size)
            bench.writers[n % 2].write(32768 + n * size % 16384, bytes(size))
        await bench.finish()
        total = count * size // beat
        for name, cycles in (("read", memory.read_beats), ("write", memory.written_beats)):
            assert len(cycles) == total
            steady = cycles[total // 8 : -total // 8]
            rate = (steady[-1] - steady[0]) / (len(steady) - 1)
            dut._log.info("%s, bursts of %d: %.3f cycles a beat", name, size, rate)
            assert rate < 1.1 if size > beat else rate < 2.2, (name, size, rate)
        assert memory.bursts - bursts == (count * 16 if size > beat else count)


@cocotb.test()
async def registers(dut):
    """Accesses of every size and place; what a read tells of has been written before."""
    bench = Bench(dut)
    await bench.start(100_000)
    registers, rng = bench.registers, random.Random(7)
    model = bytearray(32)
    for _ in range(80):
        size = rng.choice([1, 2, 4, 8])
        at = rng.randrange(32 // size) * size
        if rng.random() < 0.5:
            octets = rng.randbytes(size)
            model[at : at + size] = octets
            await registers.write(at, octets)
        else:
            assert (await registers.read(at, size)).data == model[at : at + size]
    for _ in range(20):
        function, bar = rng.randrange(8), rng.randrange(8)
        offset = rng.randrange(1 << 18) << 2 | 0x1000
        address = function << 23 | bar << 20 | offset
        assert await registers.read_dword(address) == address
    bench.memory.set(write=400)
    for n in range(6):
        bench.writers[0].write(4096 + 16 * n, bytes([n + 1]) * 16)
        while len(bench.log) <= n:
            await RisingEdge(dut.clk)
        await bench.cycles(12)  # through the engine, and taken by the adapter
        await registers.read_dword(0)
        assert (bench.octets[4096 + 16 * n :][:16] == n + 1).all(), n


@cocotb.test()
async def interrupts(dut):
    """Wires, each once and behind the writes before it; and levels."""
    bench = Bench(dut)
    await bench.start(100_000)
    seen = []

    async def watch():
        while True:
            await RisingEdge(dut.clk)
            if value := int(dut.nic0_irq.value):
                written = int(bench.octets[100:104].view(np.uint32)[0])
                seen.append((value.bit_length() - 1, written))

    cocotb.start_soon(watch())
    bench.memory.set(write=60, write_more=60)
    bench.octets[100:104] = bench.image[100:104] = 0
    numbers = [n * 5 % WIRES for n in range(40)]
    for n, wire in enumerate(numbers):
        bench.writers[0].write(100, (n + 1).to_bytes(4, "little"))
        bench.writers[0].write(WINDOW + 4 * wire, bytes(4))
    bench.writers[0].write(WINDOW + 4 * WIRES, bytes(4))  # none has this number
    while len(seen) < len(numbers):
        await bench.cycles(10)
    await bench.finish()
    await bench.cycles(300)
    assert [wire for wire, _ in seen] == numbers
    assert all(written > n for n, (_, written) in enumerate(seen))
    bench.log[:] = [one for one in bench.log if one[0] < SIZE]
    assert (bench.octets == bench.applied()).all()

    bench.memory.set(write=200)
    bench.writers[0].write(200, b"\7\7")
    while len(bench.log) < 1:
        await RisingEdge(dut.clk)
    await bench.cycles(12)
    dut.nic0_level.value = 1
    while not dut.nic0_intx.value:
        await RisingEdge(dut.clk)
    assert bench.octets[200] == 7
    dut.nic0_level.value = 0
    await bench.cycles(2)
    assert not dut.nic0_intx.value
    dut.nic0_level.value = 1
    await bench.cycles(4)
    assert dut.nic0_intx.value


@cocotb.test()
async def frames(dut):
    """Frames of all lengths, with gaps and backpressure; bad ones stay bad."""
    bench = Bench(dut)
    await bench.start(100_000)
    rng, beat = random.Random(8), bench.config.bytes_per_beat

    def pauses(share):
        while True:
            yield rng.random() < share

    for share in (0, 0.4):
        for end in (bench.source, bench.sink):
            end.set_pause_generator(pauses(share))
        sizes = [1, beat - 1, beat, beat + 1, 60, 64, 1500, 4096, *rng.choices(range(1, 300), k=20)]
        sent = [(rng.randbytes(size), rng.random() < 0.3) for size in sizes]
        for octets, error in sent:
            beats = -(-len(octets) // beat)
            user = [0] * len(octets)
            user[(beats - 1) * beat :] = [int(error)] * (len(octets) - (beats - 1) * beat)
            await bench.source.send(AxiStreamFrame(octets, tuser=user))
        for octets, error in sent:
            got = await bench.sink.recv(compact=False)
            body = bytes(got.tdata)[: len(octets)]
            assert body == octets and got.tuser[-1] == error and not any(got.tuser[:-beat])
