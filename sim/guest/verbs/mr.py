"""Memory regions: scattered pages with a page list that the device reads.

Spec: virtio-rdma VR-3.14 to VR-3.20.
"""

from __future__ import annotations

import errno
from itertools import count

import numpy as np

from hdl.abi.enums import Access, ControlCommand
from hdl.abi.virtio_rdma import PAGE_ENTRY_SIZE, PAGE_SIZE
from sim.guest.driver.errors import RdmaError
from sim.guest.driver.memory import PagedBuffer, view
from sim.guest.driver.platform import Octets
from sim.guest.verbs.context import PD, Resource
from sim.guest.verbs.wr import SGE

#: Process addresses of regions: 16 GiB apart, so that none overlap.
_USER_ADDRESSES = count(0x7F00_0000_0000, 1 << 34)


class MR(Resource):
    """A user memory region of ``length`` bytes that begins ``offset`` bytes into its first page.

    ``buf`` is its process address and ``iova`` the address in SGEs and for peers: equal unless
    ``virt_addr`` is given or the access flags have ZERO_BASED. Its pages are whatever the guest
    memory hands out, so neighbouring pages of the region are far apart. The page list stays in
    guest memory until the region is closed.
    """

    def __init__(self, pd: PD, buffer: PagedBuffer, page_list: int, buf: int, iova: int):
        self.pd = pd
        self.buffer = buffer
        self.page_list = page_list
        self.buf = buf
        self.iova = iova
        self.length = buffer.size
        self.mrn = self.lkey = self.rkey = 0

    @classmethod
    async def create(
        cls,
        pd: PD,
        length: int,
        access: Access = Access.LOCAL_WRITE,
        *,
        offset: int = 0,
        virt_addr: int | None = None,
    ) -> MR:
        """Allocates and registers memory.

        Raises RdmaError: EINVAL for a bad length or offset and what the device refuses, ENOMEM.
        """
        if length < 1 or not 0 <= offset < PAGE_SIZE:
            raise RdmaError(errno.EINVAL, f"A region of {length} bytes from offset {offset}")
        memory = pd.ctx.memory
        npages = -(-(offset + length) // PAGE_SIZE)
        pages = memory.alloc_pages(npages)
        page_list = 0
        try:
            page_list = memory.alloc(npages * PAGE_ENTRY_SIZE, PAGE_ENTRY_SIZE)
            view(memory, page_list, npages * PAGE_ENTRY_SIZE).view("<u8")[:] = pages
            buf = next(_USER_ADDRESSES) + offset
            iova = 0 if access & Access.ZERO_BASED else buf if virt_addr is None else virt_addr
            mr = cls(pd, PagedBuffer(memory, pages, offset, length), page_list, buf, iova)
            result = await pd.ctx.command(
                ControlCommand.REG_USER_MR,
                pdn=pd.pdn,
                access_flags=access,
                start=buf,
                length=length,
                virt_addr=iova,
                pages=page_list,
                npages=npages,
            )
        except BaseException:
            if page_list:
                memory.free(page_list)
            memory.free_pages(pages)
            raise
        mr.mrn, mr.lkey, mr.rkey = result.mrn, result.lkey, result.rkey
        pd.ctx.mrs[mr.lkey] = mr
        return mr

    async def close(self) -> None:
        """Deregisters the region and frees its memory."""
        await self.pd.ctx.command(ControlCommand.DEREG_MR, mrn=self.mrn)
        self.pd.ctx.mrs.pop(self.lkey, None)
        self.pd.ctx.memory.free(self.page_list)
        self.pd.ctx.memory.free_pages(self.buffer.pages)

    def write(self, data: bytes | bytearray | memoryview | Octets, offset: int = 0) -> None:
        """Copies ``data`` into the region; RdmaError(EINVAL) when it does not fit."""
        self.buffer.write(data, offset)

    def read(self, length: int, offset: int = 0) -> Octets:
        """A copy of ``length`` bytes."""
        return self.buffer.read(length, offset)

    def fill(self, value: int = 0) -> None:
        """Sets every byte."""
        self.write(np.full(self.length, value, np.uint8))

    def sge(self, offset: int = 0, length: int | None = None) -> SGE:
        """An SGE for a part of the region, to its end unless ``length`` says otherwise."""
        return SGE(
            self.iova + offset, self.length - offset if length is None else length, self.lkey
        )


class DmaMR(Resource):
    """A region that is all of memory: addresses in SGEs are physical (VR-3.20)."""

    def __init__(self, pd: PD, mrn: int, lkey: int, rkey: int):
        self.pd, self.mrn, self.lkey, self.rkey = pd, mrn, lkey, rkey

    @classmethod
    async def create(cls, pd: PD, access: Access = Access.LOCAL_WRITE) -> DmaMR:
        """Asks the device for the region."""
        result = await pd.ctx.command(ControlCommand.GET_DMA_MR, pdn=pd.pdn, access_flags=access)
        return cls(pd, result.mrn, result.lkey, result.rkey)

    async def close(self) -> None:
        """Deregisters the region."""
        await self.pd.ctx.command(ControlCommand.DEREG_MR, mrn=self.mrn)
