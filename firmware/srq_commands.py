"""The control commands about shared receive queues (docs/extensions.md).

A shared receive queue has the receive virtqueue of a queue pair, which is then no QP's, and the
pair's index as its number. What has been fetched of it is the hardware's business, as with the
receive queue of a QP.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from firmware.device import Operations
from firmware.objects import Cq, Limits, Objects, Refused, Srq, Xrcd
from firmware.pieces import asked_pieces, row_fields
from firmware.resize_commands import ResizeCommands
from hdl.abi.enums import RdmaFeature, SrqAttrMask
from hdl.abi.layout import Values
from hdl.wire.opcodes import XRC_QUEUE

_KNOWN_MASK = sum(bit.value for bit in SrqAttrMask)


class SrqCommands:
    """CREATE, MODIFY, QUERY and DESTROY_SRQ, and those of XRC; ``objects`` gives the device's
    objects."""

    def __init__(
        self,
        hardware: Operations,
        limits: Limits,
        objects: Callable[[], Objects],
        negotiated: Callable[[RdmaFeature], Awaitable[bool]],
        resize: ResizeCommands,
    ):
        self._hardware, self._limits, self._objects = hardware, limits, objects
        self._negotiated, self._resize = negotiated, resize

    async def _check_limit(self, srq_limit: int, max_wr: int) -> None:
        if srq_limit and not await self._negotiated(RdmaFeature.EVENTS):
            raise Refused(f"srq_limit cannot be {srq_limit}: there are no events")
        if srq_limit > max_wr:
            raise Refused(f"srq_limit {srq_limit} of {max_wr} requests")

    async def create(self, v: Values) -> dict[str, Any]:
        """CREATE_SRQ: takes the highest free pair, so that the numbers of QPs stay low."""
        return {"srqn": (await self._create(v)).number}

    async def _create(self, v: Values, xrcd: Xrcd | None = None, cq: Cq | None = None) -> Srq:
        objects = self._objects()
        pd = objects.pds.get(v.pdn)
        self._limits.check("max_srq_wr", v.max_wr, 1)
        self._limits.check("max_srq_sge", v.max_sge)
        await self._check_limit(v.srq_limit, v.max_wr)
        pieces = await asked_pieces(self._limits, v, self._negotiated)
        if pieces is None and (v.mp_wr_buffer or v.mp_wr_align_log2):
            raise Refused("The requests of a receive queue take one message each")
        number = objects.qps.lend()
        made = Srq(pd, v.max_wr, v.max_sge, limit=v.srq_limit, xrcd=xrcd, cq=cq, pieces=pieces)
        objects.srqs.add(lambda: made, number)
        for used in (pd, xrcd, cq):
            if used is not None:
                used.users += 1
        return made

    async def create_xrc(self, v: Values) -> dict[str, Any]:
        """CREATE_XRC_SRQ: one that packets name, by a number other than the pair's last ones."""
        objects = self._objects()
        xrcd, cq = objects.xrcds.get(v.xrcdn), objects.cqs.get(v.cqn)
        srq = await self._create(v, xrcd, cq)
        srq.srq_num = objects.next_qpn(srq.number)
        objects.qps.touched.add(srq.number)  # the generation of its number
        row = {"type": XRC_QUEUE, "qpn": srq.srq_num, "pd": xrcd.number}
        row |= {"recv_pd": srq.pd.number, "recv_cq": cq.number, **row_fields(srq.pieces, None)}
        await self._hardware.write_row("qp_cfg", srq.number, row)
        return {"srqn": srq.number, "srq_num": srq.srq_num}

    async def alloc_domain(self, v: Values) -> dict[str, Any]:
        """ALLOC_XRCD."""
        return {"xrcdn": self._objects().xrcds.add(Xrcd).number}

    async def dealloc_domain(self, v: Values) -> None:
        """DEALLOC_XRCD: refused while something is in it."""
        objects = self._objects()
        xrcd = objects.xrcds.get(v.xrcdn)
        if xrcd.users:
            raise Refused(f"XRC domain {xrcd.number} is used by {xrcd.users} objects")
        objects.xrcds.remove(xrcd.number)

    async def modify(self, v: Values) -> None:
        """MODIFY_SRQ: the size, and the limit, whose event comes once."""
        srq = self._objects().srqs.get(v.srqn)
        max_wr, limit = srq.max_wr, srq.limit
        if v.attr_mask & ~_KNOWN_MASK:
            raise Refused(f"attr_mask {v.attr_mask:#x} has unknown bits")
        if v.attr_mask & SrqAttrMask.MAX_WR:
            if not await self._negotiated(RdmaFeature.RESIZE):
                raise Refused("An SRQ cannot be resized")
            await self._resize.check_srq(srq, v.max_wr)
            max_wr = v.max_wr
        if v.attr_mask & SrqAttrMask.LIMIT:
            limit = v.srq_limit
        await self._check_limit(limit, max_wr)
        srq.max_wr, srq.limit = max_wr, limit

    async def query(self, v: Values) -> dict[str, Any]:
        """QUERY_SRQ: what it was created with, and its limit until the event."""
        srq = self._objects().srqs.get(v.srqn)
        return {"max_wr": srq.max_wr, "max_sge": srq.max_sge, "srq_limit": srq.limit}

    async def destroy(self, v: Values) -> None:
        """DESTROY_SRQ: refused while QPs use it; its WQEs get no completion."""
        objects = self._objects()
        srq = objects.srqs.get(v.srqn)
        if srq.users:
            raise Refused(f"SRQ {srq.number} is used by {srq.users} QPs")
        if srq.xrcd is not None and srq.cq is not None:
            # No packet finds it any more, and those that have found it are done with.
            await self._hardware.write_row("qp_cfg", srq.number, {})
            await self._hardware.drain()
            srq.cq.users -= 1
            srq.xrcd.users -= 1
        await self._hardware.drop_queue(self._limits.config.rq_queue(srq.number))
        srq.pd.users -= 1
        objects.srqs.remove(srq.number)
        objects.qps.give_back(srq.number)
