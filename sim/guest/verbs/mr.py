"""Memory regions: scattered pages with a page list that the device reads.

Spec: virtio-rdma VR-3.14 to VR-3.20.
"""

from __future__ import annotations

import errno
from itertools import count

import numpy as np

from hdl.abi.enums import Access, ControlCommand, ExtensionCommand, ReregFlags, WrOpcode
from hdl.abi.virtio_rdma import PAGE_ENTRY_SIZE, PAGE_SIZE
from sim.guest.driver.errors import RdmaError
from sim.guest.driver.memory import PagedBuffer, view
from sim.guest.driver.platform import Addresses, Memory, Octets
from sim.guest.verbs.context import PD, Resource
from sim.guest.verbs.wr import SGE, SendWR

#: Process addresses of regions: 16 GiB apart, so that none overlap.
_USER_ADDRESSES = count(0x7F00_0000_0000, 1 << 34)


_NO_ACCESS = Access(0)


def _page_list(memory: Memory, length: int, offset: int) -> tuple[Addresses, int]:
    """New pages for ``length`` bytes from ``offset`` on, and the address of a list of them."""
    npages = -(-(offset + length) // PAGE_SIZE)
    pages = memory.alloc_pages(npages)
    try:
        page_list = memory.alloc(npages * PAGE_ENTRY_SIZE, PAGE_ENTRY_SIZE)
    except BaseException:
        memory.free_pages(pages)
        raise
    view(memory, page_list, npages * PAGE_ENTRY_SIZE).view("<u8")[:] = pages
    return pages, page_list


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
        pages, page_list = _page_list(memory, length, offset)
        try:
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
                npages=len(pages),
            )
        except BaseException:
            memory.free(page_list)
            memory.free_pages(pages)
            raise
        mr.mrn, mr.lkey, mr.rkey = result.mrn, result.lkey, result.rkey
        pd.ctx.mrs[mr.lkey] = mr
        return mr

    async def reregister(
        self,
        *,
        length: int | None = None,
        offset: int = 0,
        pd: PD | None = None,
        access: Access | None = None,
    ) -> None:
        """Gives the region what is named (REREG_MR, docs/extensions.md), and other keys: new memory
        of ``length`` bytes, another protection domain, other rights.

        Raises RdmaError: EINVAL for what the device refuses; the region is then as it was.
        """
        ctx, flags = self.pd.ctx, ReregFlags(0)
        new: dict[str, int] = {}
        buffer, page_list = self.buffer, self.page_list
        if pd is not None:
            flags, new["pdn"] = flags | ReregFlags.PD, pd.pdn
        if access is not None:
            flags, new["access_flags"] = flags | ReregFlags.ACCESS, access
        if length is not None:
            flags |= ReregFlags.TRANSLATION
            pages, page_list = _page_list(ctx.memory, length, offset)
            buffer = PagedBuffer(ctx.memory, pages, offset, length)
            buf = next(_USER_ADDRESSES) + offset
            new |= {"start": buf, "length": length, "virt_addr": buf}
            new |= {"pages": page_list, "npages": len(pages)}
        try:
            result = await ctx.command(ExtensionCommand.REREG_MR, mrn=self.mrn, flags=flags, **new)
        except BaseException:
            if length is not None:
                ctx.memory.free(page_list)
                ctx.memory.free_pages(buffer.pages)
            raise
        ctx.mrs.pop(self.lkey, None)
        if length is not None:
            ctx.memory.free(self.page_list)
            ctx.memory.free_pages(self.buffer.pages)
            self.buffer, self.page_list, self.length = buffer, page_list, length
            self.buf = self.iova = new["virt_addr"]
        self.pd = pd or self.pd
        self.lkey, self.rkey = result.lkey, result.rkey
        ctx.mrs[self.lkey] = self

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


