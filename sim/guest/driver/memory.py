"""Guest memory on a numpy array: an allocator, and access to buffers made of scattered pages."""

from __future__ import annotations

import bisect
import errno
from dataclasses import dataclass

import numpy as np

from hdl.abi.virtio_rdma import PAGE_SIZE
from sim.guest.driver.errors import RdmaError
from sim.guest.driver.platform import Addresses, Memory, Octets

#: Allocations take a multiple of so many bytes. Without it the rings of thousands of queues leave
#: holes of a few bytes between them, through which every later search would go.
GRAIN = 16


class GuestMemory:
    """Implements ``platform.Memory`` on ``octets``, an array of bytes shared with the device.

    The lower part, ``heap`` bytes, serves contiguous allocations (first fit); the rest is pages.
    ``seed`` shuffles the pages; None gives them in ascending order. Address 0 is never given out
    when ``base`` is 0. Errors: ValueError for a bad size, RdmaError(ENOMEM) when full.
    """

    def __init__(
        self, octets: Octets, *, base: int = 0, heap: int | None = None, seed: int | None = 1
    ):
        if octets.dtype != np.uint8 or octets.ndim != 1 or octets.size % PAGE_SIZE:
            raise ValueError(f"Guest memory must be whole pages of uint8, not {octets.size} bytes")
        if base % PAGE_SIZE:
            raise ValueError(f"base must be a multiple of {PAGE_SIZE}, not {base:#x}")
        heap = octets.size // 2 if heap is None else heap
        heap -= heap % PAGE_SIZE
        if not PAGE_SIZE <= heap <= octets.size:
            raise ValueError(f"heap must be {PAGE_SIZE} to {octets.size} bytes, not {heap}")
        self.bytes = octets
        self.base = base
        self._holes = [(base + (0 if base else PAGE_SIZE), base + heap)]
        self._sizes: dict[int, int] = {}
        first, end = base + heap, base + octets.size
        self._pages = np.arange(first, end, PAGE_SIZE, dtype=np.uint64)
        self._random = None if seed is None else np.random.default_rng(seed)

    @property
    def free_bytes(self) -> int:
        """What has not been given out, in holes of any size and pages."""
        return sum(end - start for start, end in self._holes) + PAGE_SIZE * int(self._pages.size)

    def alloc(self, size: int, align: int = 16) -> int:
        """Physical address of ``size`` contiguous bytes set to zero; takes whole ``GRAIN``s."""
        if size < 1 or align < 1 or align & (align - 1):
            raise ValueError(f"Cannot allocate {size} bytes aligned to {align}")
        size = -(-size // GRAIN) * GRAIN
        for i, (start, end) in enumerate(self._holes):
            addr = -(-start // align) * align
            if addr + size <= end:
                rest = [(start, addr), (addr + size, end)]
                self._holes[i : i + 1] = [hole for hole in rest if hole[0] < hole[1]]
                self._sizes[addr] = size
                view(self, addr, size)[:] = 0
                return addr
        raise RdmaError(errno.ENOMEM, f"No {size} contiguous bytes of guest memory left")

    def free(self, addr: int) -> None:
        """Gives back an allocation; neighbouring holes are joined."""
        if addr not in self._sizes:
            raise ValueError(f"{addr:#x} was not allocated")
        start, end = addr, addr + self._sizes.pop(addr)
        i = bisect.bisect(self._holes, (start, end))
        if i < len(self._holes) and self._holes[i][0] == end:
            end = self._holes.pop(i)[1]
        if i and self._holes[i - 1][1] == start:
            i -= 1
            start = self._holes.pop(i)[0]
        self._holes.insert(i, (start, end))

    def alloc_pages(self, count: int) -> Addresses:
        """Addresses of ``count`` pages; their contents are whatever was there."""
        if count < 1:
            raise ValueError(f"Cannot allocate {count} pages")
        if count > self._pages.size:
            raise RdmaError(errno.ENOMEM, f"No {count} pages left, only {self._pages.size}")
        if self._random is not None:
            self._random.shuffle(self._pages)
        taken, self._pages = self._pages[:count].copy(), self._pages[count:]
        return taken

    def free_pages(self, pages: Addresses) -> None:
        """Gives pages back."""
        self._pages = np.concatenate([self._pages, pages])

    def written_last(self, addr: int, size: int) -> None:
        """Nothing: the device sees each byte when it is written, in the order of the program."""


def view(memory: Memory, addr: int, size: int) -> Octets:
    """The ``size`` bytes at physical address ``addr``, shared with the device.

    Raises RdmaError(EFAULT) when they are not all in guest memory.
    """
    start = addr - memory.base
    if start < 0 or size < 0 or start + size > memory.bytes.size:
        raise RdmaError(errno.EFAULT, f"{size} bytes at {addr:#x} are outside guest memory")
    return memory.bytes[start : start + size]


@dataclass(frozen=True)
class PagedBuffer:
    """``size`` bytes that begin ``offset`` bytes into the first of the pages at ``pages``."""

    memory: Memory
    pages: Addresses
    offset: int
    size: int

    def _pieces(self, offset: int, size: int) -> tuple[Octets, Octets, Octets]:
        """Views of the first, partial page and of the last one, and the indices of those between.

        Copies then take three numpy operations whatever the number of pages.
        """
        if offset < 0 or size < 0 or offset + size > self.size:
            raise RdmaError(
                errno.EINVAL, f"{size} bytes at offset {offset} of a buffer of {self.size}"
            )
        first, skip = divmod(self.offset + offset, PAGE_SIZE)
        head_size = min(size, PAGE_SIZE - skip) if skip else 0
        whole, tail_size = divmod(size - head_size, PAGE_SIZE)
        first += bool(skip)
        nothing = self.memory.bytes[:0]
        head = tail = nothing
        if head_size:
            head = view(self.memory, int(self.pages[first - 1]) + skip, head_size)
        if tail_size:
            tail = view(self.memory, int(self.pages[first + whole]), tail_size)
        middle = (self.pages[first : first + whole] - np.uint64(self.memory.base)) // np.uint64(
            PAGE_SIZE
        )
        return head, middle, tail

    def write(self, data: bytes | bytearray | memoryview | Octets, offset: int = 0) -> None:
        """Copies ``data`` into the buffer from ``offset`` on."""
        source = np.frombuffer(data, np.uint8)
        head, middle, tail = self._pieces(offset, source.size)
        end = source.size - tail.size
        head[:] = source[: head.size]
        tail[:] = source[end:]
        if middle.size:
            by_page = self.memory.bytes.reshape(-1, PAGE_SIZE)
            by_page[middle] = source[head.size : end].reshape(-1, PAGE_SIZE)

    def read(self, size: int, offset: int = 0) -> Octets:
        """A copy of ``size`` bytes from ``offset`` on."""
        head, middle, tail = self._pieces(offset, size)
        by_page = self.memory.bytes.reshape(-1, PAGE_SIZE)
        return np.concatenate([head, by_page[middle].reshape(-1), tail])
