"""Memory of the process as the card reaches it: pages that regions hold, and their lists."""

from __future__ import annotations

import ctypes
import errno
from collections import Counter

import numpy as np

from hdl.abi.virtio_rdma import PAGE_ENTRY_SIZE, PAGE_SIZE
from sim.guest.driver.errors import RdmaError
from sim.guest.driver.memory import view
from sim.guest.driver.platform import Memory
from sim.models.spaces import lend_page

__all__ = ["Pinned", "UserPages"]

_LIBC = ctypes.CDLL(None, use_errno=True)


class Pinned:
    """Pages of this process that a host's card may reach, and how many regions hold each."""

    def __init__(self, host: int):
        self._host = host
        self._held: Counter[int] = Counter()

    def pin(self, address: int, length: int) -> None:
        """Hold the pages of these bytes. RdmaError(EFAULT) when there is no such memory."""
        check_mapped(address, length)
        for page in pages_of(address, length):
            if not self._held[page]:
                lend_page(self._host, page)
            self._held[page] += 1

    def unpin(self, address: int, length: int) -> None:
        """End what ``pin`` began."""
        for page in pages_of(address, length):
            self._held[page] -= 1
            if not self._held[page]:
                del self._held[page]
                lend_page(self._host, page, on=False)


def pages_of(address: int, length: int) -> range:
    """Addresses of the pages that hold these bytes."""
    first = address // PAGE_SIZE * PAGE_SIZE
    return range(first, address + length, PAGE_SIZE)


def check_mapped(address: int, length: int) -> None:
    """RdmaError(EFAULT) unless the process has memory in all these pages."""
    pages = pages_of(address, length)
    found = (ctypes.c_ubyte * max(len(pages), 1))()
    size = ctypes.c_size_t(len(pages) * PAGE_SIZE)
    if _LIBC.mincore(ctypes.c_void_p(pages.start), size, found):
        raise RdmaError(errno.EFAULT, f"No memory at {address:#x}, {length} bytes")


class UserPages:
    """The list of the pages of a region, in guest memory, where the card reads it."""

    def __init__(self, memory: Memory, address: int, length: int):
        pages = pages_of(address, length)
        self._memory, self.count = memory, len(pages)
        size = self.count * PAGE_ENTRY_SIZE
        self.address = memory.alloc(size, PAGE_ENTRY_SIZE)
        view(memory, self.address, size).view("<u8")[:] = np.arange(
            pages.start, pages.stop, PAGE_SIZE, dtype=np.uint64
        )

    def close(self) -> None:
        """Free the list."""
        self._memory.free(self.address)
