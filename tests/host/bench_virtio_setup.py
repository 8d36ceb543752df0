"""Negotiation, queue set-up, resets, DEVICE_NEEDS_RESET."""

import cocotb

from hdl.abi import virtio_pci as abi
from hdl.abi.virtio_pci import Feature, Status
from hdl.csr.map import row_map
from hdl.ports.jobs import QueueErrorCause
from tests.host.card import SMALL
from tests.host.card_host import GAP, OFFERED, Host

EMPTY = {
    "enabled": 0,
    "size_log2": 8,
    "desc": 0,
    "driver": 0,
    "device": 0,
    "vector": 0xFFFF,
    "fresh": 1,
}
BEGUN = Status.ACKNOWLEDGE | Status.DRIVER


@cocotb.test()
async def features_are_offered_and_checked(dut):
    host = await Host.begin(dut, SMALL)
    await host.reset()
    offered = []
    for select in (0, 1, 2, 0x8000_0000, 0x1_0000):
        await host.set("device_feature_select", select)
        offered.append(await host.get("device_feature"))
    assert offered == [OFFERED & 0xFFFF_FFFF, OFFERED >> 32, 0, 0, 0]
    await host.set("device_feature", 0)
    version = Feature.VERSION_1.mask
    for features in (0, OFFERED & ~version, OFFERED | 2, OFFERED | 1 << 63, version | 1 << 34):
        await host.reset()
        assert await host.negotiate(features) == BEGUN, f"{features:#x} was accepted"
        assert int(dut.features.value) == 0
        await host.set("device_status", BEGUN | Status.FEATURES_OK | Status.DRIVER_OK)
        assert await host.get("device_status") == BEGUN
        assert not int(dut.driver_ok.value)
    for features in (version, OFFERED, version | Feature.EVENT_IDX.mask):
        await host.reset()
        assert await host.negotiate(features) == BEGUN | Status.FEATURES_OK
        order = (29, 35, 28)
        expected = sum((features >> bit & 1) << i for i, bit in enumerate(order))
        assert int(dut.features.value) == expected
        for half in (0, 1):  # settled: later writes change nothing
            await host.set("driver_feature_select", half)
            await host.set("driver_feature", 0)
            assert await host.get("driver_feature") == features >> 32 * half & 0xFFFF_FFFF
        await host.set("driver_feature_select", 2)
        await host.set("driver_feature", 0xFFFF_FFFF)
        assert await host.get("driver_feature") == 0
        assert int(dut.features.value) == expected


@cocotb.test()
async def status_only_grows(dut):
    host = await Host.begin(dut, SMALL)
    await host.reset()
    await host.set("device_status", Status.DRIVER_OK)
    assert await host.get("device_status") == 0  # no FEATURES_OK
    await host.set("device_status", Status.DEVICE_NEEDS_RESET | 0x30)
    assert await host.get("device_status") == 0
    await host.start()
    everything = BEGUN | Status.FEATURES_OK | Status.DRIVER_OK
    await host.set("device_status", Status.ACKNOWLEDGE)
    assert await host.get("device_status") == everything
    await host.set("device_status", Status.FAILED)
    assert await host.get("device_status") == everything | Status.FAILED


@cocotb.test()
async def queues_are_set_up(dut):
    host = await Host.begin(dut, SMALL)
    await host.start()
    assert await host.get("num_queues") == SMALL.queues
    for queue in range(SMALL.queues):
        await host.set("queue_select", queue)
        assert await host.get("queue_size") == SMALL.queue_size
        assert await host.get("queue_notify_off") == queue
        assert await host.get("queue_enable") == 0
        assert await host.get("queue_msix_vector") == 0xFFFF
        assert await host.row(queue) == EMPTY
    for queue in (SMALL.queues, 0x7FFF, 0xFFFF):
        await host.set("queue_select", queue)
        assert await host.get("queue_size") == 0
        await host.set("queue_desc", 0x1000)
        await host.set("queue_enable", 1)
        assert await host.get("queue_enable") == 0
    addresses = {
        "queue_desc": 0xFEDC_BA98_7654_3210,
        "queue_driver": 0x8000_0000_0000_0002,
        "queue_device": 0x0123_4567_89AB_CDEC,
    }
    await host.set("queue_select", 3)
    for size in (0, 3, 255, 257, 512, 0x8000, 0xFFFF):
        await host.set("queue_size", size)
        assert await host.get("queue_size") == SMALL.queue_size
    await host.set("queue_size", 16)
    assert await host.get("queue_size") == 16
    for vector in (0, SMALL.vectors - 1):
        await host.set("queue_msix_vector", vector)
        assert await host.get("queue_msix_vector") == vector
    for vector in (SMALL.vectors, 0x100, 0xFFFF):
        await host.set("queue_msix_vector", vector)
        assert await host.get("queue_msix_vector") == 0xFFFF
        await host.set("config_msix_vector", vector)
        assert await host.get("config_msix_vector") == 0xFFFF
    await host.set("queue_msix_vector", 2)
    for name, value in addresses.items():
        await host.set(name, value)
        assert await host.get(name) == value
    await host.set("queue_enable", 2)
    assert await host.get("queue_enable") == 0
    await host.set("queue_enable", 1)
    expected = {
        "enabled": 1,
        "size_log2": 4,
        "desc": addresses["queue_desc"],
        "driver": addresses["queue_driver"],
        "device": addresses["queue_device"],
        "vector": 2,
        "fresh": 1,
    }
    assert await host.row(3, 0) == await host.row(3, 1) == expected
    # What is enabled stands, but for its vector.
    for name in addresses:
        await host.set(name, 0)
    await host.set("queue_size", 64)
    await host.set("queue_enable", 0)
    await host.set("queue_msix_vector", 1)
    assert await host.row(3) == expected | {"vector": 1}
    assert await host.row(2) == await host.row(4) == EMPTY
    # Firmware sees the row and clears the mark; nothing else of its commit counts.
    await shadow(host, 2)
    assert await shadow(host, 3) == expected | {"vector": 1}
    assert await host.row(3, shown=True) == expected | {"vector": 1}
    await host.csr_write("queue.row", 0, word=0)
    await host.csr_write("queue.row", 0, word=6)
    await command(host, 2)
    assert await host.row(3) == expected | {"vector": 1, "fresh": 0}
    assert await host.get("device_status") & Status.DEVICE_NEEDS_RESET == 0


