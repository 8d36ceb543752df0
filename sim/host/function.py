"""A function of a card: its regions and its reset, as the card itself has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cocotb.triggers import Timer

from hdl.abi import virtio_pci as abi
from hdl.abi.virtio_pci import CapId, MsixControl
from sim.guest.driver.pci import PciFunction
from sim.host.protocol import Region
from sim.models import native
from sim.models.platform import Host

__all__ = ["CardPins", "Function", "MsixPlace"]

#: What the BAR registers of a PCI function read as after this was written: their sizes.
_ONES = 0xFFFF_FFFF
_FLAGS = 0xF  # of a memory BAR
#: Between two looks at a function-level reset, ns; and how long it may wait for the firmware.
LOOK_NS, PATIENCE_NS = 200, 10_000_000


@dataclass(frozen=True)
class MsixPlace:
    """Where a function's MSI-X is: of its capability, and of its table in a BAR."""

    capability: int
    bar: int
    table: int
    vectors: int


class CardPins:
    """The pins of card ``index`` that are no bus: function-level resets and INTx, a bit for each
    of its functions that have a driver (``NicConfig.driven``)."""

    def __init__(self, dut: Any, index: int):
        self._flr = getattr(dut, f"nic{index}_flr")
        self._clean = getattr(dut, f"nic{index}_flr_clean")
        self._over = getattr(dut, f"nic{index}_flr_over")
        #: Levels of INTx.
        self.intx = getattr(dut, f"nic{index}_intx")
        self._held = 0

    def hold_reset(self, ordinal: int, held: bool) -> None:
        """Begin or end the function-level reset of a function."""
        self._held = self._held & ~(1 << ordinal) | held << ordinal
        native.library().clock_wake()
        self._flr.value = self._held

    def is_reset(self, ordinal: int) -> bool:
        """Whether nothing of before is left, and the device reset is over too."""
        return bool((int(self._clean.value) & int(self._over.value)) >> ordinal & 1)

    def is_asserted(self, ordinal: int) -> bool:
        """The level of a function's INTx."""
        return bool(int(self.intx.value) >> ordinal & 1)


class Function:
    """One function. ``number`` is its PCI function, ``ordinal`` its place among those driven.

    stir: called while the firmware may have something to do. ``sizes``: bytes of each region that
    there is; ``msix``: where its vectors are. Both are read from the card by ``discover``.
    """

    def __init__(
        self, host: Host, pins: CardPins, number: int, ordinal: int, stir: Callable[[], None]
    ):
        self.host, self.pins = host, pins
        self.number, self.ordinal = number, ordinal
        self._stir = stir
        self._pci = PciFunction(host.mmio, number)
        self.sizes: dict[int, int] = {}
        self.identity = ""
        self.msix: MsixPlace
        #: Accesses that guests have made.
        self.accesses = 0

    async def discover(self) -> None:
        """Read from the card's configuration space what it has."""
        vendor, device = [
            await self._pci.read_header(f"{name}_id") for name in ("vendor", "device")
        ]
        self.identity = f"{vendor:04x}:{device:04x}"
        self.sizes = {Region.CONFIG: 256}
        place = abi.PCI_HEADER.place("bar")
        for bar in range(abi.MAX_BAR + 1):
            at = place.offset + 4 * bar
            before = await self._pci.read(at, 4)
            await self._pci.write(at, 4, _ONES)
            bits = await self._pci.read(at, 4) & ~_FLAGS
            await self._pci.write(at, 4, before)
            if bits:
                self.sizes[bar] = -bits & _ONES
        (at,) = [addr for kind, addr in await self._pci.capabilities() if kind == CapId.MSIX]
        found = abi.MSIX_CAP.unpack(await self._pci.read_struct(at, abi.MSIX_CAP))
        self.msix = MsixPlace(
            at,
            found.table & abi.MSIX_BIR_MASK,
            found.table & ~abi.MSIX_BIR_MASK,
            (found.message_control & MsixControl.TABLE_SIZE) + 1,
        )

    async def read(self, region: int, offset: int, count: int) -> bytes:
        """Bytes of a region that exist, access by access."""
        found = bytearray()
        for at, size in _accesses(offset, count):
            self.accesses += 1
            word = await self.host.mmio.read(self.number, region, at, size)
            found += word.to_bytes(size, "little")
        return bytes(found)

    async def write(self, region: int, offset: int, data: bytes) -> None:
        """Write bytes that exist; those of the MSI-X table are the server's, and stay."""
        for at, size in _accesses(offset, len(data)):
            self.accesses += 1
            value = int.from_bytes(data[at - offset : at - offset + size], "little")
            if not self._in_table(region, at):
                await self.host.mmio.write(self.number, region, at, size, value)
        self._stir()

    def _in_table(self, region: int, at: int) -> bool:
        table = self.msix.table
        size = self.msix.vectors * abi.MSIX_ENTRY.size
        return region == self.msix.bar and table <= at < table + size

    async def set_vector(self, vector: int, path: str, value: int) -> None:
        """Write a field of an entry of the MSI-X table."""
        place = abi.MSIX_ENTRY.place(path)
        at = self.msix.table + vector * abi.MSIX_ENTRY.size + place.offset
        for i in range(0, place.size, 4):
            word = value >> 8 * i & _ONES
            await self.host.mmio.write(self.number, self.msix.bar, at + i, 4, word)

    async def enable_msix(self, enabled: bool) -> None:
        """Turn MSI-X on or off; what else its control word says stays."""
        at = self.msix.capability + abi.MSIX_CAP.offset("message_control")
        before = await self._pci.read(at, 2)
        bit = MsixControl.ENABLE.value
        await self._pci.write(at, 2, before | bit if enabled else before & ~bit)

    async def reset(self) -> bool:
        """A function-level reset; whether the device reset in it has come to its end.

        It may not, if the firmware is dead. The function is clean in any case.
        """
        self.pins.hold_reset(self.ordinal, True)
        done = False
        for _ in range(PATIENCE_NS // LOOK_NS):
            self._stir()
            await Timer(LOOK_NS, "ns")
            native.library().clock_wake()
            if done := self.pins.is_reset(self.ordinal):
                break
        self.pins.hold_reset(self.ordinal, False)
        return done


def _accesses(offset: int, count: int) -> Iterator[tuple[int, int]]:
    """Place and size of each access that a bus would make: 1, 2 or 4 bytes within a word."""
    at, end = offset, offset + count
    while at < end:
        size = 4
        while at % size or at + size > end:
            size //= 2
        yield at, size
        at += size
