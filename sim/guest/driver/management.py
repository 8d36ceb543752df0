"""The firmware's registers through the same register accesses that a driver makes."""

from __future__ import annotations

from sim.guest.driver.platform import Mmio

__all__ = ["Management"]


class Management:
    """Register bus of the firmware: 32-bit registers in BAR 0 of the management function.

    function: its number (``NicConfig.management_function``).
    """

    def __init__(self, mmio: Mmio, function: int):
        self._mmio, self._function = mmio, function

    async def read(self, addr: int) -> int:
        """Value of the register at byte address ``addr``, a multiple of 4."""
        return await self._mmio.read(self._function, 0, addr, 4)

    async def write(self, addr: int, value: int) -> None:
        """Posted write of a register."""
        await self._mmio.write(self._function, 0, addr, 4, value)
