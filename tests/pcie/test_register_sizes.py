"""A guest function's registers behind the bus: what a driver reads and writes in any legal size.

From PCI Express Base Specification, 2.2.5 (byte enables) and 2.3.1 (completions), PCI Local Bus
3.0, 6.8.2 (MSI-X structures: words and pairs of words), and Virtio 1.2, 4.1.3.1: a driver reads
fields of any width, at any offset of the packed device configuration. A request that crosses a word
is one packet of two.
"""

import random

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpType
from cocotbext.pcie.core.utils import PcieId
from cocotbext.pcie.xilinx.us.tlp import Tlp_us

from hdl.abi import virtio_pci as abi
from hdl.abi.limits import config_bytes
from hdl.config import FUNCTION_RDMA, NicConfig
from hdl.host import config_space as space
from hdl.host.mmio import MmioRouter
from hdl.host.virtio import VirtioFunction
from hdl.pcie.completer import Completer, cc_beat, cq_beat
from hdl.pcie.control import FunctionControl
from hdl.pcie_nic import bars, places
from hdl.ports.jobs import Doorbell
from tests.pcie.test_completer import READ, WRITE, beats, completion
from tests.simulate import simulate

CONFIG = NicConfig(width=64, qps=4, cqs=2, mrs=2, gids=2, vectors=5, queue_size=256)
REGISTERS, NOTIFY = space.BAR_REGISTERS, space.BAR_NOTIFY
TABLE, PBA, ISR = space.MSIX_OFFSET, space.PBA_OFFSET, space.ISR_OFFSET
#: (BAR, first byte, bytes) of each structure.
STRUCTURES = (
    (REGISTERS, space.COMMON_OFFSET, abi.COMMON_CFG.size),
    (REGISTERS, ISR, 4),
    (REGISTERS, space.DEVICE_OFFSET, 144),
    (REGISTERS, TABLE, 16 * CONFIG.vectors),
    (REGISTERS, PBA, 8),
    (REGISTERS, space.CONFIG_OFFSET, 256),
    (NOTIFY, 0, 4 * CONFIG.queues),
)


