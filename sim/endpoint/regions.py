"""Memory of an endpoint's session: regions, and the indirect keys that name pieces of them."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any

from hdl.abi.enums import WrOpcode
from hdl.abi.mkeys import LayoutFlags
from hdl.abi.virtio_rdma import PAGE_SIZE
from sim.endpoint.fields import BadRequest
from sim.guest.driver.errors import RdmaError
from sim.guest.verbs import MR, PD, SGE, Context, FastMR, Interleaved, Mkey, SendWR

__all__ = ["Regions"]


class Regions:
    """Those of a session, by numbers of which none is given twice. An indirect key has a number as
    a region has, and none of its own bytes."""

    def __init__(self, context: Context):
        self._context = context
        self._mrs: dict[int, MR | FastMR | Mkey] = {}
        self._numbers = count()

    async def register(self, pd: PD, fields: SimpleNamespace) -> dict[str, Any]:
        """A region as ``reg_mr`` asks for it; what that replies. RdmaError as ``MR.create``."""
        self._need_room()
        if fields.length > self._context.memory.bytes.size:
            raise RdmaError(errno.ENOMEM, f"{fields.length} bytes are more than the guest's memory")
        offset = (fields.va or 0) % PAGE_SIZE
        mr: MR | FastMR
        if fields.fast:
            if fields.va is not None:
                raise BadRequest("reg_mr: va and fast exclude each other")
            mr = await FastMR.create(pd, -(-fields.length // PAGE_SIZE), fields.access)
            await mr.map(fields.length)
        else:
            mr = await MR.create(
                pd, fields.length, fields.access, offset=offset, virt_addr=fields.va
            )
        return {"mr": self._keep(mr), "addr": mr.iova, "lkey": mr.lkey, "rkey": mr.rkey}

    async def create_key(self, pd: PD, fields: SimpleNamespace) -> dict[str, Any]:
        """An indirect key as ``create_mkey`` asks for it; what that replies. RdmaError as
        ``Mkey.create``."""
        self._need_room()
        mkey = await Mkey.create(pd, fields.max_entries, remote_invalidate=fields.remote_invalidate)
        return {
            "mr": self._keep(mkey),
            "lkey": mkey.lkey,
            "rkey": mkey.rkey,
            "max_entries": mkey.max_entries,
        }

    def _need_room(self) -> None:
        if len(self._mrs) >= self._context.query_device().max_mr:
            raise RdmaError(errno.ENOMEM, f"All {len(self._mrs)} regions are in use")

    def _keep(self, mr: MR | FastMR | Mkey) -> int:
        number = next(self._numbers)
        self._mrs[number] = mr
        return number

    async def close(self, number: int) -> None:
        """CommandError while the device needs it."""
        mr = self.get(number)
        await mr.close()
        if not isinstance(mr, Mkey):
            mr.fill(0)  # whoever gets these pages next expects them so
        del self._mrs[number]

    def get(self, number: int) -> MR | FastMR | Mkey:
        """The region or the indirect key of that number; BadRequest."""
        if number not in self._mrs:
            raise BadRequest(f"There is no mr {number}")
        return self._mrs[number]

    def part(self, number: int, offset: int, length: int) -> MR | FastMR:
        """The region, if it has those bytes; BadRequest."""
        mr = self.get(number)
        if isinstance(mr, Mkey):
            raise BadRequest(f"mr {number} is an indirect key: the bytes are those of its regions")
        if offset + length > mr.length:
            raise BadRequest(
                f"{length} bytes at offset {offset} are not within the {mr.length} of mr {number}",
                errno.ERANGE,
            )
        return mr

    def sges(self, parts: Sequence[tuple[int, int, int]]) -> list[SGE]:
        """Parts of regions and of layouts as SGEs; BadRequest."""
        found = []
        for number, offset, length in parts:
            sge = self.get(number).sge(offset, length)
            if not 0 <= sge.addr < 1 << 64:
                raise BadRequest(f"sge: offset {offset} of mr {number} is no address")
            found.append(sge)
        return found

    def layout(self, fields: SimpleNamespace) -> SendWR:
        """The request of ``post_send`` that gives an indirect key a layout; BadRequest."""
        mkey = None if fields.mr is None else self.get(fields.mr)
        if not isinstance(mkey, Mkey):
            raise BadRequest(f"post_send: {fields.opcode.name} needs mr, one of create_mkey")
        sges = self.sges(fields.sge)
        flags = LayoutFlags.CHECK_FREE if fields.check_free else LayoutFlags(0)
        more: dict[str, Any] = {"wr_id": fields.wr_id, "flags": flags, "send_flags": fields.flags}
        if fields.opcode == WrOpcode.MKEY_LIST:
            return mkey.list_wr(sges, fields.access, **more)
        if len(fields.skip) != len(sges):
            raise BadRequest("post_send: MKEY_INTERLEAVED needs a skip for each sge")
        rows = [
            Interleaved(sge.addr, sge.length, skip, sge.lkey)
            for sge, skip in zip(sges, fields.skip, strict=True)
        ]
        return mkey.interleaved_wr(rows, fields.repeat, fields.access, **more)
