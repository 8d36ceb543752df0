"""What the driver needs from the world: register access, memory, interrupts, time.

A platform joins the driver to a device: the RTL behind a simulated bus, or a model in Python. All
times are integers in nanoseconds of the device's world (simulated, not the wall clock).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Octets = NDArray[np.uint8]
Addresses = NDArray[np.uint64]


class Mmio(Protocol):
    """Access to the BARs and the configuration space of the device's functions.

    ``bar`` 0 to 5 is a BAR, 7 the PCI configuration space (``hdl.abi.virtio_pci.CONFIG_SPACE``).
    ``addr`` is the offset in it in bytes, ``size`` is 1, 2 or 4, values are little-endian numbers.
    """

    async def read(self, function: int, bar: int, addr: int, size: int) -> int:
        """Read; does not overtake earlier writes of the same driver."""

    async def write(self, function: int, bar: int, addr: int, size: int, value: int) -> None:
        """Posted write: returns when accepted, writes arrive in the order of the calls."""


class PushMmio(Mmio, Protocol):
    """Where a device has a push window (docs/extensions.md)."""

    async def write_combined(self, function: int, bar: int, addr: int, data: bytes) -> None:
        """Posted write of any length in one piece."""


class Memory(Protocol):
    """The guest's physical memory, as the device sees it through DMA.

    ``bytes[i]`` is the byte at physical address ``base + i``; ``base`` is a multiple of 4096.
    """

    @property
    def bytes(self) -> Octets:
        """All of it, shared with the device."""

    @property
    def base(self) -> int:
        """Physical address of the first byte."""

    def alloc(self, size: int, align: int = 16) -> int:
        """Physical address of ``size`` contiguous bytes set to zero; OSError(ENOMEM) if none."""

    def free(self, addr: int) -> None:
        """Gives back what ``alloc`` returned."""

    def alloc_pages(self, count: int) -> Addresses:
        """Addresses of ``count`` pages of 4096 bytes, in any order; OSError(ENOMEM) if too few."""

    def free_pages(self, pages: Addresses) -> None:
        """Gives back what ``alloc_pages`` returned."""

    def written_last(self, addr: int, size: int) -> None:
        """These bytes tell the device of others; a memory that is a copy passes them on last."""


@dataclass(frozen=True)
class Message:
    """What a device writes, and where, to raise one interrupt (MSI-X)."""

    address: int
    data: int


class Interrupts(Protocol):
    """Receiver of the device's messages."""

    def allocate(self, handler: Callable[[], None]) -> Message:
        """A new message; ``handler`` is called once for each time that it arrives.

        A handler notes and returns: it must not block and does not access the device.
        """

    def release(self, message: Message) -> None:
        """Ends what ``allocate`` began; later arrivals are ignored."""


class Platform(Protocol):
    """One guest: its memory, its view of the PCI bus, its interrupts and its clock."""

    @property
    def mmio(self) -> Mmio:
        """Registers."""

    @property
    def memory(self) -> Memory:
        """Guest memory."""

    @property
    def interrupts(self) -> Interrupts:
        """Messages from devices."""

    def now(self) -> int:
        """Time in ns."""

    async def wait_event(self, timeout_ns: int) -> None:
        """Sleeps until an interrupt has arrived since the last call, at most ``timeout_ns``.

        May return early for any other reason; callers look again at what they wait for.
        """