class FastMR(Resource):
    """A region that work requests register and invalidate (VR-5.17 to VR-5.21).

    ``key`` is its local and its remote key, as last registered or given by the device. ``map`` and
    ``map_over`` give it memory, which nobody can reach before a request of ``reg_wr`` has been
    executed.
    """

    def __init__(self, pd: PD, mrn: int, key: int):
        self.pd, self.mrn, self.key = pd, mrn, key
        self.buffer: PagedBuffer | None = None
        self.iova = self._page_list = 0
        self._own = False

    @classmethod
    async def create(cls, pd: PD, max_pages: int, access: Access = _NO_ACCESS) -> FastMR:
        """Asks the device for a region of at most ``max_pages`` pages."""
        result = await pd.ctx.command(
            ControlCommand.CREATE_MR, pdn=pd.pdn, access_flags=access, max_num_sg=max_pages
        )
        return cls(pd, result.mrn, result.rkey)

    @property
    def lkey(self) -> int:
        """Its key, for SGEs."""
        return self.key

    @property
    def rkey(self) -> int:
        """Its key, for peers."""
        return self.key

    @property
    def length(self) -> int:
        """Bytes of its memory."""
        return self._mapped().size

    async def map(self, length: int, *, offset: int = 0, virt_addr: int | None = None) -> None:
        """Puts ``length`` bytes of new memory in the place of what the region had. ``virt_addr``:
        their address for SGEs and for peers, which lies ``offset`` bytes into a page.
        """
        memory = self.pd.ctx.memory
        pages, page_list = _page_list(memory, length, offset)
        await self._map(PagedBuffer(memory, pages, offset, length), page_list, virt_addr)
        self._own = True

    async def map_over(self, region: MR) -> None:
        """Gives it the memory of ``region``, which must stay as long as this region has it."""
        await self._map(region.buffer, region.page_list)
        self._own = False

    async def _map(self, buffer: PagedBuffer, page_list: int, virt_addr: int | None = None) -> None:
        self.iova = next(_USER_ADDRESSES) + buffer.offset if virt_addr is None else virt_addr
        await self.pd.ctx.command(
            ControlCommand.MAP_MR_SG,
            mrn=self.mrn,
            npages=len(buffer.pages),
            start=self.iova,
            length=buffer.size,
            pages=page_list,
        )
        self._free()
        self.buffer, self._page_list = buffer, page_list

    def reg_wr(self, access: Access, *, wr_id: int = 0, new_tag: bool = True) -> SendWR:
        """A request that registers the region, with another tag in its key unless told so."""
        if new_tag:
            self.key = self.key & ~0xFF | (self.key + 1) & 0xFF
        wr = SendWR(wr_id, WrOpcode.REG_MR)
        wr.set_wr_reg(self.mrn, self.key, access)
        return wr

    def local_inv_wr(self, *, wr_id: int = 0) -> SendWR:
        """A request that invalidates the key."""
        return SendWR(wr_id, WrOpcode.LOCAL_INV, invalidate_rkey=self.key)

    def sge(self, offset: int, length: int) -> SGE:
        """An SGE for a part of the region."""
        return SGE(self.iova + offset, length, self.key)

    def write(self, data: bytes | bytearray | memoryview | Octets, offset: int = 0) -> None:
        """Copies ``data`` into the memory; RdmaError(EINVAL) when it does not fit."""
        self._mapped().write(data, offset)

    def read(self, length: int, offset: int = 0) -> Octets:
        """A copy of ``length`` bytes."""
        return self._mapped().read(length, offset)

    def fill(self, value: int = 0) -> None:
        """Sets every byte."""
        self.write(np.full(self.length, value, np.uint8))

    def _mapped(self) -> PagedBuffer:
        if self.buffer is None:
            raise RdmaError(errno.EINVAL, f"Region {self.mrn} has no memory")
        return self.buffer

    async def close(self) -> None:
        """Deregisters the region and frees its memory."""
        await self.pd.ctx.command(ControlCommand.DEREG_MR, mrn=self.mrn)
        self._free()

    def _free(self) -> None:
        if self.buffer is not None and self._own:
            self.pd.ctx.memory.free(self._page_list)
            self.pd.ctx.memory.free_pages(self.buffer.pages)


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
