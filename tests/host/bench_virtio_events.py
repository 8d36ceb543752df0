"""Doorbells, MSI-X with its masks, INTx with the ISR."""

import random

import cocotb

from hdl.abi.enums import RdmaFeature
from hdl.abi.virtio_pci import Feature, MsixControl, PciCommand
from hdl.ports.jobs import QueueErrorCause
from tests.host.card import SMALL
from tests.host.card_host import GAP, ISR, OFFERED, PBA, Doorbell, Host

MSIX_CONTROL = 0x98 + 2
NO_VECTOR = 0xFFFF
BUS_MASTER = PciCommand.MEMORY_SPACE | PciCommand.BUS_MASTER


@cocotb.test()
async def doorbells(dut):
    host = await Host.begin(dut, SMALL)
    await host.reset()
    await host.ring(1)
    await host.negotiate(OFFERED & ~Feature.NOTIFICATION_DATA.mask)
    await host.ring(1)
    assert host.doorbells == [], "before DRIVER_OK"
    await host.set("device_status", 15)
    for queue in range(SMALL.queues):
        await host.ring(queue, data=queue)
    await host.ring(2, size=4, data=0xABCD_0002)
    await host.tick(10)
    expected = [Doorbell(queue, 0, 0) for queue in range(SMALL.queues)] + [Doorbell(2, 0, 0xABCD)]
    assert [d.queue for d in host.doorbells] == [d.queue for d in expected]
    assert not any(d.has_next for d in host.doorbells)
    host.doorbells.clear()
    await host.ring(SMALL.queues)  # no such queue
    await host.ring(1, size=1)
    await host.write(1, 2, 6, 2, 1)  # between two doorbells
    assert await host.read(1, 2, 4, 4) == 0
    await host.tick(10)
    assert host.doorbells == []

    await host.start()
    for queue, position in ((0, 0), (3, 0x7FFF), (4, 0x8000), (10, 0xFFFF)):
        await host.ring(queue, size=4, data=position << 16 | queue)
    await host.ring(5, size=2, data=5)
    await host.tick(10)
    assert host.doorbells[:4] == [
        Doorbell(0, 1, 0, 1),
        Doorbell(3, 1, 0x7FFF, 1),
        Doorbell(4, 1, 0x8000, 1),
        Doorbell(10, 1, 0xFFFF, 1),
    ]
    # With ARM_CQ alone all four bytes arm, which two bytes never do.
    assert host.doorbells[4].arms == 0
    for features, expected in (
        (Feature.NOTIFICATION_DATA.mask, Doorbell(3, 0, 0x7FFF, 1)),
        (RdmaFeature.ARM_CQ.mask, Doorbell(3, 1, 0x7FFF, 0)),
    ):
        await host.reset()
        await host.negotiate(OFFERED & ~features)
        await host.set("device_status", 15)
        await host.ring(3, size=4, data=0x7FFF_0003)
        await host.tick(10)
        assert host.doorbells[-1] == expected, features
    assert (host.doorbells[4].queue, host.doorbells[4].has_next) == (5, 0)


@cocotb.test()
async def pace_of_doorbells_and_interrupts(dut):
    host = await Host.begin(dut, SMALL)
    await prepare(host)
    host.gap = 0
    began = host.cycles
    for i in range(100):
        await host.ring(i % SMALL.queues)
    assert host.cycles - began <= 4 * 100
    dut._log.info(f"100 doorbells in {host.cycles - began} cycles")
    began = host.cycles
    for i in range(100):
        await interrupt(host, i % SMALL.vectors)
    dut._log.info(f"100 interrupts in {host.cycles - began} cycles")
    assert host.cycles - began <= 2 * 100
    await host.tick(10)
    assert len(host.doorbells) == len(host.writes) == 100


@cocotb.test()
async def doorbells_do_not_outlive_a_reset(dut):
    host = await Host.begin(dut, SMALL)
    for taken_meanwhile in (False, True):
        await host.start()
        dut.doorbell__ready.value = 0
        for queue in range(6):
            await host.ring(queue)
        assert int(dut.doorbell__valid.value)
        host.gap = 0
        await host.set("device_status", 0)
        while not int(dut.reset_request.value):
            await host.tick()
        host.gap = GAP
        dut.doorbell__ready.value = taken_meanwhile
        await host.reset()
        await host.start()
        dut.doorbell__ready.value = 1
        await host.tick(20)
        assert host.doorbells == []


async def prepare(host, *, vectors=range(SMALL.vectors), features=OFFERED):
    """MSI-X on, ``vectors`` unmasked."""
    await host.command(BUS_MASTER)
    for vector in vectors:
        await host.entry(vector, "message_address", 0x12_FEE0_0000 + 0x100 * vector)
        await host.entry(vector, "message_data", 0xC000 + vector)
        await host.entry(vector, "vector_control", 0)
    await host.config_write(MSIX_CONTROL, 2, MsixControl.ENABLE)
    await host.start(features)


def message(vector):
    return 0x12_FEE0_0000 + 0x100 * vector, 0xC000 + vector


async def interrupt(host, vector):
    await host.send("interrupt", 1 | vector << 8)


