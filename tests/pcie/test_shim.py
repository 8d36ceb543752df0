"""The host's shim on a bus whose configuration space has the vendor capability alone."""

import asyncio

import pytest

from hdl.abi import virtio_pci as abi
from hdl.config import FUNCTION_RDMA, NicConfig
from hdl.host.config_space import management_image, rdma_image
from hdl.pcie.extend import FIRST_REGISTER, capability
from hdl.pcie_nic import places
from sim.guest.driver.errors import DeviceError
from sim.guest.driver.pci import PciFunction, find_windows
from sim.guest.driver.shim import ConfigSpaces, ShimMmio

CONFIG = NicConfig(vectors=5)
#: MSI-X in the block's list, which the vendor capability ends.
MSIX, VENDOR = 0x60, 4 * FIRST_REGISTER
CONTROL = abi.MSIX_CAP.offset("message_control")
GUEST, MANAGEMENT = FUNCTION_RDMA, CONFIG.management_function


class Bus:
    """Configuration spaces as a block presents them, and the card's own one in BAR 0."""

    def __init__(self):
        card = rdma_image(CONFIG)
        self.shown, self.msix = bytes(card.data), card.msix
        block = bytearray(256)
        block[:64] = card.data[:64]
        block[abi.PCI_HEADER.offset("capabilities")] = MSIX
        block[MSIX : MSIX + 12] = abi.MSIX_CAP.pack(cap_id=abi.CapId.MSIX, cap_next=VENDOR)
        block[VENDOR : VENDOR + 16] = capability(places(CONFIG))
        self.spaces = {GUEST: block, MANAGEMENT: bytearray(management_image().data)}
        self.log = []

    async def config_read(self, function, addr, size):
        return int.from_bytes(self.spaces[function][addr : addr + size], "little")

    async def config_write(self, function, addr, size, value):
        self.log.append((function, addr, size, value))
        self.spaces[function][addr : addr + size] = value.to_bytes(size, "little")

    async def bar_read(self, function, bar, addr, size):
        at = addr - places(CONFIG).window
        if function == GUEST and bar == places(CONFIG).bar and 0 <= at < len(self.shown):
            return int.from_bytes(self.shown[at : at + size], "little")
        return function << 24 | bar << 20 | addr

    async def bar_write(self, function, bar, addr, size, value):
        self.log.append((function, bar, addr, size, value))


def test_the_driver_finds_its_device():
    """By the shim the structures are where they are with any other host; without it they are not
    there at all."""

    async def body():
        bus = Bus()
        shim = ShimMmio(bus)
        windows = await find_windows(PciFunction(shim, GUEST))
        assert {*windows} == {*abi.CfgType}
        card = abi.VIRTIO_PCI_CAP.unpack(bus.shown[windows[abi.CfgType.DEVICE].cap :][:16])
        found = windows[abi.CfgType.DEVICE]
        assert (found.bar, found.offset, found.length) == (card.bar, card.offset, card.length)
        with pytest.raises(DeviceError, match="has no COMMON capability"):
            await find_windows(PciFunction(ConfigSpaces(bus), GUEST))

    asyncio.run(body())


def test_what_belongs_to_the_bus():
    """Header and control word of MSI-X are the bus's; other writes to the capabilities are lost."""

    async def body():
        bus = Bus()
        shim, space = ShimMmio(bus), abi.CONFIG_SPACE
        await shim.write(GUEST, space, abi.PCI_HEADER.offset("command"), 2, 6)
        await shim.write(GUEST, space, bus.msix + CONTROL, 2, 0x8000)
        await shim.write(GUEST, space, bus.msix - 4, 4, 99)
        await shim.write(GUEST, space, bus.msix, 1, 99)
        assert bus.log == [(GUEST, 4, 2, 6), (GUEST, MSIX + CONTROL, 2, 0x8000)]
        assert await shim.read(GUEST, space, 4, 2) == 6
        assert await shim.read(GUEST, space, bus.msix + CONTROL, 2) == 0x8000
        assert await shim.read(GUEST, space, bus.msix, 1) == abi.CapId.MSIX
        table = bus.msix + abi.MSIX_CAP.offset("table")
        expected = int.from_bytes(bus.shown[table : table + 4], "little")
        assert await shim.read(GUEST, space, table, 4) == expected
        assert await shim.read(GUEST, space, 0x100, 4) == 0

    asyncio.run(body())


def test_what_is_passed_on():
    """BARs of all functions, and the whole of a function without the capability."""

    async def body():
        bus = Bus()
        shim = ShimMmio(bus)
        assert await shim.read(GUEST, 2, 8, 4) == GUEST << 24 | 2 << 20 | 8
        await shim.write(MANAGEMENT, 0, 16, 4, 5)
        await shim.write(MANAGEMENT, abi.CONFIG_SPACE, 0x3C, 1, 7)
        assert bus.log == [(MANAGEMENT, 0, 16, 4, 5), (MANAGEMENT, 0x3C, 1, 7)]
        read = await shim.read(MANAGEMENT, abi.CONFIG_SPACE, 0x3C, 1)
        assert read == 7

    asyncio.run(body())
