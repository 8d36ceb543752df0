"""A guest that writes anything anywhere: every read is answered, a reset makes all good again."""

import random

import cocotb

from hdl.abi import virtio_pci as abi
from hdl.abi.virtio_pci import MsixControl, PciCommand
from hdl.config import FUNCTION_RDMA
from tests.host.card import MANAGEMENT, SMALL
from tests.host.card_host import COMMON, COUNTERS, DEVICE, GAP, ISR, NOTIFY_BAR, PBA, TABLE, Host

MSIX_CONTROL = 0x98 + 2
#: (bar, first, bytes) where something is.
PLACES = (
    (0, COMMON, 0x40),
    (0, COMMON, 0x40),
    (0, ISR, 8),
    (0, DEVICE, 0x290),
    (0, PBA, 0x20),
    (0, COUNTERS, 0x40),
    (0, TABLE, 16 * SMALL.vectors + 32),
    (NOTIFY_BAR, 0, 4 * SMALL.queues + 16),
    (abi.CONFIG_SPACE, 0, 0x110),
)
ROUNDS, ACCESSES = 12, 250


def aim(rng):
    if rng.random() < 0.1:
        return rng.randrange(8), rng.randrange(1 << 32) & ~3
    bar, first, size = rng.choice(PLACES)
    return bar, first + 4 * rng.randrange(size // 4)


def value(rng):
    small = (0, 1, 2, 4, 16, 0x0101_0101, 0xFFFF_FFFF, 0x0001_0001)
    return rng.choice((rng.getrandbits(32), rng.choice(small), 1 << rng.randrange(32)))


async def snapshot(host):
    """The management registers that no guest may change."""
    names = ["core.scratch", "core.heartbeat", "port.mac_low", "port.mac_high", "port.control"]
    names += [f"{table}.index" for table in ("qp_cfg", "mr", "queue")] + ["command.busy"]
    return [await host.csr_read(name) for name in names]


async def noise(host, rng, dut):
    """The rooms meanwhile: interrupts, broken queues, streams that are taken now and then."""
    while True:
        dut.doorbell__ready.value = rng.random() < 0.5
        dut.write__beat__ready.value = rng.random() < 0.3
        if rng.random() < 0.05:
            await host.send("interrupt", 1 | rng.getrandbits(16) << 8, patience=100)
        if rng.random() < 0.01 and not host.resetting:  # which ends with nothing left to say
            await host.send("queue_error", rng.getrandbits(16) | 5 << 16)
        await host.tick()


@cocotb.test()
async def anything_anywhere(dut):
    host = await Host.begin(dut, SMALL)
    rng = random.Random(cocotb.RANDOM_SEED)
    await host.tick(SMALL.queues + 10)
    registers = range(0, abi.COMMON_CFG.size, 4)
    power_on = [await host.read(1, 0, at, 4) for at in registers]
    await host.csr_write("core.scratch", 0x1234_5678)
    before = await snapshot(host)
    for _ in range(ROUNDS):
        host.gap = 0
        around = cocotb.start_soon(noise(host, rng, dut))
        for _ in range(ACCESSES):
            # Any function but the one the guest cannot reach: its number comes from the bus.
            function = FUNCTION_RDMA if rng.random() < 0.9 else rng.choice((0, 3, 4, 255))
            bar, addr = aim(rng)
            strb = rng.choice((1, 2, 4, 8, 3, 12, 15, 15, 15, rng.randrange(16)))
            data = value(rng) if rng.random() < 0.6 else None
            answer = await host.word(function, bar, addr, strb=strb, data=data)
            if function != FUNCTION_RDMA and data is None:
                assert answer == 0xFFFF_FFFF
            if rng.random() < 0.02:
                await host.start(1 << 32)
                for queue in range(3):
                    await host.enable_queue(queue)
        around.cancel()
        dut.interrupt__valid.value = 0
        dut.queue_error__valid.value = 0
        dut.doorbell__ready.value = 1
        dut.write__beat__ready.value = 1
        host.gap = GAP
        assert await snapshot(host) == before
        # The driver comes back: everything works from here.
        await host.tick(40)
        await host.reset()
        assert [await host.read(1, 0, at, 4) for at in registers] == power_on
        host.doorbells.clear()
        host.writes.clear()
        await host.command(PciCommand.MEMORY_SPACE | PciCommand.BUS_MASTER)
        for vector in range(SMALL.vectors):
            await host.entry(vector, "vector_control", vector != 1)
        await host.entry(1, "message_address", 0x1000)
        await host.entry(1, "message_data", 0x99)
        await host.config_write(MSIX_CONTROL, 2, MsixControl.ENABLE)
        await host.start()
        await host.enable_queue(5)
        assert (await host.row(5))["enabled"]
        await host.ring(5, size=4, data=3 << 16)
        await host.send("interrupt", 1 | 1 << 8)
        await host.tick(20)
        assert [(bell.queue, bell.next) for bell in host.doorbells] == [(5, 3)]
        assert host.writes == [(0x1000, 0x99)]
    dut._log.info(f"Slowest read: {host.slowest} cycles")


@cocotb.test()
async def management_registers_in_odd_sizes(dut):
    """Parts of a word and addresses beyond 20 bits do nothing."""
    host = await Host.begin(dut, SMALL)
    scratch = host.csr.address("core.scratch")
    await host.csr_write("core.scratch", 0x1122_3344)
    for strb in range(15):
        await host.word(MANAGEMENT, 0, scratch, strb=strb, data=0)
    await host.word(MANAGEMENT, 0, scratch | 1 << 20, data=0)
    await host.word(FUNCTION_RDMA, 0, scratch, data=0)
    assert await host.csr_read("core.scratch") == 0x1122_3344
    assert await host.read(MANAGEMENT, 0, scratch + 1, 2) == 0x2233
    assert await host.word(MANAGEMENT, 0, scratch | 1 << 20) == 0xFFFF_FFFF
    assert await host.word(MANAGEMENT, 0, scratch | 1 << 31) == 0xFFFF_FFFF