async def command(host, number):
    """Have the window of the virtqueues read (1) or commit (2)."""
    await host.csr_write("queue.command", number)
    while await host.csr_read("queue.status"):
        pass


async def shadow(host, queue):
    """The row as the firmware reads it."""
    await host.csr_write("queue.index", queue)
    await command(host, 1)
    words = [await host.csr_read("queue.row", i) for i in range(row_map("queue").words)]
    return host.row_of(words)


@cocotb.test()
async def bytes_of_a_field_may_come_one_by_one(dut):
    host = await Host.begin(dut, SMALL)
    await host.start()
    await host.set("queue_select", 1)
    place = abi.COMMON_CFG.place("queue_desc")
    value = 0x1122_3344_5566_7780
    for i in range(8):
        await host.write(1, 0, place.offset + i, 1, value >> 8 * i & 0xFF)
    assert await host.get("queue_desc") == value
    for i in range(8):
        assert await host.read(1, 0, place.offset + i, 1) == value >> 8 * i & 0xFF
    # Size and vector share a word: writing one leaves the other.
    await host.set("queue_size", 8)
    await host.set("queue_msix_vector", 3)
    assert await host.get("queue_size") == 8
    await host.write(1, 0, abi.COMMON_CFG.offset("queue_size"), 4, 1 << 16 | 32)
    assert (await host.get("queue_size"), await host.get("queue_msix_vector")) == (32, 1)


@cocotb.test()
async def misaligned_rings_are_refused(dut):
    host = await Host.begin(dut, SMALL)
    for name, bad in (("desc", 8), ("driver", 1), ("device", 2)):
        await host.start()
        await host.enable_queue(1)
        await host.set("queue_select", 2)
        for other in ("desc", "driver", "device"):
            await host.set(f"queue_{other}", 0x1_0000)
        await host.set(f"queue_{name}", 0x1_0000 + bad)
        await host.set("queue_enable", 1)
        assert await host.get("queue_enable") == 0
        assert await host.get("device_status") & Status.DEVICE_NEEDS_RESET
        found = host.csr.decode(
            "core.function0_needs_reset", await host.csr_read("core.function0_needs_reset")
        )
        assert found == {"queue": 2, "cause": QueueErrorCause.ALIGNMENT.value, "active": 1}
        assert (await host.row(1))["enabled"], "the other queue goes on"
    await host.reset()
    assert await host.csr_read("core.function0_needs_reset") == 0


@cocotb.test()
async def device_reset_brings_back_the_power_on_state(dut):
    host = await Host.begin(dut, SMALL)
    await host.tick(SMALL.queues + 10)
    registers = [at for at in range(0, abi.COMMON_CFG.size, 4)]
    power_on = [await host.read(1, 0, at, 4) for at in registers]
    rows = [await host.row(queue) for queue in range(SMALL.queues)]
    await host.config_write(abi.PCI_HEADER.offset("bar"), 4, 0xABCD_0000)
    await host.entry(2, "message_address", 0xFEE0_0000)
    resets = await host.csr_read("core.function0_resets")
    for delay in range(0, 60, 7):
        await host.start()
        await host.set("config_msix_vector", 1)
        host.rooms = False
        for queue in (0, 3, SMALL.queues - 1):
            await host.enable_queue(queue)
        await host.set("queue_reset", 1)  # does not finish: the device reset ends it
        await host.tick(delay)
        host.gap = 0
        await host.set("device_status", 0)
        assert await host.get("device_status") == Status.DEVICE_NEEDS_RESET
        await host.set("queue_desc", 0x5000)  # lost
        await host.set("device_status", 3)
        host.rooms = True
        while await host.get("device_status"):
            assert not int(dut.driver_ok.value)
        host.gap = GAP
        assert [await host.read(1, 0, at, 4) for at in registers] == power_on
        assert [await host.row(queue) for queue in range(SMALL.queues)] == rows
        resets += 2  # one in start()
        assert await host.csr_read("core.function0_resets") == resets
    # The PCI side is no part of the virtio device.
    assert await host.config_read(abi.PCI_HEADER.offset("bar"), 4) == 0xABCD_0000
    assert await host.entry_of(2, "message_address") == 0xFEE0_0000


