"""Function-level reset: the next owner of the function finds nothing of the one before.

From PCI Express Base Specification, 6.6.2, and Virtio 1.2, 2.4 and 4.1.4: everything that a driver
could set or read is as after power-on, however much the driver had written, and whatever the rest
of the card does.
"""

import random

import cocotb

from hdl.abi import virtio_pci as abi
from hdl.abi.virtio_pci import MsixControl, PciCommand, Status
from hdl.abi.virtio_rdma import QP_COUNTER_OFFSET
from hdl.config import FUNCTION_RDMA
from tests.host.bench_virtio_garbage import MSIX_CONTROL, aim, value
from tests.host.card import SMALL
from tests.host.card_host import COMMON, DEVICE, ISR, NOTIFY_BAR, PBA, TABLE, Host

COMMAND = abi.PCI_HEADER.offset("command")
STATUS = abi.COMMON_CFG.offset("device_status")
WINDOW = 0x74  # capability PCI_CFG
LIVE = PciCommand.MEMORY_SPACE | PciCommand.BUS_MASTER
#: (bar, offset) of each word that a driver finds, beside those of a queue.
WORDS = (
    *((abi.CONFIG_SPACE, at) for at in range(0, 0x100, 4)),
    *((0, at) for at in range(COMMON, COMMON + abi.COMMON_CFG.size + 4, 4)),
    (0, ISR),
    *((0, at) for at in range(DEVICE, DEVICE + 640, 4)),
    *((0, at) for at in range(PBA, PBA + 8, 4)),
    (0, QP_COUNTER_OFFSET),
    *((0, at) for at in range(TABLE, TABLE + 16 * SMALL.vectors, 4)),
    *((NOTIFY_BAR, at) for at in range(0, 4 * SMALL.queues, 4)),
)
QUEUE = range(abi.COMMON_CFG.offset("queue_size"), abi.COMMON_CFG.size, 4)


async def seen(host, *, queues=True):
    """What a driver finds: everything, then the registers of each queue, which it selects."""
    found = {place: await host.word(FUNCTION_RDMA, *place) for place in WORDS}
    for queue in range(SMALL.queues if queues else 0):
        await host.set("queue_select", queue)
        for at in QUEUE:
            found[0, at, queue] = await host.word(FUNCTION_RDMA, 0, at)
    await host.set("queue_select", 0)
    return found


def differences(found, expected):
    return {
        place: (found[place], expected[place]) for place in found if found[place] != expected[place]
    }


async def settle(host, rng):
    """A driver that uses everything, and one that writes anything anywhere."""
    await host.start()
    for queue in range(0, SMALL.queues, 3):
        await host.enable_queue(queue, base=0x5EC2_E700_0000 + 0x1_0000 * queue)
        await host.set("queue_msix_vector", 1 + queue % (SMALL.vectors - 1))
    await host.command(LIVE)
    await host.config_write(MSIX_CONTROL, 2, MsixControl.ENABLE | MsixControl.FUNCTION_MASK)
    for vector in range(SMALL.vectors):
        await host.entry(vector, "message_address", 0x5EC2_E700_0000 + 4 * vector)
        await host.entry(vector, "message_data", 0x5EC2_0000 + vector)
        await host.entry(vector, "vector_control", 0)
        await host.send("interrupt", FUNCTION_RDMA | vector << 8)  # pending
    await host.set("config_msix_vector", 1)
    await host.set("device_feature_select", 1)
    await host.word(FUNCTION_RDMA, 0, QP_COUNTER_OFFSET, data=3)
    for at, size in ((4, 1), (8, 4), (12, 4)):  # bar, offset, length of the window
        await host.config_write(WINDOW + at, size, 0x1C if at == 8 else 2)
    for mac in (1, 2):
        await host.csr_write("port.mac_low", mac)  # config_generation counts
    await host.send("queue_error", 3 | 1 << 16)  # DEVICE_NEEDS_RESET
    await host.csr_write("port.mac_low", 0)
    gap, host.gap = host.gap, 0
    for _ in range(200):
        bar, addr = aim(rng)
        data = value(rng) if rng.random() < 0.8 else None
        strb = rng.choice((1, 2, 4, 8, 3, 12, 15, 15, rng.randrange(16)))
        if bar == 0 and addr == STATUS and strb & 1 and data is not None and data & 0xFF == 0:
            continue  # the function is not reset, it has its state
        await host.word(FUNCTION_RDMA, bar, addr, strb=strb, data=data)
    host.gap = gap
    await host.tick(20)


@cocotb.test()
async def nothing_survives(dut):
    """Every register is as at power-on, again and again."""
    host = await Host.begin(dut, SMALL, deadline=2_000_000)
    rng = random.Random(cocotb.RANDOM_SEED)
    await host.tick(SMALL.queues + 50)
    fresh = await seen(host)
    assert all(fresh[0, TABLE + 16 * n + 12] == 1 for n in range(SMALL.vectors)), "not masked"
    for _ in range(8):
        await settle(host, rng)
        host.writes.clear()
        await host.function_reset()
        found = await seen(host)
        wrong = differences(found, fresh)
        assert not wrong, wrong
        # Nobody is told of what was meant for the owner before.
        await host.command(LIVE)
        await host.config_write(MSIX_CONTROL, 2, MsixControl.ENABLE)
        await host.tick(100)
        assert not host.writes and not int(dut.intx.value)
        await host.config_write(MSIX_CONTROL, 2, 0)
        await host.command(0)


