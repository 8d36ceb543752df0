"""The control commands about shared receive queues (docs/extensions.md).

A shared receive queue has the receive virtqueue of a queue pair, which is then no QP's, and the
pair's index as its number. What has been fetched of it is the hardware's business, as with the
receive queue of a QP.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from firmware.device import Operations
from firmware.objects import Limits, Objects, Refused, Srq
from firmware.resize_commands import ResizeCommands
from hdl.abi.enums import RdmaFeature, SrqAttrMask
from hdl.abi.layout import Values

_KNOWN_MASK = sum(bit.value for bit in SrqAttrMask)


class SrqCommands:
    """CREATE, MODIFY, QUERY and DESTROY_SRQ; ``objects`` gives the device's objects."""

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
        objects = self._objects()
        pd = objects.pds.get(v.pdn)
        self._limits.check("max_srq_wr", v.max_wr, 1)
        self._limits.check("max_srq_sge", v.max_sge)
        await self._check_limit(v.srq_limit, v.max_wr)
        if any(v.reserved):
            raise Refused("reserved fields are not 0")
        number = objects.qps.lend()
        objects.srqs.add(lambda: Srq(pd, v.max_wr, v.max_sge, limit=v.srq_limit), number)
        pd.users += 1
        return {"srqn": number}

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
        await self._hardware.drop_queue(self._limits.config.rq_queue(srq.number))
        srq.pd.users -= 1
        objects.srqs.remove(srq.number)
        objects.qps.give_back(srq.number)