class Card(wiring.Component):
    """From the block's streams to the registers of a guest function."""

    def __init__(self):
        super().__init__(
            {
                "cq": In(stream.Signature(cq_beat())),
                "cc": Out(stream.Signature(cc_beat())),
                "refused": Out(1),
                "doorbell": Out(stream.Signature(Doorbell)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.completer = completer = Completer()
        m.submodules.control = control = FunctionControl(
            config=CONFIG, places=places(CONFIG), patience=100
        )
        m.submodules.router = router = MmioRouter(config=CONFIG)
        m.submodules.function = function = VirtioFunction(config=CONFIG)
        connect(m, flipped(self.cq), completer.cq)
        connect(m, completer.cc, flipped(self.cc))
        connect(m, completer.mmio, control.mmio)
        connect(m, control.card, router.mmio)
        connect(m, router.guest0, function.bus)
        connect(m, function.doorbell, flipped(self.doorbell))
        m.d.comb += [self.refused.eq(completer.refused), function.reset_done.eq(1)]
        return m


class Driver:
    """Sends requests, and looks at what is answered."""

    def __init__(self, ctx, dut):
        self.ctx, self.dut, self.refused, self.doorbells = ctx, dut, 0, []

    async def watch(self, ctx):
        ctx.set(self.dut.doorbell.ready, 1)
        while True:
            *_, refused, valid, rung = await ctx.tick().sample(
                self.dut.refused, self.dut.doorbell.valid, self.dut.doorbell.payload
            )
            self.refused += refused
            if valid:
                self.doorbells.append(rung.queue)

    async def packet(self, bar, addr, enables, data=None, length=None):
        """A request of the words from ``addr`` on with the byte ``enables``, one bit each; returns
        the completion of a read."""
        ctx, dut = self.ctx, self.dut
        words = len(enables)
        tlp = Tlp_us(Tlp())
        tlp.fmt_type, tlp.length = (READ if data is None else WRITE), words
        tlp.address, tlp.tag = addr, random.randrange(256)
        tlp.requester_id = PcieId(1, 2, 3)
        tlp.completer_id = PcieId(0, 0, FUNCTION_RDMA)
        tlp.bar_id, tlp.bar_aperture = bar, bars(CONFIG)[FUNCTION_RDMA, bar]
        tlp.first_be, tlp.last_be = enables[0], (enables[-1] if words > 1 else 0)
        if data is not None:
            tlp.data = bytearray(data)
        for beat in beats(tlp):
            ctx.set(dut.cq.payload, beat)
            ctx.set(dut.cq.valid, 1)
            await ctx.tick().until(dut.cq.ready)
            ctx.set(dut.cq.valid, 0)
        if data is not None:
            return None
        ctx.set(dut.cc.ready, 1)
        (payload,) = await ctx.tick().sample(dut.cc.payload).until(dut.cc.valid)
        ctx.set(dut.cc.ready, 0)
        done, _ = completion(payload)
        assert (done.tag, done.requester_id) == (tlp.tag, tlp.requester_id)
        return done

    @staticmethod
    def enables(addr, size):
        """The words and their byte enables of ``size`` bytes at ``addr``."""
        first, end = addr & ~3, addr + size
        return [
            sum(1 << i for i in range(4) if addr <= at + i < end) for at in range(first, end, 4)
        ]

    async def read(self, bar, addr, size):
        done = await self.packet(bar, addr & ~3, self.enables(addr, size))
        assert done.fmt_type == TlpType.CPL_DATA and done.status == CplStatus.SC, hex(addr)
        assert (done.byte_count, done.lower_address) == (size, addr % 128)
        assert len(done.data) == 4 * done.length == 4 * len(self.enables(addr, size))
        return bytes(done.data[addr & 3 :][:size])

    async def write(self, bar, addr, octets):
        enables = self.enables(addr, len(octets))
        data = random.randbytes(addr & 3) + bytes(octets)
        data += random.randbytes(-len(data) % 4)  # bytes that are not enabled are not written
        await self.packet(bar, addr & ~3, enables, data)


def bench(body):
    dut, drivers = Card(), []

    async def run(ctx):
        random.seed(1)
        drivers.append(Driver(ctx, dut))
        await ctx.tick().repeat(40)
        await body(drivers[0])

    async def watch(ctx):
        while not drivers:
            await ctx.tick()
        await drivers[0].watch(ctx)

    simulate(dut, run, background=[watch], deadline=400_000)


async def image(driver, bar, first, size):
    """The bytes of a structure, read one by one."""
    return b"".join([await driver.read(bar, at, 1) for at in range(first, first + size)])


def test_reads_of_any_size_at_any_offset():
    """1 to 8 bytes at each byte of the device configuration, and up to 64; some of these lengths at
    each byte of the other structures: the bytes that are there."""

    async def body(driver):
        rng = random.Random(2)
        for vector in range(CONFIG.vectors):
            await driver.write(REGISTERS, TABLE + 16 * vector, rng.randbytes(12))
        for bar, first, size in STRUCTURES:
            octets = await image(driver, bar, first, size)
            if first == space.DEVICE_OFFSET:
                assert octets == config_bytes(CONFIG, bytes(6))[:size]
            for at in range(size):
                lengths = {*range(1, 9), rng.randint(9, 64), 64}
                if first != space.DEVICE_OFFSET:  # whose fields lie anywhere
                    lengths = {8, *rng.sample([*lengths], 2)}
                for length in sorted(one for one in lengths if at + one <= size):
                    found = await driver.read(bar, first + at, length)
                    assert found == octets[at : at + length], (bar, hex(first + at), length)
        assert driver.refused == 0

    bench(body)


def test_reads_with_any_byte_enables():
    """One or two words with every pattern that a packet may have, also one without any byte."""

    async def body(driver):
        bar, first = REGISTERS, space.DEVICE_OFFSET + 96
        octets = await image(driver, bar, first, 8)
        for low in range(16):
            for high in (None, *range(1, 16)):
                if high is not None and not low:
                    continue
                enables = [low] if high is None else [low, high]
                done = await driver.packet(bar, first, enables)
                assert done.status == CplStatus.SC and done.length == len(enables)
                for n, one in enumerate(enables):
                    for lane in range(4):
                        if one >> lane & 1:
                            assert done.data[4 * n + lane] == octets[4 * n + lane]
        assert driver.refused == 0

    bench(body)


def test_writes_of_any_size():
    """The MSI-X table takes 1 to 16 bytes at any offset, words and pairs of words above all."""

    async def body(driver):
        rng, size = random.Random(3), 16 * CONFIG.vectors
        mask = bytes([0xFC, *[0xFF] * 11, 1, 0, 0, 0]) * CONFIG.vectors
        wide = CONFIG.address_bits // 8
        model = bytearray(await image(driver, REGISTERS, TABLE, size))
        assert model == bytes([*[0] * 12, 1, 0, 0, 0]) * CONFIG.vectors
        pairs = [(at, 8) for at in range(0, size, 8)]
        others = [(rng.randrange(size - 16), rng.randint(1, 16)) for _ in range(150)]
        for at, length in pairs + others:
            octets = rng.randbytes(length)
            await driver.write(REGISTERS, TABLE + at, octets)
            for n, octet in enumerate(octets, at):
                beyond = wide <= n % 16 < 8  # of an address that no host has
                model[n] = 0 if beyond else octet & mask[n]
            assert await driver.read(REGISTERS, TABLE + at, length) == model[at : at + length]
        assert await image(driver, REGISTERS, TABLE, size) == model
        assert driver.refused == 0

    bench(body)


def test_registers_of_eight_bytes():
    """A queue's addresses in one write each; two doorbells in one, in their order."""

    async def body(driver):
        at = abi.COMMON_CFG.offset
        for name in ("queue_desc", "queue_driver", "queue_device"):
            octets = bytes(random.randbytes(5)) + bytes(3)
            await driver.write(REGISTERS, at(name), octets)
            assert await driver.read(REGISTERS, at(name), 8) == octets
        status = abi.Status
        # The upper half of the features, and VERSION_1 in it.
        await driver.write(REGISTERS, at("driver_feature_select"), bytes([1, 0, 0, 0, 1, 0, 0, 0]))
        begun = status.ACKNOWLEDGE | status.DRIVER | status.FEATURES_OK
        for value in (begun, begun | status.DRIVER_OK):
            await driver.write(REGISTERS, at("device_status"), bytes([value]))
            assert await driver.read(REGISTERS, at("device_status"), 1) == bytes([value])
        await driver.write(NOTIFY, 4, bytes([1, 0, 0, 0, 2, 0, 0, 0]))
        await driver.read(REGISTERS, 0, 1)
        assert driver.doorbells == [1, 2] and driver.refused == 0

    bench(body)


def test_what_no_driver_sends():
    """More than a processor's access, and byte enables that no packet has: each counted once."""

    async def body(driver):
        wrong = ([15] * 18, [0, 15], [15, 0], [15] * 1024)
        for count, enables in enumerate(wrong, 1):
            done = await driver.packet(REGISTERS, 0, enables)
            assert (done.fmt_type, done.status) == (TlpType.CPL, CplStatus.UR)
            assert driver.refused == count
        before = await driver.read(REGISTERS, TABLE, 64)
        await driver.packet(REGISTERS, TABLE, [15] * 6, bytes(range(1, 25)))
        assert await driver.read(REGISTERS, TABLE, 64) == before
        assert driver.refused == len(wrong) + 1

    bench(body)
