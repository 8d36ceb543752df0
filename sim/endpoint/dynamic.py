"""Dynamic connections of an endpoint: the requests ``dc_...``, and where requests may go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from types import SimpleNamespace
from typing import Any, Protocol

from hdl.abi.enums import QpType
from sim.endpoint.fields import BadRequest
from sim.guest.verbs import (
    PD,
    QP,
    AHAttr,
    DcDestination,
    DcStreams,
    QPAttr,
    SendWR,
    query_dct,
    reset_stream,
)

__all__ = ["DYNAMIC", "Dynamic", "asked_streams"]

Fields = SimpleNamespace
Reply = dict[str, Any]

#: Both ends of dynamic connections.
DYNAMIC = (QpType.DCI, QpType.DCT)


class Owner(Protocol):
    """What the requests need of the session that they are part of."""

    def queue_pair(self, number: int) -> QP:
        """The one of that number; BadRequest."""

    def way(self, f: Fields) -> AHAttr:
        """The address attributes in the fields of a request."""

    async def domain(self) -> PD:
        """The protection domain of everything."""


def asked_streams(asked: Fields | None) -> DcStreams | None:
    """``streams`` of a request as the device is asked for them."""
    return None if asked is None else DcStreams(asked.log_streams, asked.log_errored)


class Dynamic:
    """The destinations of a session, by numbers of which none is given twice."""

    def __init__(self, owner: Owner):
        self._owner = owner
        self._destinations: dict[int, DcDestination] = {}
        self._numbers = count()

    def handler(self, op: str) -> Callable[[Fields], Awaitable[Reply]]:
        """What serves the request ``dc_<op>``."""
        served: Callable[[Fields], Awaitable[Reply]] = getattr(self, op)
        return served

    def address(self, request: SendWR, qp: QP, f: Fields, *, local: bool) -> None:
        """Says where a request goes, if its queue pair is an initiator; one that is ``local`` may
        go nowhere. BadRequest: another queue pair, no such destination."""
        initiator = qp.qp_type == QpType.DCI
        if not local and initiator != (f.destination is not None):
            raise BadRequest(f"post_send: destination is for DCI, the QP is {qp.qp_type.name}")
        if initiator:
            to = 0 if f.destination is None else self._destination(f.destination).number
            request.set_wr_dc(to, f.stream_id)

    def _destination(self, number: int) -> DcDestination:
        if number not in self._destinations:
            raise BadRequest(f"There is no destination {number}")
        return self._destinations[number]

    async def ready(self, f: Fields) -> Reply:
        """Brings an initiator to RTS, a target to RTR."""
        qp = self._owner.queue_pair(f.qp)
        if qp.qp_type not in DYNAMIC:
            raise BadRequest(f"dc_ready: the QP is {qp.qp_type.name}")
        attr = QPAttr(
            path_mtu=f.path_mtu,
            qp_access_flags=f.access,
            max_rd_atomic=f.max_rd_atomic,
            min_rnr_timer=f.min_rnr_timer,
            timeout=f.timeout,
            retry_cnt=f.retry_cnt,
            rnr_retry=f.rnr_retry,
            ah_attr=self._owner.way(f),
        )
        await (qp.to_rts(attr) if qp.qp_type == QpType.DCI else qp.to_rtr(attr))
        return {}

    async def destination(self, f: Fields) -> Reply:
        """Names a target and where it is. RdmaError as ``DcDestination.create``."""
        pd = await self._owner.domain()
        made = await DcDestination.create(pd, self._owner.way(f), f.dctn, f.dc_key)
        number = next(self._numbers)
        self._destinations[number] = made
        return {"destination": number}

    async def forget(self, f: Fields) -> Reply:
        """Later requests cannot name it."""
        await self._destination(f.destination).close()
        del self._destinations[f.destination]
        return {}

    async def query(self, f: Fields) -> Reply:
        """What has become of those who have asked a target; CommandError: it is none."""
        found = await query_dct(self._owner.queue_pair(f.qp))
        return {name: value for name, value in found.items() if not name.startswith("reserved")}

    async def reset_stream(self, f: Fields) -> Reply:
        """CommandError as the call of verbs."""
        await reset_stream(self._owner.queue_pair(f.qp), f.stream_id)
        return {}
