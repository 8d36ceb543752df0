"""Shared receive queues and XRC domains of an endpoint, and the completions that they may bring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import count
from types import SimpleNamespace
from typing import Any

from sim.endpoint.completions import Completions
from sim.endpoint.fields import BadRequest
from sim.guest.verbs import CQ, PD, SRQ, XRCD, Context, MpWr, SrqAttr

__all__ = ["ReceiveQueues", "Reserved", "asked_pieces", "receives", "shown_pieces"]

#: A completion queue, and how many of its entries are somebody's.
Reserved = tuple[CQ, int]


@dataclass
class _Shared:
    """A shared receive queue; ``reserved``: the one CQ of its completions, if it has one."""

    srq: SRQ
    reserved: Reserved | None


def asked_pieces(asked: SimpleNamespace | None) -> MpWr | None:
    """``mp_wr`` of a request as the device is asked for it."""
    return None if asked is None else MpWr(asked.buffer, asked.align).rounded()


def shown_pieces(pieces: MpWr | None) -> dict[str, Any]:
    """What a reply says of a queue whose requests take several packets."""
    return {} if pieces is None else {"mp_wr": asdict(pieces)}


def receives(requests: int, pieces: MpWr | None) -> int:
    """Completions that so many receive requests can have outstanding: of one that takes several
    packets one for each segment, and one that closes it."""
    return requests * (pieces.buffer // pieces.align + 1 if pieces else 1)


class ReceiveQueues:
    """Those of a session, by numbers of which none is given twice.

    A queue of an XRC domain, and one whose requests take several packets, has a CQ from its
    beginning; another one's completions go to the CQs of the queue pairs that take from it.
    """

    def __init__(self, context: Context, completions: Completions):
        self._context, self._completions = context, completions
        self._srqs: dict[int, _Shared] = {}
        self._xrcds: dict[int, XRCD] = {}
        self._srq_numbers, self._xrcd_numbers = count(), count()

    async def create_domain(self) -> int:
        """An XRC domain; RdmaError: EOPNOTSUPP, CommandError."""
        domain = await XRCD.create(self._context)
        number = next(self._xrcd_numbers)
        self._xrcds[number] = domain
        return number

    async def destroy_domain(self, number: int) -> None:
        """CommandError while something is in it."""
        await self.domain(number).close()
        del self._xrcds[number]

    def domain(self, number: int) -> XRCD:
        """The domain of that number; BadRequest."""
        if number not in self._xrcds:
            raise BadRequest(f"There is no xrcd {number}")
        return self._xrcds[number]

    async def create(self, pd: PD, fields: SimpleNamespace) -> dict[str, Any]:
        """A queue as ``create_srq`` asks for it; what that replies. RdmaError as ``SRQ.create``."""
        domain = None if fields.xrcd is None else self.domain(fields.xrcd)
        pieces, reserved = asked_pieces(fields.mp_wr), None
        if domain is not None or pieces is not None:
            entries = receives(fields.max_wr, pieces)
            reserved = await self._completions.reserve(entries), entries
        try:
            attr = SrqAttr(fields.max_wr, fields.max_sge)
            cq = reserved[0] if reserved else None
            srq = await SRQ.create(pd, attr, xrcd=domain, cq=cq, mp_wr=pieces)
        except BaseException:
            self._completions.release([reserved] if reserved else [])
            raise
        number = next(self._srq_numbers)
        self._srqs[number] = _Shared(srq, reserved)
        named = {} if srq.srq_num is None else {"srq_num": srq.srq_num}
        return {"srq": number} | named | shown_pieces(pieces)

    async def destroy(self, number: int) -> None:
        """CommandError while a queue pair uses it."""
        shared = self._shared(number)
        await self._completions.collect()
        await shared.srq.close()
        if shared.reserved:
            self._completions.release([shared.reserved])
        del self._srqs[number]

    def queue(self, number: int) -> SRQ:
        """The queue of that number; BadRequest."""
        return self._shared(number).srq

    async def reserve(self, send: int, receive: int, srq: int | None) -> Sequence[Reserved]:
        """CQs for the two queues of a QP with so many entries; with ``srq`` as that needs it."""
        shared = None if srq is None else self._shared(srq)
        if shared is None:
            return await self._completions.reserve_two(send, receive)
        if shared.reserved is None:
            return await self._completions.reserve_two(send, shared.srq.attr.max_wr)
        cq = await self._completions.reserve(send)
        return (cq, send), (shared.reserved[0], 0)

    def _shared(self, number: int) -> _Shared:
        if number not in self._srqs:
            raise BadRequest(f"There is no srq {number}")
        return self._srqs[number]
