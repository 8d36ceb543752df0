"""Shared receive queues: receive requests that several queue pairs take from.

Spec: docs/extensions.md, extension SRQ.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import ExtensionCommand, RdmaFeature, SrqAttrMask
from sim.guest.driver.errors import DeviceError, RdmaError
from sim.guest.verbs.context import PD, Context, Resource
from sim.guest.verbs.cq import CQ
from sim.guest.verbs.mp_wr import MpWr, check_cq, usable
from sim.guest.verbs.work_queue import WorkQueue
from sim.guest.verbs.wr import RecvWR


@dataclass
class SrqAttr:
    """Requests, SGEs in one, and the number of requests below which an event would come."""

    max_wr: int = 100
    max_sge: int = 1
    srq_limit: int = 0


class XRCD(Resource):
    """An XRC domain: targets in it take from the receive queues in it that requests name."""

    def __init__(self, ctx: Context, xrcdn: int):
        self.ctx, self.xrcdn = ctx, xrcdn

    @classmethod
    async def create(cls, ctx: Context) -> XRCD:
        """Allocates a domain. Raises RdmaError: EOPNOTSUPP when the device has none,
        CommandError."""
        if not ctx.device.has(RdmaFeature.XRC):
            raise RdmaError(errno.EOPNOTSUPP, "The device has no XRC")
        return cls(ctx, (await ctx.command(ExtensionCommand.ALLOC_XRCD)).xrcdn)

    async def close(self) -> None:
        """Frees it; CommandError while something is in it."""
        await self.ctx.command(ExtensionCommand.DEALLOC_XRCD, xrcdn=self.xrcdn)


class SRQ(Resource):
    """A shared receive queue. Its requests end in any order.

    One of an XRC domain has ``srq_num``, by which the requests of initiators name it.
    """

    def __init__(
        self, pd: PD, attr: SrqAttr, srqn: int, room: int = 0, *, mp_wr: MpWr | None = None
    ):
        self.mp_wr = mp_wr
        self.pd, self.ctx, self.srqn, self.attr = pd, pd.ctx, srqn, attr
        self.srq_num: int | None = None
        tail = abi.SGE.size * attr.max_sge
        self.queue = WorkQueue(pd.ctx, f"SRQ {srqn}", attr.max_wr, abi.POST_RECV.size + tail, room)

    @classmethod
    async def create(
        cls,
        pd: PD,
        attr: SrqAttr | None = None,
        *,
        room: int = 0,
        xrcd: XRCD | None = None,
        cq: CQ | None = None,
        mp_wr: MpWr | None = None,
    ) -> SRQ:
        """Creates the queue and enables its virtqueue, with ``room`` for so many requests; with
        ``xrcd`` and ``cq`` one that XRC targets of the domain take from. ``mp_wr``: its requests
        take several packets.

        Raises RdmaError: EOPNOTSUPP when the device has no such queues, EINVAL for a domain without
        a CQ, or ``mp_wr`` with one without offsets, CommandError.
        """
        ctx, attr = pd.ctx, attr or SrqAttr()
        _check_offered(ctx)
        fields = {"pdn": pd.pdn, **asdict(attr)}
        if mp_wr is not None:
            mp_wr = usable(ctx, mp_wr)
            fields |= mp_wr.fields()
            if xrcd is not None:
                check_cq(cq)
        if xrcd is None:
            result = await ctx.command(ExtensionCommand.CREATE_SRQ, **fields)
        elif cq is None:
            raise RdmaError(errno.EINVAL, "A receive queue of an XRC domain needs a CQ")
        else:
            result = await ctx.command(
                ExtensionCommand.CREATE_XRC_SRQ, **fields, xrcdn=xrcd.xrcdn, cqn=cq.cqn
            )
        srq, config = cls(pd, attr, result.srqn, room, mp_wr=mp_wr), ctx.device.config
        if xrcd is not None:
            srq.srq_num = result.srq_num
        if not 0 < srq.srqn < config.max_qp:
            raise DeviceError(f"CREATE_SRQ returned srqn {srq.srqn} of {config.max_qp} pairs")
        try:
            await srq.queue.set_up(abi.rq_queue(srq.srqn, config.max_cq), any_order=True)
        except BaseException:
            await ctx.command(ExtensionCommand.DESTROY_SRQ, srqn=srq.srqn)
            raise
        return srq

    async def modify(self, attr: SrqAttr, mask: SrqAttrMask) -> None:
        """Sets the attributes that ``mask`` names.

        RdmaError(EINVAL): a size below what is outstanding, or beyond the room for it.
        """
        if mask & SrqAttrMask.MAX_WR:
            self.queue.check_resize(attr.max_wr)
        await self.ctx.command(
            ExtensionCommand.MODIFY_SRQ,
            srqn=self.srqn,
            attr_mask=mask,
            max_wr=attr.max_wr,
            srq_limit=attr.srq_limit,
        )
        if mask & SrqAttrMask.MAX_WR:
            self.queue.resize(attr.max_wr)

    async def query(self) -> SrqAttr:
        """The attributes as the device has them."""
        return SrqAttr(**await self.ctx.command(ExtensionCommand.QUERY_SRQ, srqn=self.srqn))

    async def close(self) -> None:
        """Destroys it; refused while a QP uses it. Its requests get no completion."""
        await self.ctx.command(ExtensionCommand.DESTROY_SRQ, srqn=self.srqn)
        await self.queue.tear_down()
        self.queue.free()

    async def post_recv(self, requests: RecvWR | Sequence[RecvWR]) -> None:
        """Posts receive requests, with one doorbell for all.

        A bad one ends the list: RdmaError with ``bad_wr``, those before it are posted. EINVAL: too
        many SGEs; ENOMEM: queue full.
        """
        await self.queue.post_all(requests, self._element)

    def _element(self, request: RecvWR) -> bytes:
        if len(request.sg) > self.attr.max_sge:
            raise RdmaError(
                errno.EINVAL, f"{len(request.sg)} SGEs to receive, at most {self.attr.max_sge}"
            )
        return request.pack()


def _check_offered(ctx: Context) -> None:
    if not ctx.device.has(RdmaFeature.SRQ):
        raise RdmaError(errno.EOPNOTSUPP, "The device has no shared receive queues")