@cocotb.test()
async def vectors_and_masks(dut):
    host = await Host.begin(dut, SMALL)
    assert await host.entry_of(0, "vector_control") == 1, "masked at power-on"
    await prepare(host)
    for vector in (0, 4, 2):
        await interrupt(host, vector)
    await host.tick(10)
    assert host.writes == [message(0), message(4), message(2)]
    host.writes.clear()
    for vector in (NO_VECTOR, SMALL.vectors, 0x105, 0x800):
        await interrupt(host, vector)
    await host.tick(20)
    assert host.writes == []
    assert await host.read(1, 0, PBA, 4) == 0

    await host.entry(1, "vector_control", 1)
    for _ in range(3):
        await interrupt(host, 1)
    await interrupt(host, 3)
    await host.tick(30)
    assert host.writes == [message(3)]
    assert await host.read(1, 0, PBA, 4) == 1 << 1
    await host.write(1, 0, PBA, 4, 0)  # read-only
    assert await host.read(1, 0, PBA, 4) == 1 << 1
    await host.entry(1, "message_data", 0x77)
    await host.entry(1, "vector_control", 0)
    await host.tick(4 * SMALL.vectors)
    assert host.writes == [message(3), (message(1)[0], 0x77)]
    assert await host.read(1, 0, PBA, 4) == 0
    await host.tick(40)
    assert len(host.writes) == 2, "once"
    assert not int(dut.intx.value)
    assert await host.read(1, 0, ISR, 1) == 0


@cocotb.test()
async def whole_function_masked(dut):
    host = await Host.begin(dut, SMALL)
    await prepare(host)
    for hold in ("mask", "bus master"):
        host.writes.clear()
        if hold == "mask":
            await host.config_write(MSIX_CONTROL, 2, MsixControl.ENABLE | MsixControl.FUNCTION_MASK)
        else:
            await host.command(PciCommand.MEMORY_SPACE)
        for vector in range(SMALL.vectors):
            await interrupt(host, vector)
        await host.tick(20)
        assert host.writes == []
        assert await host.read(1, 0, PBA, 4) == (1 << SMALL.vectors) - 1
        await host.config_write(MSIX_CONTROL, 2, MsixControl.ENABLE)
        await host.command(BUS_MASTER)
        await host.tick(4 * SMALL.vectors + 10)
        assert sorted(host.writes) == [message(v) for v in range(SMALL.vectors)]
        assert await host.read(1, 0, PBA, 4) == 0
    # A device reset forgets what is pending.
    await host.entry(2, "vector_control", 1)
    await interrupt(host, 2)
    await host.tick(5)
    assert await host.read(1, 0, PBA, 4) == 1 << 2
    await host.reset()
    assert await host.read(1, 0, PBA, 4) == 0


@cocotb.test()
async def registers_answer_while_the_write_side_stands_still(dut):
    host = await Host.begin(dut, SMALL)
    await prepare(host)
    dut.write__beat__ready.value = 0
    for i in range(12):
        await interrupt(host, i % SMALL.vectors)
        assert await host.entry_of(i % SMALL.vectors, "message_data") == 0xC000 + i % SMALL.vectors
    dut.write__beat__ready.value = 1
    await host.tick(60)
    assert set(host.writes) == {message(v) for v in range(SMALL.vectors)}
    assert await host.read(1, 0, PBA, 4) == 0


@cocotb.test()
async def no_interrupt_is_lost(dut):
    """Random interrupts, masking and backpressure: every vector raised is delivered at the end."""
    host = await Host.begin(dut, SMALL)
    rng = random.Random(cocotb.RANDOM_SEED)
    await prepare(host)
    for _ in range(25):
        host.writes.clear()
        raised = set()
        for _ in range(12):
            vector = rng.randrange(SMALL.vectors)
            dut.write__beat__ready.value = rng.random() < 0.6
            if rng.random() < 0.4:
                await host.entry(vector, "vector_control", rng.randrange(2))
            else:
                raised.add(vector)
                await interrupt(host, vector)
        dut.write__beat__ready.value = 1
        for vector in range(SMALL.vectors):
            await host.entry(vector, "vector_control", 0)
        await host.tick(8 * SMALL.vectors)
        assert set(host.writes) == {message(vector) for vector in raised}
        assert await host.read(1, 0, PBA, 4) == 0


@cocotb.test()
async def configuration_change(dut):
    host = await Host.begin(dut, SMALL)
    await prepare(host)
    error = 1 | QueueErrorCause.AVAIL_INDEX.value << 16
    await host.send("queue_error", error)
    await host.tick(10)
    assert host.writes == [], "no vector was set"
    assert await host.read(1, 0, ISR, 1) == 2
    await host.start()
    await host.set("config_msix_vector", 4)
    await host.send("queue_error", error)
    await host.tick(10)
    assert host.writes == [message(4)]
    assert not int(dut.intx.value), "MSI-X replaces INTx"
    assert await host.read(1, 0, ISR, 1) == 2
    assert await host.read(1, 0, ISR, 1) == 0
    await host.send("queue_error", error)
    await host.tick(10)
    assert len(host.writes) == 1, "the driver knows already"


@cocotb.test()
async def interrupt_line_without_msix(dut):
    host = await Host.begin(dut, SMALL)
    await host.command(BUS_MASTER)
    await host.start()
    await interrupt(host, NO_VECTOR)
    await host.tick(3)
    assert int(dut.intx.value)
    assert await host.config_read(6, 2) & 8, "interrupt status"
    await host.command(BUS_MASTER | PciCommand.INTX_DISABLE)
    assert not int(dut.intx.value)
    await host.command(BUS_MASTER)
    assert await host.read(1, 0, ISR + 1, 2) == 0, "other bytes do not clear it"
    await host.write(1, 0, ISR, 4, 0xFFFF_FFFF)
    assert int(dut.intx.value)
    assert await host.read(1, 0, ISR, 1) == 1
    assert not int(dut.intx.value)
    assert not await host.config_read(6, 2) & 8
    await interrupt(host, 3)
    await host.send("queue_error", QueueErrorCause.HOST_READ.value << 16)
    await host.tick(3)
    assert await host.read(1, 0, ISR, 4) == 3
    assert host.writes == []
    await interrupt(host, 3)
    await host.reset()
    assert not int(dut.intx.value)
