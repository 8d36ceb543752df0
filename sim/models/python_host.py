"""What hosts have in common whose bus is simulated in Python, as cocotbext's models are."""

from __future__ import annotations

from typing import Any

from cocotb.triggers import Event, First, Timer

from sim.models.platform import MSI_WINDOW, Interrupts, now_ns

__all__ = ["MESSAGES", "PythonHost"]

#: Where writes are messages of interrupts.
MESSAGES = range(MSI_WINDOW, MSI_WINDOW + (1 << 20))


class PythonHost:
    """Time, events and interrupts of ``sim.guest.driver.platform.Platform``.

    A subclass adds ``memory`` and ``mmio``, and calls ``message`` for each interrupt.
    """

    def __init__(self) -> None:
        self.interrupts = Interrupts()
        self.faults: list[Any] = []
        self._arrived = Event()
        self._arrivals = self._seen = 0

    def set(self, **_settings: Any) -> None:
        """There is nothing to set."""

    def now(self) -> int:
        """Time in ns."""
        return now_ns()

    async def wait_event(self, timeout_ns: int) -> None:
        """Sleep until an interrupt has arrived since the last call, or ``timeout_ns`` is over."""
        if self._seen == self._arrivals:
            await First(self._arrived.wait(), Timer(max(1, timeout_ns), "ns"))
        self._seen = self._arrivals

    def message(self, addr: int, value: int) -> None:
        """Take a message that the card has written to ``addr``."""
        self.interrupts.arrived(addr, value, 1000 * now_ns())
        self._arrivals += 1
        self._arrived.set()
        self._arrived.clear()