@cocotb.test()
async def reset_waits_for_the_rooms(dut):
    host = await Host.begin(dut, SMALL)
    await host.start()
    host.rooms = False
    await host.set("device_status", 0)
    for _ in range(20):
        assert await host.get("device_status") != 0
        assert int(dut.reset_request.value)
        status = host.csr.decode(
            "core.function0_status", await host.csr_read("core.function0_status")
        )
        assert status.pop("features") == OFFERED & 0xFFFF
        assert status == {"device": Status.DEVICE_NEEDS_RESET, "resetting": 1, "waits": 1}
    await host.pulse(dut.reset_done)
    await host.tick(2)
    assert not int(dut.reset_request.value)
    while await host.get("device_status"):
        pass


@cocotb.test()
async def queue_reset(dut):
    host = await Host.begin(dut, SMALL)
    await host.start(OFFERED & ~Feature.RING_RESET.mask)
    await host.enable_queue(4)
    await host.set("queue_reset", 1)
    assert await host.get("queue_reset") == 0
    assert await host.get("queue_enable") == 1
    assert host.queue_resets == []
    await host.start()
    await host.set("queue_select", 4)
    await host.set("queue_reset", 1)  # not enabled: nothing to reset
    assert await host.get("queue_reset") == 0
    for queue in (4, 5, 6):
        await host.enable_queue(queue)
        await host.csr_write("queue.index", queue)
        await command(host, 2)  # not fresh any more
        assert (await host.row(queue))["fresh"] == 0
    host.rooms = False
    for queue in (4, 6):
        await host.set("queue_select", queue)
        await host.set("queue_reset", 1)
        await host.set("queue_reset", 1)  # once is enough
        await host.set("queue_reset", 0)
    for queue, resetting in ((4, 1), (5, 0), (6, 1)):
        await host.set("queue_select", queue)
        assert await host.get("queue_reset") == resetting
        assert (await host.row(queue))["enabled"], "engines still see the row"
    assert host.queue_resets == [4], "one at a time"
    await host.pulse(dut.queue_reset_done)
    await host.tick(10)
    assert host.queue_resets == [4, 6]
    assert await host.row(4) == EMPTY
    await host.set("queue_select", 6)
    assert await host.get("queue_reset") == 1
    await host.pulse(dut.queue_reset_done)
    assert (await host.get("queue_reset"), await host.get("queue_enable")) == (0, 0)
    assert await host.row(6) == EMPTY
    assert (await host.row(5))["enabled"]
    await host.enable_queue(4, size=32)
    assert await host.get("queue_enable") == 1
    assert (await host.row(4))["size_log2"] == 5


@cocotb.test()
async def queue_reset_that_ends_at_once(dut):
    """Rooms with nothing under way are done in the cycle in which they take the reset."""
    host = await Host.begin(dut, SMALL)
    await host.start()
    host.at_once = True
    for queue in (4, 6):
        await host.enable_queue(queue)
        await host.set("queue_reset", 1)
        await host.tick(10)
        assert (await host.get("queue_reset"), await host.get("queue_enable")) == (0, 0)
        assert await host.row(queue) == EMPTY
    assert host.queue_resets == [4, 6]


@cocotb.test()
async def broken_queue_asks_for_a_reset(dut):
    host = await Host.begin(dut, SMALL)
    await host.start()
    await host.send("queue_error", 7 | QueueErrorCause.DESC_LOOP.value << 16)
    await host.send("queue_error", 2 | QueueErrorCause.INDIRECT.value << 16)
    await host.tick(2)
    assert await host.get("device_status") & Status.DEVICE_NEEDS_RESET
    found = host.csr.decode(
        "core.function0_needs_reset", await host.csr_read("core.function0_needs_reset")
    )
    assert found == {"queue": 7, "cause": QueueErrorCause.DESC_LOOP.value, "active": 1}
    assert int(dut.driver_ok.value), "the other queues go on"
    await host.reset()
    assert await host.get("device_status") == 0
    assert await host.csr_read("core.function0_needs_reset") == 0


@cocotb.test()
async def generation_follows_the_contents(dut):
    host = await Host.begin(dut, SMALL)
    await host.start()
    before = await host.get("config_generation")
    assert await host.get("config_generation") == before
    await host.csr_write("port.mac_low", 0x4433_2211)
    assert await host.get("config_generation") == (before + 1) & 0xFF
    assert await host.read(1, 0, 0x1000, 1) == 2  # ISR: configuration
