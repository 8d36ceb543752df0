"""Finds the virtio structures and the interrupts of a PCI function.

Spec: Virtio 1.2, 4.1.4 (capabilities); PCI Local Bus 3.0, 6.7 (capability list), 6.8.2 (MSI-X).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hdl.abi import virtio_pci as abi
from hdl.abi.layout import Struct
from hdl.abi.push import CFG_TYPE_PUSH
from hdl.abi.virtio_pci import CapId, CfgType, MsixControl, PciCommand, PciStatus
from sim.guest.driver.errors import DeviceError, RdmaError
from sim.guest.driver.platform import Message, Mmio, Platform

#: A list longer than this has a loop in it: 48 capabilities fill the configuration space.
_MAX_CAPABILITIES = 48
_FIRST_CAPABILITY = 0x40


@dataclass(frozen=True)
class Window:
    """A structure in a BAR: where the capability at ``cap`` says it is."""

    cap: int
    bar: int
    offset: int
    length: int
    multiplier: int = 0


class PciFunction:
    """Configuration space of one function."""

    def __init__(self, mmio: Mmio, function: int):
        self.mmio, self.function = mmio, function

    async def read(self, addr: int, size: int) -> int:
        """Reads ``size`` bytes of configuration space."""
        return await self.mmio.read(self.function, abi.CONFIG_SPACE, addr, size)

    async def write(self, addr: int, size: int, value: int) -> None:
        """Writes ``size`` bytes of configuration space."""
        await self.mmio.write(self.function, abi.CONFIG_SPACE, addr, size, value)

    async def read_header(self, path: str) -> int:
        """Reads a field of the configuration header."""
        place = abi.PCI_HEADER.place(path)
        return await self.read(place.offset, place.size)

    async def read_struct(self, addr: int, struct: Struct) -> bytes:
        """The bytes of a structure, read in aligned words."""
        words = [await self.read(addr + i, 4) for i in range(0, struct.size, 4)]
        return b"".join(word.to_bytes(4, "little") for word in words)[: struct.size]

    async def capabilities(self) -> list[tuple[int, int]]:
        """(id, address) of every capability; DeviceError for a list that leads nowhere."""
        if not await self.read_header("status") & PciStatus.CAPABILITIES:
            raise DeviceError(f"Function {self.function} has no capability list")
        found: list[tuple[int, int]] = []
        addr = await self.read_header("capabilities") & ~3
        while addr:
            if addr < _FIRST_CAPABILITY or len(found) >= _MAX_CAPABILITIES:
                raise DeviceError(
                    f"Capability list of function {self.function} is broken at {addr:#x}, "
                    f"after {len(found)} entries"
                )
            header = await self.read(addr, 2)
            found.append((header & 0xFF, addr))
            addr = header >> 8 & ~3
        return found

    async def enable(self) -> None:
        """Lets the function answer to its BARs and use DMA; MSI-X replaces INTx."""
        place = abi.PCI_HEADER.place("command")
        wanted = PciCommand.MEMORY_SPACE | PciCommand.BUS_MASTER
        await self.write(place.offset, place.size, await self.read(place.offset, 2) | wanted)


async def find_windows(pci: PciFunction) -> dict[CfgType, Window]:
    """The virtio structures of a function; the first capability of each kind counts (4.1.4).

    Raises DeviceError when a mandatory one is missing or is not what the standard asks for.
    """
    windows: dict[CfgType, Window] = {}
    for cap_id, addr in await pci.capabilities():
        if cap_id != CapId.VENDOR:
            continue
        cap = abi.VIRTIO_PCI_CAP.unpack(await pci.read_struct(addr, abi.VIRTIO_PCI_CAP))
        if cap.cfg_type not in list(CfgType) or cap.bar > abi.MAX_BAR or cap.cfg_type in windows:
            continue
        kind = CfgType(cap.cfg_type)
        multiplier = 0
        if kind == CfgType.NOTIFY:
            place = abi.VIRTIO_PCI_NOTIFY_CAP.place("notify_off_multiplier")
            multiplier = await pci.read(addr + place.offset, place.size)
        windows[kind] = Window(addr, cap.bar, cap.offset, cap.length, multiplier)
    for kind in CfgType:
        if kind not in windows:
            raise DeviceError(f"Function {pci.function} has no {kind.name} capability")
    _check_windows(windows)
    return windows


async def find_push_window(pci: PciFunction) -> Window:
    """The push window of a function that offers PUSH (docs/extensions.md); DeviceError without."""
    for cap_id, addr in await pci.capabilities():
        if cap_id != CapId.VENDOR:
            continue
        cap = abi.VIRTIO_PCI_CAP.unpack(await pci.read_struct(addr, abi.VIRTIO_PCI_CAP))
        if cap.cfg_type == CFG_TYPE_PUSH:
            return Window(addr, cap.bar, cap.offset, cap.length)
    raise DeviceError(f"Function {pci.function} offers PUSH and has no window for it")


def _check_windows(windows: dict[CfgType, Window]) -> None:
    smallest = {CfgType.COMMON: abi.COMMON_CFG.offset("queue_notify_data"), CfgType.ISR: 1}
    for kind, align in ((CfgType.COMMON, 4), (CfgType.NOTIFY, 2), (CfgType.DEVICE, 4)):
        if windows[kind].offset % align:
            raise DeviceError(f"{kind.name} is at {windows[kind].offset:#x}, not {align}-aligned")
    for kind, size in smallest.items():
        if windows[kind].length < size:
            raise DeviceError(f"{kind.name} has {windows[kind].length} bytes, needs {size}")
    multiplier = windows[CfgType.NOTIFY].multiplier
    if multiplier & (multiplier - 1) or multiplier == 1:
        raise DeviceError(f"notify_off_multiplier must be 0 or an even power of 2: {multiplier}")


class Msix:
    """The MSI-X vectors of a function; a vector's handler runs when its message arrives."""

    def __init__(self, platform: Platform, pci: PciFunction, cap: int, table: int, entries: int):
        self._platform, self._pci, self._cap = platform, pci, cap
        self._bar, self._table = table & abi.MSIX_BIR_MASK, table & ~abi.MSIX_BIR_MASK
        #: Size of the vector table.
        self.entries = entries
        self._messages: dict[int, Message] = {}

    @classmethod
    async def find(cls, platform: Platform, pci: PciFunction) -> Msix | None:
        """The function's MSI-X capability, None when it has none."""
        for cap_id, addr in await pci.capabilities():
            if cap_id == CapId.MSIX:
                cap = abi.MSIX_CAP.unpack(await pci.read_struct(addr, abi.MSIX_CAP))
                entries = (cap.message_control & MsixControl.TABLE_SIZE) + 1
                return cls(platform, pci, addr, cap.table, entries)
        return None

    async def enable(self, handlers: Sequence[Callable[[], None]]) -> None:
        """Programs vectors 0, 1, ... with ``handlers``, masks the others and turns MSI-X on."""
        if len(handlers) > self.entries:
            raise RdmaError(
                errno.ENOSPC, f"{len(handlers)} vectors wanted, the table has {self.entries}"
            )
        await self._control(MsixControl.ENABLE | MsixControl.FUNCTION_MASK)
        for vector, handler in enumerate(handlers):
            message = self._platform.interrupts.allocate(handler)
            self._messages[vector] = message
            await self._write(vector, "message_address", message.address)
            await self._write(vector, "message_data", message.data)
            await self._write(vector, "vector_control", 0)
        await self._control(MsixControl.ENABLE)

    async def disable(self) -> None:
        """Turns MSI-X off and releases the messages."""
        await self._control(MsixControl(0))
        for vector in list(self._messages):
            await self._write(vector, "vector_control", abi.MSIX_VECTOR_MASKED)
            self._platform.interrupts.release(self._messages.pop(vector))

    async def mask(self, vector: int, masked: bool) -> None:
        """Masks or unmasks one vector; what arises while masked is sent afterwards."""
        await self._write(vector, "vector_control", abi.MSIX_VECTOR_MASKED if masked else 0)

    async def _control(self, flags: MsixControl) -> None:
        place = abi.MSIX_CAP.place("message_control")
        await self._pci.write(self._cap + place.offset, place.size, flags.value)

    async def _write(self, vector: int, path: str, value: int) -> None:
        place = abi.MSIX_ENTRY.place(path)
        addr = self._table + vector * abi.MSIX_ENTRY.size + place.offset
        for i in range(0, place.size, 4):
            word = value >> 8 * i & 0xFFFF_FFFF
            await self._pci.mmio.write(self._pci.function, self._bar, addr + i, 4, word)
