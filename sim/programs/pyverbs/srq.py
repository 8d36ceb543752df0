"""Shared receive queues."""

from __future__ import annotations

import errno
from typing import Any

from hdl.abi.enums import SrqAttrMask
from sim.guest.verbs import SRQ as GuestSRQ
from sim.guest.verbs import SrqAttr as GuestSrqAttr
from sim.programs.pyverbs import enums
from sim.programs.pyverbs.absent import refusing
from sim.programs.pyverbs.base import PyverbsCM, PyverbsObject, ask, show
from sim.programs.pyverbs.mp_wr import IBV_SRQ_INIT_ATTR_MP_WR, asked
from sim.programs.pyverbs.pyverbs_error import PyverbsRDMAError
from sim.programs.pyverbs.wr import RecvWR, chain

__all__ = ["SRQ", "OpsWr", "SrqAttr", "SrqInitAttr", "SrqInitAttrEx"]

OpsWr: Any = refusing("OpsWr")

_TYPES = (enums.IBV_SRQT_BASIC, enums.IBV_SRQT_XRC)
#: What a queue of an XRC domain must have.
_XRC_MASK = (
    enums.IBV_SRQ_INIT_ATTR_TYPE
    | enums.IBV_SRQ_INIT_ATTR_PD
    | enums.IBV_SRQ_INIT_ATTR_XRCD
    | enums.IBV_SRQ_INIT_ATTR_CQ
)


class SrqAttr(PyverbsObject):
    """Requests, SGEs in one, and the number of requests below which an event comes."""

    def __init__(self, max_wr: int = 100, max_sge: int = 1, srq_limit: int = 0):
        super().__init__()
        self.max_wr, self.max_sge, self.srq_limit = max_wr, max_sge, srq_limit


class SrqInitAttr(SrqAttr):
    """What a shared receive queue is made from."""

    def __init__(self, attr: SrqAttr | None = None, context: Any = None):
        attr = attr or SrqAttr(0, 0)
        super().__init__(attr.max_wr, attr.max_sge, attr.srq_limit)
        self.srq_context = context


class SrqInitAttrEx(SrqAttr):
    """The same for ``SRQ(context, ...)``; ``comp_mask`` says which of the rest count."""

    def __init__(self, max_wr: int = 100, max_sge: int = 1, srq_limit: int = 0):
        super().__init__(max_wr, max_sge, srq_limit)
        self.comp_mask = self.srq_type = self.max_num_tags = self.max_ops = 0
        self.pd: Any = None
        self.xrcd: Any = None
        self.cq: Any = None
        self.mp_wr: Any = None


class SRQ(PyverbsCM):
    """A shared receive queue of a PD, or with ``SrqInitAttrEx`` of a context."""

    rank = 4

    def __init__(self, creator: Any, attr: SrqAttr | None = None):
        super().__init__()
        failed = "Failed to create SRQ"
        attr = attr or SrqInitAttr()
        pd = creator
        domain: dict[str, Any] = {}
        parents: list[Any] = []
        if isinstance(attr, SrqInitAttrEx):
            failed = "Failed to create SRQ with extended attributes"
            if attr.srq_type not in _TYPES or attr.pd is None:
                raise PyverbsRDMAError(failed, errno.EOPNOTSUPP)
            pd = attr.pd
            domain["mp_wr"] = asked(attr, IBV_SRQ_INIT_ATTR_MP_WR, failed)
            if attr.srq_type == enums.IBV_SRQT_XRC:
                if attr.comp_mask & _XRC_MASK != _XRC_MASK or None in (attr.xrcd, attr.cq):
                    raise PyverbsRDMAError(failed, errno.EINVAL)
                domain |= {"xrcd": attr.xrcd.guest, "cq": attr.cq.guest}
                parents = [attr.xrcd, attr.cq]
        self.pd, self.card = pd, pd.card
        limits = self.card.context.query_device()
        if not 1 <= attr.max_wr <= limits.max_srq_wr:
            raise PyverbsRDMAError(failed, errno.EINVAL)
        wanted = GuestSrqAttr(attr.max_wr, attr.max_sge, attr.srq_limit)
        work = GuestSRQ.create(pd.guest, wanted, room=limits.max_srq_wr, **domain)
        self.guest: GuestSRQ = ask(self.card, work, failed)
        self.card.inboxes.made("srq", self.guest.srqn, pd.context)
        self._opened(pd, *parents)

    def get_srq_num(self) -> int:
        """Its number; that by which requests name it if it is of an XRC domain."""
        return self.guest.srqn if self.guest.srq_num is None else self.guest.srq_num

    def modify(self, attr: SrqAttr, comp_mask: int) -> None:
        """Sets size or limit, as ``comp_mask`` says."""
        wanted = GuestSrqAttr(attr.max_wr, attr.max_sge, attr.srq_limit)
        ask(self.card, self.guest.modify(wanted, SrqAttrMask(comp_mask)), "Failed to modify SRQ")

    def query(self) -> SrqAttr:
        """Its attributes as the card has them."""
        found = ask(self.card, self.guest.query(), "Failed to query SRQ")
        return SrqAttr(found.max_wr, found.max_sge, found.srq_limit)

    def post_recv(self, wr: RecvWR, bad_wr: RecvWR | None = None) -> None:
        """Posts a receive request, and those behind it."""
        requests = [one.to_guest() for one in chain(wr)]
        ask(self.card, self.guest.post_recv(requests), "Failed to post receive to SRQ")

    def post_srq_ops(self, wr: Any, bad_wr: Any = None) -> None:
        """The card matches no tags: EOPNOTSUPP."""
        raise PyverbsRDMAError("Failed to post SRQ operations", errno.EOPNOTSUPP)

    def _destroy(self) -> None:
        ask(self.card, self.guest.close(), "Failed to destroy SRQ")
        self.card.inboxes.gone("srq", self.guest.srqn)

    def __str__(self) -> str:
        return show(SRQ=self.get_srq_num())
