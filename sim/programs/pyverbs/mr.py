"""Memory regions of the process's memory, and memory windows."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from hdl.abi.enums import Access, ControlCommand, ExtensionCommand, MwType, ReregFlags
from sim.guest.driver.errors import RdmaError
from sim.guest.verbs import MW as GuestMW
from sim.programs.cards import Card
from sim.programs.memory import UserPages
from sim.programs.pyverbs import enums, mem_alloc
from sim.programs.pyverbs.absent import refusing
from sim.programs.pyverbs.base import PyverbsCM, ask, show
from sim.programs.pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError
from sim.programs.pyverbs.utils import name_of

__all__ = ["MR", "MW", "DMMR", "DmaBufMR", "MWBind", "MWBindInfo", "mwtype2str"]

DMMR: Any = refusing("DMMR")
DmaBufMR: Any = refusing("DmaBufMR")

_PAGE = 4096
_HUGE_PAGE = 2 << 20
#: Flags that only say how the memory is allocated or used, and that a card need not know.
_HINTS = enums.IBV_ACCESS_HUGETLB | enums.IBV_ACCESS_RELAXED_ORDERING
_WRITING = enums.IBV_ACCESS_REMOTE_WRITE | enums.IBV_ACCESS_REMOTE_ATOMIC


@dataclass
class Registration:
    """A region as the card has it. ``pages``: its page list, which the card reads when it likes."""

    mrn: int
    lkey: int
    rkey: int
    address: int
    length: int
    pages: UserPages


def rights(access: int) -> Access:
    """Flags as the card takes them. RdmaError: EOPNOTSUPP, EINVAL."""
    if access & enums.IBV_ACCESS_ON_DEMAND:
        raise RdmaError(errno.EOPNOTSUPP, "No paging on demand")
    if access & _WRITING and not access & enums.IBV_ACCESS_LOCAL_WRITE:
        raise RdmaError(errno.EINVAL, "Peers may write, and the card may not")
    return Access(access & ~_HINTS)


async def register(card: Card, pdn: int, address: int, length: int, access: int) -> Registration:
    """REG_USER_MR for memory of this process, which is pinned. One key is for peers too, whose
    rights may come later."""
    flags = rights(access)
    card.pinned.pin(address, length)
    pages = UserPages(card.context.memory, address, length)
    try:
        result = await card.context.command(
            ControlCommand.REG_USER_MR,
            pdn=pdn,
            access_flags=flags,
            start=address,
            length=length,
            virt_addr=0 if flags & Access.ZERO_BASED else address,
            pages=pages.address,
            npages=pages.count,
        )
    except BaseException:
        release(card, address, length, pages)
        raise
    rkey = result.rkey or result.lkey
    return Registration(result.mrn, result.lkey, rkey, address, length, pages)


def release(card: Card, address: int, length: int, pages: UserPages) -> None:
    """Unpin memory, and free its list."""
    pages.close()
    card.pinned.unpin(address, length)


async def deregister(card: Card, region: Registration) -> None:
    """DEREG_MR."""
    await card.context.command(ControlCommand.DEREG_MR, mrn=region.mrn)
    release(card, region.address, region.length, region.pages)


async def reregister(card: Card, region: Registration, flags: int, **new: int) -> None:
    """REREG_MR: ``pdn``, ``access``, or ``address`` and ``length``, as ``flags`` say."""
    fields: dict[str, Any] = {}
    pages = None
    if flags & ReregFlags.PD:
        fields["pdn"] = new["pdn"]
    if flags & ReregFlags.ACCESS:
        fields["access_flags"] = rights(new["access"])
    if flags & ReregFlags.TRANSLATION:
        address, length = new["address"], new["length"]
        if not length:
            raise RdmaError(errno.EINVAL, "A region of no bytes")
        card.pinned.pin(address, length)
        pages = UserPages(card.context.memory, address, length)
        fields |= {"start": address, "length": length, "virt_addr": address}
        fields |= {"pages": pages.address, "npages": pages.count}
    try:
        command = ExtensionCommand.REREG_MR
        result = await card.context.command(command, mrn=region.mrn, flags=flags, **fields)
    except BaseException:
        if pages is not None:
            release(card, address, length, pages)
        raise
    if pages is not None:
        release(card, region.address, region.length, region.pages)
        region.address, region.length, region.pages = address, length, pages
    region.lkey, region.rkey = result.lkey, result.rkey or result.lkey


class MR(PyverbsCM):
    """A region of ``length`` bytes: of the program's memory at ``address``, or of new memory.

    With ``handle`` one that another context has made.
    """

    rank = 2

    def __init__(
        self,
        creator: Any,
        length: float = 0,
        access: int = 0,
        address: int | None = None,
        implicit: bool = False,
        **kwargs: Any,
    ):
        super().__init__()
        self.pd = creator
        self.card: Card = creator.card
        self._give_back: Callable[[], None] | None = None
        self._imported = "handle" in kwargs
        if self._imported:
            found = self.card.mrs.get(kwargs["handle"])
            if found is None:
                raise PyverbsRDMAError("Failed to import MR", errno.EINVAL)
            self.region: Registration = found
            self._address = int(address or 0)
        else:
            self._register(int(length), access, address, implicit)
        self._opened(self.pd)

    def _register(self, length: int, access: int, address: int | None, implicit: bool) -> None:
        failed = f"Failed to register a MR. length: {length}, access flags: {int(access)}"
        if implicit:
            raise PyverbsRDMAError(failed, errno.EOPNOTSUPP)
        if length < 1:
            raise PyverbsRDMAError(failed, errno.EINVAL)
        if address is None:
            address = self._allocate(length, access)
        self._address = address
        work = register(self.card, self.pd.guest.pdn, address, length, access)
        try:
            self.region = ask(self.card, work, failed)
        except PyverbsRDMAError:
            self._free()
            raise
        self.card.mrs[self.handle] = self.region

    def _allocate(self, length: int, access: int) -> int:
        """New memory, zero."""
        if access & enums.IBV_ACCESS_HUGETLB:
            size = -(-length // _HUGE_PAGE) * _HUGE_PAGE
            flags = mem_alloc.MAP_ANONYMOUS_ | mem_alloc.MAP_PRIVATE_ | mem_alloc.MAP_HUGETLB_
            address = mem_alloc.mmap(length=size, flags=flags)
            self._give_back = partial(mem_alloc.munmap, address, size)
        else:
            address = mem_alloc.posix_memalign(length, _PAGE)
            self._give_back = partial(mem_alloc.free, address)
        return address

    def _free(self) -> None:
        """Give memory back that was allocated for the region."""
        if self._give_back is not None:
            self._give_back()
            self._give_back = None

    @property
    def buf(self) -> int:
        """The address of its memory in this process."""
        return self._address

    @property
    def lkey(self) -> int:
        """Its key for SGEs."""
        return self.region.lkey

    @property
    def rkey(self) -> int:
        """Its key for peers."""
        return self.region.rkey

    @property
    def length(self) -> int:
        """Bytes."""
        return self.region.length

    @property
    def handle(self) -> int:
        """What another context imports it by."""
        return self.region.mrn

    def write(self, data: str | bytes, length: int, offset: int = 0) -> None:
        """Copies ``length`` bytes into the region; PyverbsError when they do not fit."""
        octets = data.encode() if isinstance(data, str) else bytes(data)
        if not 0 <= length <= len(octets) or self._beyond(length, offset):
            raise PyverbsError(f"{length} bytes at {offset} of a region of {self.length}")
        ctypes.memmove(self.buf + offset, octets, length)

    def read(self, length: int, offset: int) -> bytes:
        """A copy of bytes of the region; PyverbsError when they are not all in it."""
        if length < 0 or self._beyond(length, offset):
            raise PyverbsError(f"{length} bytes at {offset} of a region of {self.length}")
        return ctypes.string_at(self.buf + offset, length)

    def _beyond(self, length: int, offset: int) -> bool:
        return offset < 0 or offset + length > self.length

    def rereg(
        self, flags: int, pd: Any = None, addr: int = 0, length: int = 0, access: int = 0
    ) -> None:
        """Gives it what ``flags`` name: a domain, memory at ``addr``, rights. Its keys stay."""
        new = {"access": access, "address": addr, "length": length}
        old = range(self.buf, self.buf + self.length)
        new["pdn"] = 0 if pd is None else pd.guest.pdn
        work = reregister(self.card, self.region, flags, **new)
        ask(self.card, work, "Failed to rereg MR")
        if flags & enums.IBV_REREG_MR_CHANGE_TRANSLATION:
            if addr not in old:  # a part of it may stay the region's
                self._free()
            self._address = addr
        if flags & enums.IBV_REREG_MR_CHANGE_PD:
            self.pd._children.discard(self)
            self.pd = pd
            self._opened(pd)

    def unimport(self) -> None:
        """Leaves an imported region to its owner."""
        self.close()

    def _destroy(self) -> None:
        if self._imported:
            return
        ask(self.card, deregister(self.card, self.region), "Failed to dereg MR")
        self.card.mrs.pop(self.handle, None)
        self._free()

    def __str__(self) -> str:
        return show(lkey=self.lkey, rkey=self.rkey, length=self.length, buf=self.buf)


class MWBindInfo(PyverbsCM):
    """The part of a region that a window is bound to, and the rights that it gives."""

    def __init__(self, mr: MR, addr: int, length: int, mw_access_flags: int):
        super().__init__()
        self.mr, self.addr, self.length = mr, addr, length
        self.mw_access_flags = int(mw_access_flags)


class MWBind(PyverbsCM):
    """A request that binds a window of type 1."""

    def __init__(self, info: MWBindInfo, send_flags: int, wr_id: int = 0):
        super().__init__()
        self.info, self.send_flags, self.wr_id = info, send_flags, wr_id


class MW(PyverbsCM):
    """A memory window."""

    rank = 1

    def __init__(self, pd: Any, mw_type: int):
        super().__init__()
        self.pd, self.card, self.type = pd, pd.card, mw_type

        async def create() -> GuestMW:
            return await GuestMW.create(pd.guest, MwType(mw_type))

        if mw_type not in list(enums.ibv_mw_type):
            raise PyverbsRDMAError("Failed to allocate MW", errno.EINVAL)
        self.guest: GuestMW = ask(self.card, create(), "Failed to allocate MW")
        self._opened(pd)

    @property
    def rkey(self) -> int:
        """Its key."""
        return self.guest.key

    @property
    def handle(self) -> int:
        """Its number."""
        return self.guest.mwn

    def _destroy(self) -> None:
        ask(self.card, self.guest.close(), "Failed to dealloc MW")


def mwtype2str(mw_type: int) -> str:
    """1 or 2."""
    return name_of("ibv_mw_type", "IBV_MW_TYPE_", mw_type)
