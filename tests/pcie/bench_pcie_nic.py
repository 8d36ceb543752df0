"""RDMA between two QPs of one card behind cocotbext-pcie's block, link and root complex."""

import os
import random

import cocotb

from hdl.abi import virtio_pci as abi
from hdl.abi.enums import SendFlags, WcStatus, WrOpcode
from hdl.abi.push import PUSH_BAR, PUSH_SLOT_BYTES
from hdl.abi.virtio_pci import MsixControl
from hdl.abi.virtio_rdma import qp_index
from hdl.config import FUNCTION_RDMA
from hdl.csr.blocks import MANAGEMENT_DEVICE_ID, MANAGEMENT_VENDOR_ID
from hdl.host import config_space as space
from hdl.ports.counter_names import AROUND
from sim.bench.system import System
from sim.guest.driver.pci import PciFunction, find_windows
from sim.guest.driver.shim import ConfigSpaces
from sim.guest.verbs import SendWR
from tests.nic.small_traffic import PATIENCE_NS, VISIBLE, SmallTraffic
from tests.pcie.platform import PcieBus, PcieNicTestbench
from tests.pcie.test_pcie_nic import CONFIGS

PTILE = os.environ["BLOCK"] == "ptile"
CONFIG = CONFIGS[os.environ["BLOCK"]]


@cocotb.test()
async def rdma(dut):
    """Enumeration, the guest's driver, the firmware, and traffic at each size of packets."""
    testbench = PcieNicTestbench(dut, config=CONFIG, memory=16 << 20)
    system = await System.on(testbench, deadline_cycles=200_000, loopback=False)
    cocotb.log.info("the driver is up")
    node, host = system.nodes[0], testbench.hosts[0]
    traffic = await SmallTraffic.start(node, testbench)
    requests = 0
    for code, split in enumerate((False, True, False, True)):
        await host.sizes(code)
        host.rc.max_payload_size, host.rc.split_on_all_rcb = code, split
        host.link.shuffle = split
        cocotb.log.info("traffic at %d bytes", 128 << code)
        requests += await traffic.run(code)
    assert host.interrupts.received and not host.interrupts.spurious
    counters = await node.counters()
    assert not [name for name in AROUND if counters[name]]
    assert counters["rx_packets"] == len(testbench.seen) > requests


