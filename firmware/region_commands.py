"""The control commands about memory regions.

A region of CREATE_MR is FREE until a REG_MR work request makes its key valid (VR-5.21). From then
on the hardware may change the type, the tag and the access of its row, so MAP_MR_SG reads the tag
first (``hdl/context/region_keys.py``). It leaves the region FREE: no key can reach its new pages
before the next REG_MR.
Spec: virtio-rdma VR-3.13 to VR-3.20, E-22.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from firmware.device import Operations
from firmware.hints import Hints
from firmware.objects import Limits, Mr, Objects, Refused
from firmware.qp import placement_access
from firmware.window_commands import WindowCommands
from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import OPTIONAL_ACCESS, Access, RdmaFeature, ReregFlags
from hdl.abi.layout import Values
from hdl.abi.virtio_rdma import PAGE_ENTRY_SIZE, PAGE_SHIFTS, TABLE_PAGE_ENTRIES
from hdl.csr.map import row_map

_REMOTE = Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
_NEED_LOCAL_WRITE = Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
#: Access flags that a region may ask for.
_REGION_ACCESS = OPTIONAL_ACCESS | (
    Access.LOCAL_WRITE | _REMOTE | Access.MW_BIND | Access.ZERO_BASED | Access.HUGETLB
)
#: Rights of FLUSH, each in a field of the row.
_FLUSHES = {
    "flush.visible": Access.FLUSH_GLOBAL,
    "flush.persistent": Access.FLUSH_PERSISTENT,
}
#: Access bits that a row holds.
_ROW_ACCESS = Access.LOCAL_WRITE | _REMOTE

#: A row's fields that say what may be done with the region.
_RIGHTS = ("access", *_FLUSHES)
#: A row's fields that say where its bytes are.
_MAPPING = ("va", "length", "block", "start", "page_size", "two_level")
#: Bytes of memory that the hardware reads of a page list at a time.
_BLOCK = 64
#: All that REREG_MR can change.
_REREG = ReregFlags.TRANSLATION | ReregFlags.PD | ReregFlags.ACCESS | ReregFlags.TWO_LEVEL

#: Values of ``MrRow.type``.
_MR_DMA, _MR_PAGES, _MR_FREE = 1, 2, 4


def _bind(flags: int) -> int:
    """Whether windows may be bound to a region."""
    return int(bool(flags & Access.MW_BIND))


def _everything() -> int:
    """``MrRow.length`` of a DMA region: all ones, whatever its width."""
    return (1 << row_map("mr").fields["length"].width) - 1


def _remote(row: dict[str, int]) -> bool:
    """Whether a region has rights for peers."""
    return bool(row["access"] & _REMOTE or any(row.get(name) for name in _FLUSHES))


def _page_size(shift: int) -> int:
    """The number of a page size that a command names (docs/extensions.md)."""
    if shift and shift not in PAGE_SHIFTS:
        raise Refused(f"page_shift {shift} is not supported")
    return PAGE_SHIFTS.index(shift or PAGE_SHIFTS[0])


class RegionCommands:
    """GET_DMA_MR, CREATE_MR, MAP_MR_SG, REG_USER_MR, DEREG_MR and their extensions; ``objects``
    gives the device's objects, ``negotiated`` says whether the driver has taken a feature."""

    def __init__(
        self,
        hardware: Operations,
        limits: Limits,
        hints: Hints,
        objects: Callable[[], Objects],
        negotiated: Callable[[RdmaFeature], Awaitable[bool]],
        windows: WindowCommands,
    ):
        self._hardware, self._limits, self._hints = hardware, limits, hints
        self._objects, self._negotiated, self._windows = objects, negotiated, windows

    async def get_dma(self, v: Values) -> dict[str, Any]:
        """GET_DMA_MR (VR-3.20)."""
        pd = self._objects().pds.get(v.pdn)
        rights = await self._rights(v.access_flags)
        if v.access_flags & Access.ZERO_BASED:
            raise Refused("a DMA region has the bus's addresses")
        row = {"type": _MR_DMA, "length": _everything()} | rights
        return await self._add(Mr(pd), row, remote=_remote(rights))

    async def register(self, v: Values) -> dict[str, Any]:
        """REG_USER_MR (VR-3.14 to VR-3.17)."""
        return await self._register(v, 0)

    async def register_pages(self, v: Values) -> dict[str, Any]:
        """REG_USER_MR_PAGES (docs/extensions.md): the same with pages of a chosen size."""
        return await self._register(v, _page_size(v.page_shift))

    async def register_table(self, v: Values) -> dict[str, Any]:
        """REG_USER_MR_TABLE (docs/extensions.md): the same with a page list of one level or two."""
        await self._may_have_pages(v)
        if v.levels not in (1, 2):
            raise Refused(f"levels {v.levels} of a page list")
        return await self._register(v, _page_size(v.page_shift), two_level=v.levels == 2)

    async def _register(
        self, v: Values, page_size: int, *, two_level: bool = False
    ) -> dict[str, Any]:
        pd = self._objects().pds.get(v.pdn)
        rights = await self._rights(v.access_flags)
        base = 0 if v.access_flags & Access.ZERO_BASED else v.virt_addr
        row = {"type": _MR_PAGES, "bind": _bind(v.access_flags)} | rights
        row |= self._mapping(v, base, page_size, two_level=two_level)
        return await self._add(Mr(pd), row, remote=_remote(rights))

    async def create(self, v: Values) -> dict[str, Any]:
        """CREATE_MR: a region without pages and without a valid key (VR-3.13, VR-3.18)."""
        self._extensions()
        pd = self._objects().pds.get(v.pdn)
        await self._rights(v.access_flags)
        self._limits.check("max_fast_reg_page_list_len", v.max_num_sg, 1)
        mr = Mr(pd, pages=v.max_num_sg, zero_based=bool(v.access_flags & Access.ZERO_BASED))
        return await self._add(mr, {"type": _MR_FREE}, remote=True)

    async def map(self, v: Values) -> dict[str, Any]:
        """MAP_MR_SG: the pages that the next REG_MR makes accessible, from address ``start`` on."""
        self._extensions()
        mr = self._objects().mrs.get(v.mrn)
        if not mr.pages:
            raise Refused(f"MR {mr.number} is not from CREATE_MR")
        if v.npages > mr.pages:
            raise Refused(f"{v.npages} pages in a region of {mr.pages}")
        mapping = self._mapping(v, 0 if mr.zero_based else v.start)
        tag = (await self._hardware.read_row("mr", mr.number))["tag"]
        row = {"type": _MR_FREE, "pd": mr.pd.number, "tag": tag} | mapping
        await self._hardware.write_row("mr", mr.number, row)
        await self._hardware.invalidate(mr.number)
        return {"npages": v.npages}

    async def deregister(self, v: Values) -> None:
        """DEREG_MR: no access with its key is under way any more when this is answered."""
        mr = self._region(v.mrn)
        await self._windows.check_unbound(mr)
        await self._hardware.write_row("mr", mr.number, {})
        await self._hardware.invalidate(mr.number)
        mr.pd.users -= 1
        self._objects().mrs.remove(mr.number)

    async def reregister(self, v: Values) -> dict[str, Any]:
        """REREG_MR (docs/extensions.md): what ``flags`` name is changed, and the keys stay."""
        mr = self._region(v.mrn)
        if not v.flags or v.flags & ~int(_REREG):
            raise Refused(f"flags {v.flags:#x}")
        await self._may_have_pages(v)
        two_level = bool(v.flags & ReregFlags.TWO_LEVEL)
        if two_level and not await self._negotiated(RdmaFeature.TWO_LEVEL):
            raise Refused("TWO_LEVEL was not negotiated")
        if two_level and not v.flags & ReregFlags.TRANSLATION:
            raise Refused("TWO_LEVEL without TRANSLATION")
        row = await self._windows.row(mr)
        if row["type"] != _MR_PAGES:
            raise Refused(f"MR {mr.number} is not from REG_USER_MR")
        new = {name: row[name] for name in ("type", *_RIGHTS, "bind", *_MAPPING)}
        pd = self._objects().pds.get(v.pdn) if v.flags & ReregFlags.PD else mr.pd
        zero_based = False
        if v.flags & ReregFlags.ACCESS:
            new |= await self._rights(v.access_flags) | {"bind": _bind(v.access_flags)}
            zero_based = bool(v.access_flags & Access.ZERO_BASED)
        if v.flags & ReregFlags.TRANSLATION:
            base = 0 if zero_based else v.virt_addr
            size = _page_size(v.page_shift)
            new |= self._mapping(v, base, size, two_level=two_level)
        elif zero_based:
            raise Refused("ZERO_BASED changes the addresses, and TRANSLATION is not asked for")
        await self._windows.check_unbound(mr)
        # The key is not valid while the old pages are forgotten, so none are reached afterwards.
        self._windows.keep(mr, row)
        await self._hardware.write_row("mr", mr.number, {})
        await self._hardware.invalidate(mr.number)
        new |= {"pd": pd.number, "tag": row["tag"]}
        await self._hardware.write_row("mr", mr.number, new)
        mr.pd.users -= 1
        pd.users += 1
        mr.pd, mr.kept = pd, None
        key = mr.number << abi.KEY_TAG_BITS | row["tag"]
        return {"lkey": key, "rkey": key if _remote(new) else 0}

    async def _rights(self, flags: int) -> dict[str, int]:
        """The row's fields of rights for a region's flags (VR-3.19, E-22, docs/extensions.md)."""
        known = _REGION_ACCESS | await placement_access(self._limits, self._negotiated)
        if flags & ~int(known):
            raise Refused(f"access flags {flags:#x} are not supported")
        if flags & _NEED_LOCAL_WRITE and not flags & Access.LOCAL_WRITE:
            raise Refused("remote write or atomic access needs local write access")
        flushes = {name: int(bool(flags & flag)) for name, flag in _FLUSHES.items()}
        return {"access": flags & int(_ROW_ACCESS)} | flushes

    def _region(self, number: int) -> Mr:
        """The region with this number, which no window has."""
        mr = self._objects().mrs.get(number)
        if mr.window is not None:
            raise Refused(f"MR {number} is a window")
        return mr

    def _extensions(self) -> None:
        if not self._limits.config.fast_registration:
            raise Refused("MEM_MGT_EXTENSIONS is not offered (VR-3.13)")

    async def _may_have_pages(self, v: Values) -> None:
        if v.page_shift and not await self._negotiated(RdmaFeature.PAGE_SIZES):
            raise Refused("page_shift is reserved without PAGE_SIZES")

    def _mapping(
        self, v: Values, base: int, page_size: int = 0, *, two_level: bool = False
    ) -> dict[str, int]:
        """A row's fields for a page list; ``base``: address of the first byte in SGEs;
        ``page_size``: number of the size of its pages."""
        self._limits.check("max_mr_size", v.length, 1)
        page = 1 << PAGE_SHIFTS[page_size]
        offset = v.start % page
        if v.npages != -(-(offset + v.length) // page):
            raise Refused(f"{v.npages} pages for {v.length} bytes from offset {offset}")
        # Bytes of memory that an entry of the list at ``pages`` stands for.
        each = page * TABLE_PAGE_ENTRIES if two_level else page
        entries = -(-v.npages * page // each)
        for name, first, size in (
            ("virt_addr", base, v.length),
            ("pages", v.pages, entries * PAGE_ENTRY_SIZE),
        ):
            if first + size > 1 << self._limits.config.address_bits:
                raise Refused(f"{name} {first:#x} + {size} wraps around")
        if v.pages % PAGE_ENTRY_SIZE:
            raise Refused(f"pages {v.pages:#x} is not aligned to {PAGE_ENTRY_SIZE}")
        block, within = divmod(v.pages, _BLOCK)
        return {
            "va": base,
            "length": v.length,
            "block": block,
            "start": within // PAGE_ENTRY_SIZE * each + offset,
            "page_size": page_size,
            "two_level": int(two_level),
        }

    async def _add(self, mr: Mr, row: dict[str, int], *, remote: bool) -> dict[str, Any]:
        """The region with its keys; ``remote``: it has one for peers."""
        objects = self._objects()
        key = self._hints.keys.popleft() if self._hints.keys else None
        number = None if key is None else key >> abi.KEY_TAG_BITS
        objects.mrs.add(lambda: mr, number)
        if key is None:
            key = mr.number << abi.KEY_TAG_BITS | objects.next_tag(mr.number)
        mr.pd.users += 1
        tag = key & (1 << abi.KEY_TAG_BITS) - 1
        row |= {"pd": mr.pd.number, "tag": tag}
        await self._hardware.write_row("mr", mr.number, row)
        return {"mrn": mr.number, "lkey": key, "rkey": key if remote else 0}
