"""Memory regions: scattered pages with a page list that the device reads.

Spec: virtio-rdma VR-3.14 to VR-3.20.
"""

from __future__ import annotations

import errno

import numpy as np

from hdl.abi.enums import Access, ControlCommand, ExtensionCommand, ReregFlags, WrOpcode
from hdl.abi.virtio_rdma import PAGE_SIZE, AnyCommand
from sim.guest.driver.errors import RdmaError
from sim.guest.driver.memory import PagedBuffer
from sim.guest.driver.platform import Octets
from sim.guest.verbs.context import PD, Resource
from sim.guest.verbs.page_table import PageTable
from sim.guest.verbs.user_addresses import user_addresses
from sim.guest.verbs.wr import SGE, SendWR

_NO_ACCESS = Access(0)


def _user_address(pd: PD, length: int, offset: int) -> int:
    return user_addresses(pd.ctx.query_device().max_mr_size).take(length, offset)


class MR(Resource):
    """A user memory region of ``length`` bytes that begins ``offset`` bytes into its first page.

    ``buf`` is its process address and ``iova`` the address in SGEs and for peers: equal unless
    ``virt_addr`` is given or the access flags have ZERO_BASED. Its pages are whatever the guest
    memory hands out, so neighbouring pages of the region are far apart. The page list, ``table``,
    stays in guest memory until the region is closed.
    """

    def __init__(self, pd: PD, buffer: PagedBuffer, table: PageTable, buf: int, iova: int):
        self.pd = pd
        self.buffer = buffer
        self.table = table
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
        levels: int | None = None,
    ) -> MR:
        """Allocates and registers memory; ``levels``: of its page list, by REG_USER_MR_TABLE
        (docs/extensions.md).

        Raises RdmaError: EINVAL for a bad length or offset and what the device refuses, ENOMEM.
        """
        if length < 1 or not 0 <= offset < PAGE_SIZE:
            raise RdmaError(errno.EINVAL, f"A region of {length} bytes from offset {offset}")
        table = PageTable(pd.ctx.memory, length, offset, levels=levels or 1)
        command: AnyCommand = ControlCommand.REG_USER_MR
        more = {}
        if levels is not None:
            command, more = ExtensionCommand.REG_USER_MR_TABLE, {"levels": levels}
        try:
            buf = _user_address(pd, length, offset)
            iova = 0 if access & Access.ZERO_BASED else buf if virt_addr is None else virt_addr
            buffer = PagedBuffer(pd.ctx.memory, table.pages, offset, length)
            mr = cls(pd, buffer, table, buf, iova)
            result = await pd.ctx.command(
                command,
                pdn=pd.pdn,
                access_flags=access,
                start=buf,
                length=length,
                virt_addr=iova,
                pages=table.address,
                npages=len(table.pages),
                **more,
            )
        except BaseException:
            table.close()
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
        levels: int = 1,
    ) -> None:
        """Gives the region what is named (REREG_MR, docs/extensions.md), its keys stay: new memory
        of ``length`` bytes with a page list of ``levels``, another protection domain, other rights.

        Raises RdmaError: EINVAL for what the device refuses; the region is then as it was.
        """
        ctx, flags = self.pd.ctx, ReregFlags(0)
        new: dict[str, int] = {}
        buffer, table = self.buffer, self.table
        if pd is not None:
            flags, new["pdn"] = flags | ReregFlags.PD, pd.pdn
        if access is not None:
            flags, new["access_flags"] = flags | ReregFlags.ACCESS, access
        if length is not None:
            flags |= ReregFlags.TRANSLATION | (ReregFlags.TWO_LEVEL if levels == 2 else 0)
            table = PageTable(ctx.memory, length, offset, levels=levels)
            buffer = PagedBuffer(ctx.memory, table.pages, offset, length)
            buf = _user_address(self.pd, length, offset)
            new |= {"start": buf, "length": length, "virt_addr": buf}
            new |= {"pages": table.address, "npages": len(table.pages)}
        try:
            result = await ctx.command(ExtensionCommand.REREG_MR, mrn=self.mrn, flags=flags, **new)
        except BaseException:
            if length is not None:
                table.close()
            raise
        ctx.mrs.pop(self.lkey, None)
        if length is not None:
            self.table.close()
            self.buffer, self.table, self.length = buffer, table, length
            self.buf = self.iova = new["virt_addr"]
        self.pd = pd or self.pd
        self.lkey, self.rkey = result.lkey, result.rkey
        ctx.mrs[self.lkey] = self

    async def close(self) -> None:
        """Deregisters the region and frees its memory."""
        await self.pd.ctx.command(ControlCommand.DEREG_MR, mrn=self.mrn)
        self.pd.ctx.mrs.pop(self.lkey, None)
        self.table.close()

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
        self.iova = 0
        self._own: PageTable | None = None  # of memory that is nobody else's

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
        table = PageTable(self.pd.ctx.memory, length, offset)
        buffer = PagedBuffer(self.pd.ctx.memory, table.pages, offset, length)
        await self._map(buffer, table, virt_addr)
        self._own = table

    async def map_over(self, region: MR) -> None:
        """Gives it the memory of ``region``, which must stay as long as this region has it."""
        await self._map(region.buffer, region.table)

    async def _map(
        self, buffer: PagedBuffer, table: PageTable, virt_addr: int | None = None
    ) -> None:
        if virt_addr is None:
            virt_addr = _user_address(self.pd, buffer.size, buffer.offset)
        self.iova = virt_addr
        await self.pd.ctx.command(
            ControlCommand.MAP_MR_SG,
            mrn=self.mrn,
            npages=len(buffer.pages),
            start=self.iova,
            length=buffer.size,
            pages=table.address,
        )
        self._free()
        self.buffer = buffer

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
        if self._own is not None:
            self._own.close()
            self._own = None


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