@cocotb.test()
async def identities(dut):
    """What the host finds on the bus, and what the shim makes of it."""
    testbench = PcieNicTestbench(dut, config=CONFIG, memory=16 << 20)
    testbench.deadline(100_000)
    await testbench.start()
    host = testbench.hosts[0]
    names = [(one.vendor_id, one.device_id) for one in host.functions]
    assert names == [
        (abi.VENDOR_ID, abi.DEVICE_ID_NET),
        *CONFIG.functions * [(abi.VENDOR_ID, abi.DEVICE_ID_RDMA)],
        (MANAGEMENT_VENDOR_ID, MANAGEMENT_DEVICE_ID),
    ]
    guest = host.functions[FUNCTION_RDMA]
    await guest.enable_device()
    # AMD's block shows no structure of virtio, so no driver of virtio finds its device there.
    bus = PciFunction(ConfigSpaces(PcieBus(host)), FUNCTION_RDMA)
    kinds = [
        abi.VIRTIO_PCI_CAP.unpack(await bus.read_struct(addr, abi.VIRTIO_PCI_CAP)).cfg_type
        for cap, addr in await bus.capabilities()
        if cap == abi.CapId.VENDOR
    ]
    windows = await find_windows(PciFunction(host.mmio, FUNCTION_RDMA))
    assert {*windows} == {*abi.CfgType}
    if PTILE:
        assert {*kinds} == {*abi.CfgType} and await find_windows(bus) == windows
        await config_window(host, PcieBus(host), windows[abi.CfgType.PCI_CFG].cap)
        return
    assert kinds == [abi.CFG_TYPE_LIST]
    # The registers that the user does not serve, and functions without the capability, read as 0.
    assert await host.mmio.read(FUNCTION_RDMA, abi.CONFIG_SPACE, 0x100, 4) == 0
    assert await host.block.extended_read(0, 0xB0 // 4) == 0


async def config_window(host, bus, cap):
    """Registers by the PCI_CFG capability are those of the BARs; bad accesses reach none."""
    places = {n: cap + abi.VIRTIO_PCI_CFG_CAP.offset(n) for n in ("bar", "offset", "length")}
    data = cap + abi.VIRTIO_PCI_CFG_CAP.offset("pci_cfg_data")
    status = abi.COMMON_CFG.offset("device_status")

    async def window(offset, size, value=None, bar=space.BAR_REGISTERS):
        for name, one in (("bar", bar), ("offset", offset), ("length", size)):
            await bus.config_write(FUNCTION_RDMA, places[name], 1 if name == "bar" else 4, one)
        if value is None:
            return await bus.config_read(FUNCTION_RDMA, data, 4)
        return await bus.config_write(FUNCTION_RDMA, data, 4, value)

    await window(status, 1, 3)
    assert await window(status, 1) == 3
    for offset, size in ((0, 4), (4, 4), (status, 1), (status + 1, 1), (18, 2)):
        expected = await host.mmio.read(FUNCTION_RDMA, space.BAR_REGISTERS, offset, size)
        assert await window(offset, size) == expected, (offset, size)
    for offset, size, bar in ((status, 3, 0), (status, 0, 0), (status + 1, 2, 0), (status, 1, 6)):
        await window(offset, size, 1, bar)
        assert await window(offset, size, bar=bar) == 0
    assert await window(status, 1) == 3
    await window(status, 1, 0)


async def vectors_masked(device, masked):
    """Mask each vector in the table, or none."""
    for vector in range(device.vectors):
        await device.msix.mask(vector, masked)


async def function_masked(device, masked):
    """Mask the function in the block's capability, or not."""
    control = MsixControl.ENABLE | (MsixControl.FUNCTION_MASK if masked else 0)
    place = abi.MSIX_CAP.place("message_control")
    for cap, addr in await device.pci.capabilities():
        if cap == abi.CapId.MSIX:
            await device.pci.write(addr + place.offset, place.size, int(control))


@cocotb.test()
async def masked_interrupts(dut):
    """A message that arises while a vector or the whole function is masked comes afterwards."""
    testbench = PcieNicTestbench(dut, config=CONFIG, memory=16 << 20)
    system = await System.on(testbench, deadline_cycles=200_000)
    node, host = system.nodes[0], testbench.hosts[0]
    traffic = await SmallTraffic.start(node, testbench)
    for mask in (vectors_masked, function_masked):
        await mask(node.context.device, True)
        await testbench.cycles(500)
        before = host.interrupts.received
        for cq in traffic.cqs:
            await cq.req_notify()
        count = await traffic.post()
        done = 0
        while done < count:
            done += len(await traffic.cqs[0].poll(count))
            await testbench.cycles(100)
        while not await traffic.cqs[1].poll(64):
            await testbench.cycles(100)
        await testbench.cycles(2000)
        while await traffic.cqs[1].poll(64):
            pass
        assert host.interrupts.received == before
        await mask(node.context.device, False)
        await testbench.cycles(1000)
        assert host.interrupts.received > before and not host.interrupts.spurious


@cocotb.test()
async def function_level_reset(dut):
    """A reset of the RDMA function in the middle of traffic: it comes up again and works."""
    testbench = PcieNicTestbench(dut, config=CONFIG, memory=16 << 20)
    system = await System.on(testbench, deadline_cycles=600_000)
    node, host = system.nodes[0], testbench.hosts[0]
    for cycles in (300, 1500):
        traffic = await SmallTraffic.start(node, testbench)
        await traffic.post()
        await testbench.cycles(cycles)
        took = await host.block.reset_function(FUNCTION_RDMA)
        assert took > 20
        await node.context.close()
        received = host.interrupts.received
        await testbench.cycles(1000)
        assert host.interrupts.received == received
        await node.start()
        await (await SmallTraffic.start(node, testbench)).run(cycles)
        await node.context.close()
        await node.start()
    assert (await node.counters())["bus_resets"] == 2
    # The other functions have nothing to reset, and the firmware goes on.
    for other in (0, CONFIG.management_function):
        assert await host.block.reset_function(other) < 20
    await (await SmallTraffic.start(node, testbench)).run()


@cocotb.test(skip=PTILE)
async def pushes(dut):
    """WQEs that come with their doorbell, a packet for each piece; and one that is torn."""
    testbench = PcieNicTestbench(dut, config=CONFIG, memory=16 << 20)
    system = await System.on(testbench, deadline_cycles=200_000, loopback=False)
    node = system.nodes[0]
    device, registers = node.context.device, node.registers
    traffic = await SmallTraffic.start(node, testbench)
    _, theirs = traffic.mrs
    for length in (1, 40, 48, 149):
        octets = random.Random(length).randbytes(length)
        flags = SendFlags.SIGNALED | SendFlags.INLINE
        request = SendWR(length, WrOpcode.RDMA_WRITE, (), flags, inline_data=octets)
        request.set_wr_rdma(theirs.rkey, theirs.iova + length)
        await traffic.qps[0].post_send(request)
        (wc,) = await traffic.cqs[0].wait(1, timeout_ns=PATIENCE_NS)
        assert wc.status == WcStatus.SUCCESS
        await testbench.cycles(VISIBLE)
        assert theirs.read(length, length).tobytes() == octets
    counts = await registers.pushes()
    assert counts == dict.fromkeys(counts, 0) | {"taken": 4}, counts
    slot = PUSH_SLOT_BYTES * qp_index(traffic.qps[0].qp_num, device.config.max_qp)
    await testbench.hosts[0].mmio.write_combined(device.function, PUSH_BAR, slot + 4, bytes(60))
    await testbench.cycles(VISIBLE)
    assert (await registers.pushes())["torn"] == 1
    assert not [name for name in AROUND if (await node.counters())[name]]
