"""From messages to attributes of queue pairs and back: what each side says, what each side takes.

Spec: IBTA vol 1, 12.7 (fields of REQ and REP).
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace

from hdl.abi import mad
from hdl.abi.enums import Mtu, QpType
from hdl.abi.mad import Message, Reason, TransportService
from sim.guest.cm.timing import Peer
from sim.guest.driver.errors import RdmaError
from sim.guest.verbs import AHAttr, GlobalRoute, QPAttr

__all__ = [
    "ConnParam",
    "Rejected",
    "agreed",
    "refusal",
    "reply_fields",
    "request_fields",
    "rts_attr",
    "transport",
]

_SERVICES = {QpType.RC: TransportService.RC, QpType.UC: TransportService.UC}
_HOP_LIMIT = 64
#: LID that stands for none, as Linux fills it in on Ethernet.
_NO_LID = 0xFFFF


@dataclass(frozen=True)
class ConnParam:
    """What one side asks for or offers; names as in librdmacm's ``rdma_conn_param``.

    ``responder_resources``: READs and atomics of the peer at a time, ``initiator_depth``: own ones.
    ``rnr_retry_count`` is for the peer, ``retry_count``, ``ack_timeout`` (4.096 us x 2^n) and
    ``path_mtu`` are for both; these three count where a connection is asked for, not where it is
    accepted. ``min_rnr_timer`` is a code of the ABI.
    """

    private_data: bytes = b""
    responder_resources: int = 1
    initiator_depth: int = 1
    retry_count: int = 7
    rnr_retry_count: int = 7
    ack_timeout: int = 14
    path_mtu: Mtu = Mtu.MTU_1024
    min_rnr_timer: int = 12


class Rejected(RdmaError):
    """The peer has sent a REJ: ``reason`` is its number, ``private_data`` what came with it."""

    def __init__(self, message: Message):
        self.reason, self.private_data = message["reason"], message.private
        name = Reason(self.reason).name if self.reason in list(Reason) else "another"
        super().__init__(errno.ECONNREFUSED, f"Connection rejected: reason {self.reason}, {name}")


def transport(qp_type: QpType) -> TransportService:
    """What a REQ calls a type of queue pair; RdmaError(EINVAL) for one that is not connected."""
    try:
        return _SERVICES[qp_type]
    except KeyError:
        raise RdmaError(errno.EINVAL, f"{qp_type.name} queue pairs are not connected") from None


def request_fields(param: ConnParam, ends: tuple[bytes, bytes]) -> dict[str, int]:
    """The fields of a REQ that come from ``param`` and from both GIDs."""
    return {
        "responder_resources": param.responder_resources,
        "initiator_depth": param.initiator_depth,
        "retry_count": param.retry_count,
        "rnr_retry_count": param.rnr_retry_count,
        "pkey": 0xFFFF,
        "path_mtu": param.path_mtu,
        "primary_local_lid": _NO_LID,
        "primary_remote_lid": _NO_LID,
        "primary_local_gid": int.from_bytes(ends[0], "big"),
        "primary_remote_gid": int.from_bytes(ends[1], "big"),
        "primary_hop_limit": _HOP_LIMIT,
        "primary_ack_timeout": param.ack_timeout,
    }


def reply_fields(param: ConnParam) -> dict[str, int]:
    """The fields of a REP that come from ``param``."""
    return {
        "responder_resources": param.responder_resources,
        "initiator_depth": param.initiator_depth,
        "rnr_retry_count": param.rnr_retry_count,
    }


def refusal(request: Message) -> Reason | None:
    """Why a REQ cannot be served, whoever listens; None if it can."""
    try:
        mad.unpack_addresses(request.private)
    except ValueError:
        return Reason.UNSUPPORTED
    if request["transport_service"] not in list(TransportService):
        return Reason.INVALID_TRANSPORT
    if request["path_mtu"] not in list(Mtu):
        return Reason.INVALID_MTU
    return None


def agreed(param: ConnParam, request: Message) -> ConnParam:
    """``param`` of the accepting side, with what the REQ decides for both."""
    return replace(
        param,
        path_mtu=Mtu(request["path_mtu"]),
        ack_timeout=request["primary_ack_timeout"],
        retry_count=request["retry_count"],
    )


def rts_attr(param: ConnParam, answer: Message, peer: Peer, mac: bytes, psn: int) -> QPAttr:
    """What brings a queue pair to RTS; ``answer`` is the REQ or the REP of the peer.

    ``psn``: the starting PSN of the own message. Each side names the one that it receives from the
    other side first (IBTA 12.7.31).
    """
    route = GlobalRoute(dgid=peer.gid, sgid_index=peer.sgid_index, hop_limit=_HOP_LIMIT)
    return QPAttr(
        path_mtu=param.path_mtu,
        dest_qp_num=answer["local_qpn"],
        sq_psn=answer["starting_psn"],
        rq_psn=psn,
        max_rd_atomic=min(param.initiator_depth, answer["responder_resources"]),
        max_dest_rd_atomic=param.responder_resources,
        timeout=param.ack_timeout,
        retry_cnt=param.retry_count,
        rnr_retry=answer["rnr_retry_count"],
        min_rnr_timer=param.min_rnr_timer,
        ah_attr=AHAttr(gr=route, roce_dmac=mac),
    )