@cocotb.test()
async def nothing_is_shown_while_the_firmware_is_dead(dut):
    """The registers are clean in some hundred cycles without anybody's help. The device says by its
    status that its reset goes on, takes no doorbell, and sends no interrupt of the old owner to the
    new one; what the driver writes meanwhile is lost. The engines still find the rows."""
    host = await Host.begin(dut, SMALL, deadline=2_000_000)
    rng = random.Random(cocotb.RANDOM_SEED)
    await host.tick(SMALL.queues + 50)
    fresh = await seen(host, queues=False)
    word = STATUS & ~3
    reset = fresh[0, word] | Status.DEVICE_NEEDS_RESET << 8 * (STATUS & 3)
    for _ in range(4):
        await settle(host, rng)
        host.rooms = False
        rows = [await host.row(queue) for queue in range(SMALL.queues)]
        dut.flr.value = 1
        await host.tick(2 * SMALL.vectors + 40)
        assert int(dut.flr_clean.value) and int(dut.fenced.value)
        assert not int(dut.flr_over.value)
        dut.flr.value = 0
        await host.tick()
        found = await seen(host, queues=False)
        wrong = differences(found, fresh | {(0, word): reset})
        assert not wrong, wrong
        # The next owner sets up what it can, and tries the rest.
        await host.command(LIVE)
        await host.config_write(MSIX_CONTROL, 2, MsixControl.ENABLE)
        for vector in range(SMALL.vectors):
            await host.entry(vector, "message_address", 0xFEE0_0000)
            await host.entry(vector, "vector_control", 0)
        host.doorbells.clear()
        host.writes.clear()
        for queue in range(SMALL.queues):
            await host.enable_queue(queue, base=0x7000_0000)
            await host.set("queue_msix_vector", 1)
            await host.ring(queue)
            assert await host.get("queue_enable") == 0
        for features in (1 << 32, 0):
            assert await host.negotiate(features) == Status.DEVICE_NEEDS_RESET
        for vector in range(SMALL.vectors):
            await host.send("interrupt", FUNCTION_RDMA | vector << 8)
        await host.word(FUNCTION_RDMA, 0, QP_COUNTER_OFFSET, data=1)
        assert await host.word(FUNCTION_RDMA, 0, QP_COUNTER_OFFSET + 4) == 0
        await host.tick(100)
        assert not host.writes and not host.doorbells and not int(dut.driver_ok.value)
        assert await host.word(FUNCTION_RDMA, 0, ISR) == 0
        assert [await host.row(queue) for queue in range(SMALL.queues)] == rows
        # A second reset of the function ends as well, and so does one of the device, at last.
        dut.flr.value = 1
        await host.tick(2 * SMALL.vectors + 40)
        assert int(dut.flr_clean.value)
        dut.flr.value = 0
        await host.set("device_status", 0)
        assert await host.get("device_status") == Status.DEVICE_NEEDS_RESET
        host.rooms = True
        while await host.get("device_status"):
            pass
        assert not int(dut.fenced.value)
        found = await seen(host, queues=False)
        wrong = differences(found, fresh)
        assert not wrong, wrong
        await host.start()
        await host.enable_queue(1)
        assert await host.get("queue_enable") == 1


@cocotb.test()
async def at_any_moment(dut):
    """A function-level reset ends in each cycle of a device reset, and of another one."""
    host = await Host.begin(dut, SMALL, deadline=2_000_000)
    await host.tick(SMALL.queues + 50)
    for again in (False, True):
        for wait in range(SMALL.queues + 30):
            await host.start()
            host.gap, gap = 0, host.gap
            if again:
                await host.function_reset()
            else:
                await host.set("device_status", 0)
            host.gap = gap
            await host.tick(wait + 1)
            await host.function_reset()
            assert not int(dut.fenced.value) and not int(dut.reset_request.value)
            assert await host.get("device_status") == 0


@cocotb.test()
async def what_a_device_reset_keeps(dut):
    """Configuration space and MSI-X table are PCI's and stay; everything else starts anew."""
    host = await Host.begin(dut, SMALL, deadline=2_000_000)
    rng = random.Random(cocotb.RANDOM_SEED)
    await host.tick(SMALL.queues + 50)
    fresh = await seen(host)
    await settle(host, rng)
    before = await seen(host, queues=False)
    await host.reset()
    found = await seen(host)
    table = range(TABLE, TABLE + 16 * SMALL.vectors)
    word = STATUS & ~3  # with config_generation, which goes on

    def kept(place):
        return place[0] == abi.CONFIG_SPACE or (place[0] == 0 and place[1] in table)

    expected = {place: (before if kept(place) else fresh)[place] for place in found}
    expected[0, word] |= before[0, word] & 0xFF00
    expected[abi.CONFIG_SPACE, COMMAND] &= ~(1 << 19)  # no interrupt is pending
    wrong = differences(found, expected)
    assert not wrong, wrong
