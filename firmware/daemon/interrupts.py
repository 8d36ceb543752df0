"""How the firmware waits while there is nothing to do: for an interrupt, or for a time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct

__all__ = ["Interrupts"]

_COUNT = struct.Struct("=i")


class Interrupts:
    """Interrupts of a UIO device, read from its ``descriptor``; None: there are none.

    A read of 4 bytes from the device returns how many interrupts there were, and a write of the
    number 1 lets it have the next one (Linux, "The Userspace I/O HOWTO", "/dev/uioX"). ``given``
    says whether the device gives interrupts at all.
    """

    def __init__(self, descriptor: int | None):
        self._descriptor = descriptor
        self._arrived = asyncio.Event()
        self.count = 0
        self.given = descriptor is not None and self._enable()
        if self.given and descriptor is not None:
            os.set_blocking(descriptor, False)
            asyncio.get_running_loop().add_reader(descriptor, self._take)

    def _enable(self) -> bool:
        """Let the device have its next interrupt; whether it can."""
        assert self._descriptor is not None
        try:
            os.write(self._descriptor, _COUNT.pack(1))
        except OSError:
            return False  # EIO: the device has no interrupt; others: it is no UIO device
        return True

    def _take(self) -> None:
        assert self._descriptor is not None
        try:
            whole = len(os.read(self._descriptor, _COUNT.size)) == _COUNT.size
        except BlockingIOError:
            return
        except OSError:
            whole = False
        if whole:
            self.count += 1
        else:  # the device has gone: what the BAR answers will tell
            self.close()
        self._arrived.set()

    async def wait(self, seconds: float) -> None:
        """Until an interrupt comes, ``seconds`` at most; without interrupts all that time."""
        if not self.given:
            await asyncio.sleep(seconds)
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._arrived.wait(), seconds)
            self._arrived.clear()
            if self.given:
                self._enable()

    def close(self) -> None:
        """Take no more interrupts."""
        if self.given and self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
        self.given = False
