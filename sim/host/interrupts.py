"""A client's interrupts: event descriptors, and what the card's MSI-X table holds for them."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence

from hdl.abi.virtio_pci import MSIX_VECTOR_MASKED
from sim.host.function import Function
from sim.host.protocol import Irq, IrqAction, IrqData, IrqFlag
from sim.models.platform import MSI_WINDOW

__all__ = ["ClientInterrupts"]

#: What /proc says that a descriptor is.
_EVENTFD = "anon_inode:[eventfd]"
_ONE = (1).to_bytes(8, "little")


class ClientInterrupts:
    """Event descriptors of one client of ``function``, by kind of interrupt and number.

    Vector n of MSI-X writes n to ``MSI_WINDOW + 4 n``. INTx masks itself when it has been told.
    ``told`` counts what was written to event descriptors.
    """

    def __init__(self, function: Function):
        self._function = function
        self._events: dict[tuple[int, int], int] = {}
        self._masked: set[int] = set()
        self._intx_masked = False
        self.told = 0

    def count(self, index: int) -> int:
        """How many interrupts of a kind there are."""
        return {Irq.INTX: 1, Irq.MSIX: self._function.msix.vectors}.get(Irq(index), 0)

    def flags(self, index: int) -> int:
        """``IrqFlag`` of a kind."""
        if not self.count(index):
            return 0
        found = IrqFlag.EVENTFD | IrqFlag.MASKABLE
        return found | IrqFlag.AUTOMASKED if index == Irq.INTX else found

    async def set(
        self, flags: int, index: int, start: int, count: int, chosen: bytes, files: list[int]
    ) -> None:
        """Do what DEVICE_SET_IRQS says. Descriptors that are kept are taken out of ``files``.

        OSError(EINVAL) for what makes no sense, and for descriptors that are no eventfds.
        """
        if index > Irq.REQ or start + count > self.count(index):
            raise _invalid()
        try:
            data, action = IrqData(flags & 7), IrqAction(flags & ~7)
        except ValueError:
            raise _invalid() from None
        if not (data and action) or data & (data - 1) or action & (action - 1):
            raise _invalid()
        numbers = list(range(start, start + count))
        if data == IrqData.NONE and not count:
            if start or action != IrqAction.TRIGGER:
                raise _invalid()
            await self._assign(index, range(self.count(index)), [])
        elif data == IrqData.EVENTFD:
            await self._assign_eventfds(action, index, numbers, files)
        else:
            if data == IrqData.BOOL:
                if len(chosen) != count:
                    raise _invalid()
                numbers = [n for n, one in zip(numbers, chosen, strict=True) if one]
            await self._act(action, index, numbers)

    async def _assign_eventfds(
        self, action: IrqAction, index: int, numbers: Sequence[int], files: list[int]
    ) -> None:
        if len(files) not in (0, len(numbers)):
            raise _invalid()
        for one in files:
            if os.readlink(f"/proc/self/fd/{one}") != _EVENTFD:
                raise _invalid()
            os.set_blocking(one, False)
        if action == IrqAction.TRIGGER:
            taken = list(files)
            files.clear()
            await self._assign(index, numbers, taken)
        elif action == IrqAction.UNMASK and index == Irq.INTX:
            raise OSError(errno.ENOTSUP, "INTx is unmasked by messages alone")
        else:
            raise _invalid()

    async def _assign(self, index: int, numbers: Sequence[int], files: list[int]) -> None:
        """Give interrupts their descriptors, or none."""
        for number in numbers:
            before = self._events.pop((index, number), None)
            if before is not None:
                os.close(before)
        self._events |= {(index, n): one for n, one in zip(numbers, files, strict=False)}
        if index == Irq.MSIX:
            self._masked -= set(numbers)
            for number in numbers:
                await self._program(number)
            await self._function.enable_msix(any(kind == Irq.MSIX for kind, _ in self._events))
        else:
            self._intx_masked = False
            self.intx_changed()

    async def _program(self, vector: int) -> None:
        """Let the card's table say what a vector is."""
        if (Irq.MSIX, vector) in self._events:
            set_field = self._function.set_vector
            await set_field(vector, "message_address", MSI_WINDOW + 4 * vector)
            await set_field(vector, "message_data", vector)
            masked = vector in self._masked
            await set_field(vector, "vector_control", MSIX_VECTOR_MASKED if masked else 0)
        else:
            await self._function.set_vector(vector, "vector_control", MSIX_VECTOR_MASKED)

    async def program(self) -> None:
        """Let the card know of all vectors again, after a reset of the function."""
        vectors = [number for kind, number in self._events if kind == Irq.MSIX]
        for vector in vectors:
            await self._program(vector)
        if vectors:
            await self._function.enable_msix(True)

    async def _act(self, action: IrqAction, index: int, numbers: Sequence[int]) -> None:
        if action == IrqAction.TRIGGER:
            for number in numbers:
                self._tell(index, number)
        elif index == Irq.INTX:
            self._intx_masked = action == IrqAction.MASK
            self.intx_changed()
        else:
            for vector in numbers:
                if action == IrqAction.MASK:
                    self._masked.add(vector)
                else:
                    self._masked.discard(vector)
                await self._program(vector)

    def message(self, addr: int, data: int) -> None:
        """The card has sent the message of a vector."""
        if addr == MSI_WINDOW + 4 * data:
            self._tell(Irq.MSIX, data)

    def intx_changed(self) -> None:
        """The level of INTx may have changed, or its mask."""
        if not self._intx_masked and self._function.pins.is_asserted(self._function.ordinal):
            self._intx_masked = (Irq.INTX, 0) in self._events
            self._tell(Irq.INTX, 0)

    def _tell(self, index: int, number: int) -> None:
        event = self._events.get((index, number))
        if event is not None:
            with contextlib.suppress(BlockingIOError):  # the counter is full: it has been told
                os.write(event, _ONE)
            self.told += 1

    def close(self) -> None:
        """Close all descriptors."""
        for event in self._events.values():
            os.close(event)
        self._events.clear()


def _invalid() -> OSError:
    return OSError(errno.EINVAL, os.strerror(errno.EINVAL))
