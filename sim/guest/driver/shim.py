"""A card whose bus has its own configuration space: what a driver of virtio needs, put together.

Some hard blocks for PCI Express answer to the configuration space themselves and have no room for
virtio's capabilities. Such a card has one capability of 16 bytes instead, of type
``CFG_TYPE_LIST``, which says where in a BAR the card shows its own configuration space
(docs/pcie.md). ``ShimMmio`` stands between a driver and the bus, as a host's emulation of the
device would: header, BARs and the control word of MSI-X are those of the bus, everything else is
what the BAR shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from hdl.abi import virtio_pci as abi
from sim.guest.driver.pci import PciFunction

__all__ = ["Bus", "ConfigSpaces", "ShimMmio"]

_HEADER_END = 0x40
_CAPABILITIES = abi.PCI_HEADER.offset("capabilities")
_CONTROL = abi.MSIX_CAP.offset("message_control")


class Bus(Protocol):
    """Configuration space and BARs as they are on the bus; see ``platform.Mmio``."""

    async def config_read(self, function: int, addr: int, size: int) -> int:
        """Read 1, 2 or 4 bytes of configuration space."""

    async def config_write(self, function: int, addr: int, size: int, value: int) -> None:
        """Write; returns when it has happened."""

    async def bar_read(self, function: int, bar: int, addr: int, size: int) -> int:
        """Read 1, 2 or 4 bytes of a BAR, behind the writes before."""

    async def bar_write(self, function: int, bar: int, addr: int, size: int, value: int) -> None:
        """Posted write."""


@dataclass(frozen=True)
class _Copy:
    """Where the card's configuration space is, and MSI-X in it and on the bus (0: no MSI-X)."""

    bar: int
    offset: int
    length: int
    msix: int = 0
    bus_msix: int = 0


class ConfigSpaces:
    """``Mmio`` of the configuration spaces of the bus, or of the copies in the BARs."""

    def __init__(self, bus: Bus, copy: _Copy | None = None):
        self._bus, self._copy = bus, copy

    async def read(self, function: int, bar: int, addr: int, size: int) -> int:
        """Read ``size`` bytes; there is no other BAR."""
        if self._copy is None:
            return await self._bus.config_read(function, addr, size)
        return await self._bus.bar_read(function, self._copy.bar, self._copy.offset + addr, size)

    async def write(self, function: int, bar: int, addr: int, size: int, value: int) -> None:
        """Capabilities are only read."""
        raise PermissionError(f"A write at {addr:#x} of function {function}")


class ShimMmio:
    """Implements ``platform.Mmio`` on a ``Bus``.

    A function without the capability is passed on as it is. Writes to what the BAR shows are lost.
    """

    def __init__(self, bus: Bus):
        self._bus = bus
        self._copies: dict[int, _Copy | None] = {}

    async def read(self, function: int, bar: int, addr: int, size: int) -> int:
        """Read ``size`` (1, 2, 4) bytes."""
        if bar != abi.CONFIG_SPACE:
            return await self._bus.bar_read(function, bar, addr, size)
        copy = await self._find(function)
        if copy is None:
            return await self._bus.config_read(function, addr, size)
        if addr & ~3 == copy.msix and copy.msix:
            word = await self._bus.bar_read(function, copy.bar, copy.offset + copy.msix, 4)
            control = await self._bus.config_read(function, copy.bus_msix + _CONTROL, 2)
            word = word & 0xFFFF | control << 16
            return word >> 8 * (addr & 3) & (1 << 8 * size) - 1
        if addr < _HEADER_END and addr & ~3 != _CAPABILITIES:
            return await self._bus.config_read(function, addr, size)
        if addr + size > copy.length:
            return 0
        return await self._bus.bar_read(function, copy.bar, copy.offset + addr, size)

    async def write(self, function: int, bar: int, addr: int, size: int, value: int) -> None:
        """Write ``size`` (1, 2, 4) bytes."""
        if bar != abi.CONFIG_SPACE:
            await self._bus.bar_write(function, bar, addr, size, value)
            return
        copy = await self._find(function)
        if copy is None or addr < _HEADER_END:
            await self._bus.config_write(function, addr, size, value)
        elif copy.msix and copy.msix + _CONTROL <= addr < copy.msix + _CONTROL + 2:
            at = copy.bus_msix + addr - copy.msix
            await self._bus.config_write(function, at, size, value)

    async def _find(self, function: int) -> _Copy | None:
        """Where the function's own configuration space is; None if it has no such capability."""
        if function not in self._copies:
            self._copies[function] = await self._look(function)
        return self._copies[function]

    async def _look(self, function: int) -> _Copy | None:
        real, found, bus_msix = PciFunction(ConfigSpaces(self._bus), function), None, 0
        if not await real.read_header("status") & abi.PciStatus.CAPABILITIES:
            return None
        for cap_id, addr in await real.capabilities():
            if cap_id == abi.CapId.MSIX:
                bus_msix = addr
            if cap_id == abi.CapId.VENDOR:
                cap = abi.VIRTIO_PCI_CAP.unpack(await real.read_struct(addr, abi.VIRTIO_PCI_CAP))
                if cap.cfg_type == abi.CFG_TYPE_LIST:
                    found = _Copy(cap.bar, cap.offset, cap.length)
        if found is None:
            return None
        shown = PciFunction(ConfigSpaces(self._bus, found), function)
        msix = [addr for cap_id, addr in await shown.capabilities() if cap_id == abi.CapId.MSIX]
        if not msix or not bus_msix:
            return found
        return _Copy(found.bar, found.offset, found.length, msix[0], bus_msix)
