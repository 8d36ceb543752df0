"""The page list of a region in guest memory, of one level or two (docs/extensions.md)."""

from __future__ import annotations

import numpy as np

from hdl.abi.virtio_rdma import PAGE_ENTRY_SIZE, PAGE_SIZE, TABLE_PAGE_ENTRIES
from sim.guest.driver.memory import view
from sim.guest.driver.platform import Addresses, Memory

__all__ = ["PageTable"]


class PageTable:
    """New pages for ``length`` bytes that begin ``offset`` bytes into the first, and their list.

    ``address``: what a command names. With two levels ``tables`` has the addresses of the list's
    own pages, which lie anywhere. Raises RdmaError(ENOMEM).
    """

    def __init__(self, memory: Memory, length: int, offset: int, *, levels: int = 1):
        self.memory, self.levels = memory, levels
        self.tables: Addresses = np.zeros(0, np.uint64)
        npages = -(-(offset + length) // PAGE_SIZE)
        self.pages = memory.alloc_pages(npages)
        try:
            if levels == 1:
                self.address = self._list(self.pages)
                return
            self.tables = memory.alloc_pages(-(-npages // TABLE_PAGE_ENTRIES))
            for n, table in enumerate(self.tables):
                part = self.pages[n * TABLE_PAGE_ENTRIES : (n + 1) * TABLE_PAGE_ENTRIES]
                view(memory, int(table), part.size * PAGE_ENTRY_SIZE).view("<u8")[:] = part
            self.address = self._list(self.tables)
        except BaseException:
            self._free_pages()
            raise

    def entry(self, number: int, level: int = 1) -> Addresses:
        """The entry that names page ``number``, to be changed in place; of ``level`` 2: the one of
        the first level that stands for it."""
        table, place = self.address, number
        if self.levels == 2:
            page, place = divmod(number, TABLE_PAGE_ENTRIES)
            table = int(self.tables[page])
            if level == 2:
                table, place = self.address, page
        return view(self.memory, table + place * PAGE_ENTRY_SIZE, PAGE_ENTRY_SIZE).view("<u8")

    def close(self) -> None:
        """Frees the pages and the list."""
        self.memory.free(self.address)
        self._free_pages()

    def _list(self, entries: Addresses) -> int:
        address = self.memory.alloc(entries.size * PAGE_ENTRY_SIZE, PAGE_ENTRY_SIZE)
        view(self.memory, address, entries.size * PAGE_ENTRY_SIZE).view("<u8")[:] = entries
        return address

    def _free_pages(self) -> None:
        self.memory.free_pages(self.pages)
        if self.tables.size:
            self.memory.free_pages(self.tables)
