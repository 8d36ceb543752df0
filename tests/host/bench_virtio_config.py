"""Configuration space as a driver reads it: header, BAR sizes, capabilities, the PCI_CFG window."""

import cocotb
from cocotb.triggers import RisingEdge

from hdl.abi import virtio_pci as abi
from hdl.abi.limits import config_bytes
from hdl.abi.virtio_pci import CapId, CfgType
from hdl.abi.virtio_rdma import (
    CONFIG,
    COUNTER_MAGIC,
    COUNTER_OFFSET,
    COUNTER_WINDOW,
    QP_COUNTER_OFFSET,
)
from hdl.config import FUNCTION_NET, FUNCTION_RDMA
from hdl.ports.counter_names import QP_COUNTER_SLOTS, QP_COUNTERS
from sim.guest.driver.pci import Msix, PciFunction, find_windows
from tests.host.card import COUNTERS, MANAGEMENT, SMALL
from tests.host.card_host import Host

BARS = abi.PCI_HEADER.offset("bar")


@cocotb.test()
async def driver_walks_the_capabilities(dut):
    host = await Host.begin(dut, SMALL)
    pci = PciFunction(host, FUNCTION_RDMA)
    assert await pci.read_header("vendor_id") == 0x1AF4
    assert await pci.read_header("device_id") == 0x106A
    assert await pci.read_header("revision_id") >= 1
    capabilities = await pci.capabilities()
    assert [kind for kind, _ in capabilities] == [CapId.VENDOR] * 5 + [CapId.MSIX]
    windows = await find_windows(pci)
    assert set(windows) == set(CfgType)
    assert windows[CfgType.COMMON].length >= 0x3C
    assert windows[CfgType.NOTIFY].multiplier == 4
    assert windows[CfgType.NOTIFY].length == 4 * SMALL.queues
    assert windows[CfgType.DEVICE].length == 640
    await pci.enable()
    msix = await Msix.find(host, pci)
    assert msix.entries == SMALL.vectors
    # Structures lie inside their BARs and do not overlap.
    places = [
        (window.bar, window.offset, window.offset + window.length)
        for kind, window in windows.items()
        if kind is not CfgType.PCI_CFG
    ]
    places.append((0, msix._table, msix._table + 16 * msix.entries))
    places.append((0, QP_COUNTER_OFFSET, QP_COUNTER_OFFSET + 4 + 4 * len(QP_COUNTERS)))
    places.append((0, COUNTER_OFFSET, COUNTER_OFFSET + COUNTER_WINDOW.size + 4 * COUNTERS))
    for bar, low, high in places:
        size = await bar_size(host, FUNCTION_RDMA, bar)
        assert high <= size
        others = [p for p in places if p[0] == bar and p[1] != low]
        assert all(high <= other[1] or other[2] <= low for other in others)


async def bar_size(host, function, bar) -> int:
    """PCI Local Bus 3.0, 6.2.5.1: write all ones, read back, restore."""
    at = BARS + 4 * bar
    before = await host.read(function, abi.CONFIG_SPACE, at, 4)
    await host.write(function, abi.CONFIG_SPACE, at, 4, 0xFFFF_FFFF)
    found = await host.read(function, abi.CONFIG_SPACE, at, 4)
    await host.write(function, abi.CONFIG_SPACE, at, 4, before)
    assert await host.read(function, abi.CONFIG_SPACE, at, 4) == before
    assert found & 0xF == 0, "32-bit memory, not prefetchable"
    return -found & 0xFFFF_FFFF if found else 0


@cocotb.test()
async def bars_size_and_take_addresses(dut):
    host = await Host.begin(dut, SMALL)
    sizes = [await bar_size(host, FUNCTION_RDMA, bar) for bar in range(6)]
    assert sizes == [0x10000, 0, 4096, 0, 0, 0]
    sizes = [await bar_size(host, MANAGEMENT, bar) for bar in range(6)]
    assert sizes == [1 << 20, 0, 0, 0, 0, 0]
    await host.config_write(BARS, 4, 0xABCD_EF12)
    assert await host.config_read(BARS, 4) == 0xABCD_0000
    await host.config_write(BARS + 2, 1, 0x55)  # a byte of it alone
    assert await host.config_read(BARS, 4) == 0xAB55_0000


