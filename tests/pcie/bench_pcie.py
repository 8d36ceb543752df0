"""A PCIe adapter between both DMA engines and cocotbext-pcie's block and root complex."""

import logging
import os
import random

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles, RisingEdge, Timer
from cocotbext.pcie.core import RootComplex
from cocotbext.pcie.core.tlp import CplStatus, Tlp

from tests.axi.card import READS
from tests.axi.test_axi import WRITERS, config
from tests.host.dma_clients import Reader, make_writer
from tests.pcie.card import BAR_BITS, FUNCTIONS
from tests.pcie.model import Campaign, Link, pace
from tests.pcie.platform import BLOCKS

SIZE = 1 << 16
PERIOD_NS = 4
#: PCIe 3.0 with 16 lanes.
LINK_GB_S = 15.75
#: The function whose DMA the clients do.
FUNCTION = 1
#: The model's block, as the test says; P-Tile knows no tags and drops no writes.
BLOCK = os.environ["BLOCK"]
PTILE = BLOCK == "ptile"
COUNTERS = ("poisoned", "refused", "timeouts", "malformed", "unexpected")


class Bench:
    """The card, the block, the link and the root complex."""

    def __init__(self, dut):
        self.dut, self.config = dut, config(512)
        self.rng = random.Random(cocotb.RANDOM_SEED)
        self.log = []

    async def start(self, cycles=400_000):
        """Enumerated, with bus mastering."""
        dut = self.dut
        # Enumeration asks for functions that are not there, which the models warn of.
        for name in ("cocotb.pcie", "cocotb.testbench"):
            logging.getLogger(name).setLevel(logging.ERROR)
        self.rc = RootComplex()
        self.rc.max_payload_size = 3
        self.block = BLOCKS[BLOCK](dut, functions=FUNCTIONS, whole=False)
        for function in self.block.functions:
            function.configure_bar(0, 1 << BAR_BITS)
        self.link = Link(self.block, self.rng, [FUNCTION])
        self.rc.make_port().connect(self.block)

        async def deadline():
            await Timer(cycles * PERIOD_NS, "ns")
            raise AssertionError(f"Not finished after {cycles} cycles")

        cocotb.start_soon(deadline())
        await RisingEdge(dut.clk)
        self.readers = [Reader(dut, i, 512) for i in range(READS)]
        self.writers = [make_writer(dut, i, 512, self.log) for i in range(WRITERS)]
        while dut.rst.value:
            await RisingEdge(dut.clk)
        await self.rc.enumerate()
        self.functions = [self.rc.find_device(one.pcie_id) for one in self.block.functions]
        for function in self.functions:
            await function.enable_device()
            await function.set_master()
        await self.settled()
        self.memory = self.rc.mem_pool.alloc_region(SIZE)
        self.base = self.memory.get_absolute_address(0)
        octets = np.random.default_rng(3).integers(0, 256, SIZE, dtype=np.uint8).tobytes()
        self.memory[:SIZE] = octets
        self.image = bytearray(octets)

    async def sizes(self, payload, read):
        """Set Max_Payload_Size and Max_Read_Request_Size, in bytes."""
        for function in self.block.functions:
            capability = function.pcie_cap
            capability.max_payload_size = (payload // 128).bit_length() - 1
            capability.max_read_request_size = (read // 128).bit_length() - 1
        await self.settled()

    async def settled(self):
        """Wait until the block has told the card what the host has set."""
        await self.cycles(80)

    def counters(self):
        values = {name: int(getattr(self.dut, f"nic0_{name}").value) for name in COUNTERS}
        return {name: value for name, value in values.items() if value}

    async def cycles(self, count):
        await ClockCycles(self.dut.clk, count)

    async def finish(self):
        """Everything has been answered, and all writes are in memory."""
        busy = [*self.readers, *self.writers]
        while any(one.waiting or getattr(one, "pending", getattr(one, "busy", 0)) for one in busy):
            await self.cycles(20)
        while not self.dut.nic0_idle.value:
            await self.cycles(5)
        await self.cycles(400)

    def check(self, bad=lambda request: False):
        """Compare reads with the image, apply writes to it and compare all of memory."""
        for reader in self.readers:
            for request in reader.done:
                at = request.addr - self.base
                assert request.error == bad(request), hex(at)
                if not request.error:
                    assert bytes(request.data) == self.image[at : at + request.length], hex(at)
            reader.done.clear()
        for addr, octets, _ in self.log:
            at = addr - self.base
            self.image[at : at + len(octets)] = octets
        self.log.clear()
        assert self.memory[:SIZE] == self.image


def pauses(rng):
    """Cycles in which the block holds a stream, or has nothing to give."""
    while True:
        yield rng.random() < 0.4


@cocotb.test()
@cocotb.parametrize(cycles=[60, 150, 400])
async def hot_reset(dut, cycles):
    """Traffic after a reset, which ends in the middle: the next test begins with the reset.

    The models of block, link and host are new in each test; the card is what the one before left.
    """
    bench = Bench(dut)
    await bench.start()
    rng, half = bench.rng, SIZE // 2

    def load():
        for _ in range(12):
            for reader in bench.readers:
                reader.read(bench.base + rng.randrange(half - 4096), rng.randint(1, 4096))
            for writer in bench.writers:
                addr = bench.base + half + rng.randrange(half - 2000)
                writer.write(addr, rng.randbytes(rng.randint(1, 2000)))

    await bench.sizes(256, 256)
    bench.rc.max_payload_size = 1
    load()
    await bench.finish()
    bench.check()
    assert bench.counters() == {} and not dut.nic0_lost_writes.value
    assert await bench.functions[FUNCTION].bar_window[0].read(0, 4) == bytes(4)
    load()
    cocotb.start_soon(bench.functions[FUNCTION].bar_window[0].read(0, 4))
    await bench.cycles(cycles)
    assert all(one.pending for one in bench.readers) and any(one.busy for one in bench.writers)


@cocotb.test()
async def registers(dut):
    """The root complex finds the functions, and reads and writes their registers."""
    bench = Bench(dut)
    await bench.start()
    rng, model = bench.rng, bytearray(32)
    window = bench.functions[FUNCTION].bar_window[0]
    for _ in range(300):
        # Any bytes of a request, where the eight words are again and again.
        at = rng.randrange(0x1000 - 64)
        size = rng.choice([1, 2, 4, 8, 16, rng.randint(1, 16)])
        if rng.random() < 0.5:
            octets = rng.randbytes(size)
            for n, octet in enumerate(octets):
                model[(at + n) % 32] = octet
            await window.write(at, octets)
        else:
            size = rng.choice([size, rng.randint(1, 64), 64])
            assert await window.read(at, size) == bytes(model[(at + n) % 32] for n in range(size))
    assert int(dut.nic0_refused_requests.value) == 0
    for number, function in enumerate(bench.functions):
        place = 0x1234 | number << 23
        assert await function.bar_window[0].read_dword(0x1234) == place
    # What is longer than any access of a processor is refused, and nothing hangs.
    await window.write(0, bytes(range(24)))
    with pytest.raises(Exception, match="Unsuccessful completion"):
        await window.read(0, 72)
    assert await window.read(0, 4) == model[:4]
    assert int(dut.nic0_refused_requests.value) == 2


@cocotb.test()
async def reads_and_writes(dut):
    """Any lengths at any addresses and all sizes of the bus, with completions in any order."""
    bench = Bench(dut)
    await bench.start()
    rng, half = bench.rng, SIZE // 2
    for payload, read in ((128, 128), (256, 512), (512, 256), (1024, 1024)):
        await bench.sizes(payload, read)
        bench.rc.max_payload_size = bench.block.functions[0].pcie_cap.max_payload_size
        bench.rc.split_on_all_rcb = payload == 256
        bench.link.shuffle = payload != 512
        for end in (bench.block.sink, bench.block.source):
            end.set_pause_generator(pauses(rng) if payload == 1024 else None)
            end.pause = False
        bench.link.sizes.clear()
        for _ in range(16):
            corners = [1, 3, 4, 63, 64, 65, 255, 256, 257, 511, 512, 513, 4096]
            for reader in bench.readers:
                length = rng.choice([*corners, rng.randint(1, 64), rng.randint(1, 4096)])
                reader.read(bench.base + rng.randrange(half - length), length)
            for writer in bench.writers:
                length = rng.choice([*corners, rng.randint(1, 64), rng.randint(1, 2000)])
                addr = bench.base + half + rng.randrange(half - length)
                writer.write(addr, rng.randbytes(length), idle=rng.choice([0, 0, 0.5]))
        await bench.finish()
        bench.check()
        limits = {False: min(read, bench.config.read_bytes), True: min(payload, 256)}
        for write, limit in limits.items():
            assert max(size for kind, size in bench.link.sizes if kind == write) == limit
    assert bench.counters() == {}


@cocotb.test()
async def reads_see_writes_before_them(dut):
    """A read of what was just written, under other writes."""
    bench = Bench(dut)
    await bench.start()
    rng, reader, writer = bench.rng, bench.readers[0], bench.writers[0]
    for _ in range(30):
        addr = bench.base + rng.randrange(2048)
        octets = rng.randbytes(rng.randint(1, 600))
        writer.write(addr, octets)
        while (addr, octets, 0) not in bench.log:
            await RisingEdge(dut.clk)
        request = reader.read(addr, len(octets))
        bench.writers[1].write(bench.base + 40_000, rng.randbytes(300))
        while reader.waiting or reader.pending:
            await bench.cycles(3)
        assert bytes(request.data) == octets
    reader.done.clear()
    await bench.finish()
    bench.check()


@cocotb.test()
async def answers_behind_writes(dut):
    """An answer to a register read comes when what was written before is in memory."""
    bench = Bench(dut)
    await bench.start()
    rng, window = bench.rng, bench.functions[FUNCTION].bar_window[0]
    for held_ns, rounds in ((0, 10), (100, 10), (1500, 2)):
        bench.link.held_ns = held_ns
        for _ in range(rounds):
            for writer in bench.writers:
                for _ in range(rng.randint(0, 3)):
                    addr = bench.base + rng.randrange(SIZE - 2000)
                    writer.write(addr, rng.randbytes(rng.choice([1, 8, 64, 300, 1500])))
            while any(writer.waiting or writer.busy for writer in bench.writers):
                await bench.cycles(1)
            while not dut.nic0_idle.value:
                await RisingEdge(dut.clk)
            assert await window.read(0, 4) == bytes(4)
            bench.check()
    bench.link.held_ns = 0
    assert not dut.nic0_lost_writes.value


@cocotb.test()
async def answers_without_bus_mastering(dut):
    """Writes that the block drops do not hold answers for ever, nor the writes after them."""
    bench = Bench(dut)
    await bench.start()
    function, writer = bench.functions[FUNCTION], bench.writers[0]
    await function.clear_master()
    await bench.settled()
    for n in range(3):
        writer.write(bench.base + 256 * n, bytes(range(200)))
    await bench.finish()
    bench.log.clear()  # nobody has got these
    assert await function.bar_window[0].read(0, 4) == bytes(4)
    lost = int(dut.nic0_lost_writes.value)  # each one, or all together
    assert lost == (3 if PTILE else 1)
    await function.set_master()
    await bench.settled()
    for n in range(50):
        writer.write(bench.base + 100 * n, bench.rng.randbytes(100))
    await bench.finish()
    assert await function.bar_window[0].read(0, 4) == bytes(4)
    bench.check()
    assert int(dut.nic0_lost_writes.value) == lost


@cocotb.test(skip=not PTILE)
async def reads_that_are_not_allowed(dut):
    """A function that is no bus master asks for nothing: what it may not ask for fails at once,
    and everything works when it may."""
    bench = Bench(dut)
    await bench.start()
    function, reader, asked = bench.functions[FUNCTION], bench.readers[0], bench.link.asked
    await function.clear_master()
    await bench.settled()
    reader.read(bench.base, 100)
    await bench.finish()
    bench.check(bad=lambda request: True)
    assert not asked and bench.counters() == {} and int(dut.nic0_denials.value) == 1
    await function.set_master()
    await bench.settled()
    reader.read(bench.base, 100)
    await bench.finish()
    bench.check()


@cocotb.test()
async def speed(dut):
    """A beat in every cycle of the steady state, or a full link, and no beat too many."""
    bench = Bench(dut)
    await bench.start()
    for size in (256, 512):
        await bench.sizes(size, size)
        bench.rc.max_payload_size = bench.block.functions[0].pcie_cap.max_payload_size

        def reads():
            for n in range(40):
                bench.readers[n % 2].read(bench.base + n % 8 * 4096, 4096)

        def writes():
            for n in range(40):
                bench.writers[n % 2].write(bench.base + n % 8 * 4096, bytes(4096))

        # A completion has the size of a request, a write that of the engine's chunks. Before the
        # data of a packet are words of the stream, and bytes of header and framing on the link. A
        # packet of RC begins with any 16 bytes of a beat, one of RQ with any 32, all others with a
        # beat.
        kinds = {
            bench.block.READ_DATA: (reads, size, 0 if PTILE else 12, 20, 64 if PTILE else 16),
            bench.block.REQUESTS: (writes, 256, 0 if PTILE else 16, 24, 64 if PTILE else 32),
        }
        for prefix, (work, data, head, framing, part) in kinds.items():
            beats, rate, held = await pace(bench, prefix, work)
            cocotb.log.info("%s, %d bytes: %d beats, %.3f cycles each", prefix, size, beats, rate)
            packets = 40 * 4096 // data
            least = packets * -(-(data + head) // part) * part / 64
            full = (data + framing) / LINK_GB_S / PERIOD_NS * packets / beats
            assert rate < 1.01 * max(1, full) and not held, (prefix, size, rate, held)
            if part != 16:
                assert beats == least
            else:  # the link is the limit, and a beat in which it brings nothing more has room
                assert least <= beats and rate < 1.02 * full
        for reader in bench.readers:
            reader.done.clear()


@cocotb.test()
async def errors(dut):
    """Poisoned, refused, misplaced and lost completions end their reads and no others."""
    bench = Bench(dut)
    await bench.start()
    rng, link = bench.rng, bench.link
    link.shuffle = True
    await bench.sizes(256, 256)

    def poison(tlp):
        tlp.ep = True
        return tlp

    def abort(tlp):
        request = bench.link.asked[tlp.tag]
        return Tlp.create_ca_completion_for_tlp(request, tlp.completer_id)

    def misplace(tlp):
        tlp.lower_address ^= 4
        return tlp

    def lose(tlp):
        bench.block.forget(tlp.tag)

    for counter, change in (
        ("poisoned", poison),
        ("malformed", misplace),
        ("timeouts", lose),
        ("refused", None),
        ("refused", abort),
    ):
        before = bench.counters().get(counter, 0)
        place = bench.base + 8192 if change else bench.base + 2 * SIZE
        count = 0

        def spoil(tlp, change=change):
            """One completion in the middle of each read of the first client."""
            nonlocal count
            at = bench.link.asked[tlp.tag].address - bench.base
            if change and at >= 8192 and at % 1024 == 256 and tlp.status == CplStatus.SC:
                count += 1
                return change(tlp)
            return tlp

        link.change = spoil
        for n in range(6):
            bench.readers[0].read(place + 1024 * n, 700)
            bench.readers[1].read(bench.base + rng.randrange(4096), rng.randint(1, 1500))
        await bench.finish()
        bench.check(bad=lambda request: request.addr >= bench.base + 8192)
        assert change is None or count >= 6
        assert bench.counters()[counter] - before >= 6, counter
    link.change = lambda tlp: tlp
    assert "unexpected" not in bench.counters()
    # A completion comes once more.
    await link.repeat()
    await bench.cycles(50)
    assert bench.counters()["unexpected"] == 1
    # Everything works as before: no tag is lost.
    for _ in range(40):
        for reader in bench.readers:
            reader.read(bench.base + rng.randrange(SIZE // 2), rng.randint(1, 1500))
    await bench.finish()
    bench.check()


@cocotb.test()
async def campaign(dut):
    """Completions that are poisoned, refused, misplaced, lost, late, split and in any order: each
    read fails or has its data, nothing waits for ever, and each kind is counted."""
    bench = Bench(dut)
    await bench.start()
    rng, link = bench.rng, bench.link
    await bench.sizes(256, 256)
    bench.rc.max_payload_size, bench.rc.split_on_all_rcb, link.shuffle = 1, True, True
    run = Campaign(bench)
    before = bench.counters()
    for _ in range(4):
        run.spoiled.clear()
        link.change = run.change
        for n, slot in enumerate(rng.sample(range(SIZE // 1024), 30)):
            length = rng.randint(1, 1024)
            at = 1024 * slot + rng.randint(0, 1024 - length)
            bench.readers[n % len(bench.readers)].read(bench.base + at, length)
        await bench.finish()
        failed = {(r.addr - bench.base) // 1024 for one in bench.readers for r in one.done
                  if r.error}  # fmt: skip
        assert failed == run.spoiled
        bench.check(bad=lambda request: (request.addr - bench.base) // 1024 in run.spoiled)
        link.change = lambda tlp: tlp
        # What comes when its read has been given up is for nobody.
        for tlp in run.late:
            await link.deliver(tlp)
        run.late.clear()
        await bench.cycles(200)
    counters = bench.counters()
    counted = {name: counters.get(name, 0) - before.get(name, 0) for name in COUNTERS}
    cocotb.log.info("%s: %s", run.kinds, counted)
    assert counted["timeouts"] == run.kinds["lost"] + run.kinds["late"] > 0
    assert counted["unexpected"] == run.kinds["late"] > 0
    assert counted["refused"] == run.kinds["refused"] > 0
    assert counted["poisoned"] == run.kinds["poisoned"] > 0
    # AMD's block takes what follows a misplaced completion for misplaced too.
    assert counted["malformed"] >= run.kinds["malformed"] > 0