@cocotb.test()
async def read_only_bits_and_the_rest_of_the_space(dut):
    host = await Host.begin(dut, SMALL)
    before = [await host.config_read(at, 4) for at in range(0, 256, 4)]
    for at in range(0, 256, 4):
        await host.config_write(at, 4, 0xFFFF_FFFF)
    after = [await host.config_read(at, 4) for at in range(0, 256, 4)]
    for at in (0x00, 0x08, 0x2C, 0x34, 0x40, 0x50, 0x64, 0x74, 0x9C, 0xA0):
        assert after[at // 4] == before[at // 4], f"{at:#x} changed"
    assert after[1] & 0xFFFF == 0x406  # memory, bus master, INTx disable
    assert await host.config_read(0x100, 4) == 0
    assert await host.config_read(0xFFC, 4) == 0


@cocotb.test()
async def management_function_and_functions_that_do_not_exist(dut):
    host = await Host.begin(dut, SMALL)
    pci = PciFunction(host, MANAGEMENT)
    assert await pci.read(8, 4) >> 16 == 0x1200
    assert await pci.read_header("vendor_id") != 0x1AF4
    assert await pci.read_header("capabilities") == 0
    for function in (FUNCTION_NET, 3, 7, 255):
        for bar in range(8):
            assert await host.read(function, bar, 0, 4) == 0xFFFF_FFFF
            await host.write(function, bar, 0, 4, 1)
    for bar in range(1, 7):
        assert await host.read(MANAGEMENT, bar, 0, 4) == 0xFFFF_FFFF
    for bar in (1, 3, 4, 5, 6):
        assert await host.read(FUNCTION_RDMA, bar, 0, 4) == 0xFFFF_FFFF


@cocotb.test()
async def pci_cfg_window(dut):
    host = await Host.begin(dut, SMALL)
    windows = await find_windows(PciFunction(host, FUNCTION_RDMA))
    cap, device = windows[CfgType.PCI_CFG].cap, windows[CfgType.DEVICE]
    data = cap + abi.VIRTIO_PCI_CFG_CAP.offset("pci_cfg_data")

    async def aim(bar, offset, length):
        for path, value in (("bar", bar), ("offset", offset), ("length", length)):
            place = abi.VIRTIO_PCI_CFG_CAP.place(path)
            await host.config_write(cap + place.offset, place.size, value)

    contents = config_bytes(SMALL, bytes(6))
    for size in (1, 2, 4):
        for offset in range(0, 12, size):
            await aim(device.bar, device.offset + offset, size)
            expected = int.from_bytes(contents[offset : offset + size], "little")
            assert await host.config_read(data, size) == expected
            assert await host.config_read(data, 4) == expected
    select = windows[CfgType.COMMON].offset + abi.COMMON_CFG.offset("queue_select")
    await aim(0, select, 2)
    await host.config_write(data, 2, 0x1234)
    assert await host.get("queue_select") == 0x1234
    await aim(0, select + 1, 1)
    await host.config_write(data, 4, 0xFFFF_FF56)
    assert await host.get("queue_select") == 0x5634
    # Lengths, offsets and BARs that make no sense do nothing.
    for bar, offset, length in ((0, select, 3), (0, select, 0), (0, select + 1, 2), (7, 4, 4)):
        await aim(bar, offset, length)
        await host.config_write(data, 4, 0)
        assert await host.config_read(data, 4) == 0xFFFF_FFFF
    for bar, offset in ((0, 0xFFFF_FFFC), (1, 0), (2, 0x8000_0000)):
        await aim(bar, offset, 4)
        await host.config_write(data, 4, 0)
        assert await host.config_read(data, 4) == 0xFFFF_FFFF
    assert await host.get("queue_select") == 0x5634


@cocotb.test()
async def device_configuration_in_every_size_and_at_every_offset(dut):
    host = await Host.begin(dut, SMALL)
    mac = bytes.fromhex("021122334455")

    await host.csr_write("port.mac_low", int.from_bytes(mac[:4], "little"))
    await host.csr_write("port.mac_high", int.from_bytes(mac[4:], "little"))
    contents = config_bytes(SMALL, mac)
    assert contents[4:12].hex() == "021122fffe334455"
    offsets = [(at, size) for size in (1, 2, 4) for at in range(132 - size)]
    offsets += [(at, 4) for at in range(132, 636, 61)] + [(636, 4), (639, 1)]
    for at, size in offsets:
        found = await host.read(FUNCTION_RDMA, 0, 0x2000 + at, size)
        assert found == int.from_bytes(contents[at : at + size], "little"), (at, size)
    assert await host.read(FUNCTION_RDMA, 0, 0x2000 + CONFIG.size, 4) == 0xFFFF_FFFF
    for at in range(0, 640, 4):  # the driver's writes have no effect
        await host.write(FUNCTION_RDMA, 0, 0x2000 + at, 4, 0xFFFF_FFFF)
    for at in (0, 4, 40, 96, 124):
        found = await host.read(FUNCTION_RDMA, 0, 0x2000 + at, 4)
        assert found == int.from_bytes(contents[at : at + 4], "little")


@cocotb.test()
async def counters_for_the_driver(dut):
    host = await Host.begin(dut, SMALL)
    values = [0x0101_0101 * (i + 1) + (i << 31) & 0xFFFF_FFFF for i in range(COUNTERS)]
    asked = []
    answers = cocotb.start_soon(table(dut, "counters", asked, lambda index: values[index]))

    async def words():
        return [await host.read(1, 0, COUNTER_OFFSET + 4 * i, 4) for i in range(5 + COUNTERS)]

    expected = [COUNTER_MAGIC, 2, COUNTERS, len(QP_COUNTERS), *values, 0xFFFF_FFFF]
    assert await words() == expected
    assert await host.read(1, 0, COUNTER_OFFSET + 0x12, 2) == values[0] >> 16
    for i in range(5 + COUNTERS):
        await host.write(1, 0, COUNTER_OFFSET + 4 * i, 4, 0x5555_5555)
    assert await words() == expected
    values[0] = 0x1234
    assert (await words())[4:6] == [0x1234, values[1]]
    count = len(asked)
    for outside in (COUNTER_OFFSET - 4, COUNTER_OFFSET + 0xFFC):
        assert await host.read(1, 0, outside, 4) == 0xFFFF_FFFF
    assert len(asked) == count
    answers.cancel()


async def table(dut, name: str, asked: list[int], word) -> None:
    """Answer reads of the words behind member ``name``, each later than the one before."""
    done, row = getattr(dut, f"{name}__done"), getattr(dut, f"{name}__read_row")
    done.value = 0
    while True:
        await RisingEdge(dut.clk)
        if int(getattr(dut, f"{name}__read").value) and not int(done.value):
            for _ in range(len(asked) % 5):
                await RisingEdge(dut.clk)
            index = int(getattr(dut, f"{name}__index").value)
            asked.append(index)
            row.value = word(index)
            done.value = 1
        else:
            done.value = 0
            row.value = 0x5555_5555


@cocotb.test()
async def counters_of_a_qp(dut):
    """The number selects the pair by its low bits; words come from the table as it answers."""
    host = await Host.begin(dut, SMALL)
    asked = []

    answers = cocotb.start_soon(table(dut, "qp_counters", asked, lambda i: 0xA000_0000 + i))
    for qpn in (0, 3, 0xABCDE2):
        await host.write(1, 0, QP_COUNTER_OFFSET, 4, qpn)
        assert await host.read(1, 0, QP_COUNTER_OFFSET, 4) == qpn
        first = QP_COUNTER_SLOTS * (qpn % SMALL.qps)
        for i in range(len(QP_COUNTERS)):
            await host.write(1, 0, QP_COUNTER_OFFSET + 4 + 4 * i, 4, 0x1234)  # no effect
            value = await host.read(1, 0, QP_COUNTER_OFFSET + 4 + 4 * i, 4)
            assert value == 0xA000_0000 + first + i
    await host.write(1, 0, QP_COUNTER_OFFSET + 1, 1, 0x77)
    assert await host.read(1, 0, QP_COUNTER_OFFSET, 4) == 0xAB77E2
    count = len(asked)
    behind = QP_COUNTER_OFFSET + 4 + 4 * len(QP_COUNTERS)
    for outside in (QP_COUNTER_OFFSET - 4, behind, QP_COUNTER_OFFSET + 0xFFC):
        assert await host.read(1, 0, outside, 4) == 0xFFFF_FFFF
    assert len(asked) == count == 3 * len(QP_COUNTERS)
    answers.cancel()
