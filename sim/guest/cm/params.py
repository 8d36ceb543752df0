"""From messages to attributes of queue pairs and back: what each side says, what each side takes.

Spec: IBTA vol 1, 12.7 (fields of REQ and REP).
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace

from hdl.abi import mad
from hdl.abi.enums import Mtu, QpType
from hdl.abi.mad import ExtendedTransport, Message, Reason, TransportService
from sim.guest.cm.timing import Peer
from sim.guest.driver.errors import RdmaError
from sim.guest.verbs import AHAttr, GlobalRoute, QPAttr

__all__ = [
    "ConnParam",
    "Rejected",
    "accepts",
    "agreed",
    "refusal",
    "reply_fields",
    "request_fields",
    "rts_attr",
]

Transport = tuple[TransportService, ExtendedTransport]
_RC: Transport = (TransportService.RC, ExtendedTransport.NONE)
_UC: Transport = (TransportService.UC, ExtendedTransport.NONE)
_XRC: Transport = (TransportService.EXTENDED, ExtendedTransport.XRC)
#: What a REQ calls the type of queue pair that asks, and of the one that answers.
_ASKS = {QpType.RC: _RC, QpType.UC: _UC, QpType.XRC_INI: _XRC}
_ANSWERS = {QpType.RC: _RC, QpType.UC: _UC, QpType.XRC_TGT: _XRC}
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


def accepts(qp_type: QpType, request: Message) -> bool:
    """Whether the REQ is for such a queue pair."""
    found = request["transport_service"], request["extended_transport"]
    return _ANSWERS.get(qp_type) == found


def request_fields(qp_type: QpType, param: ConnParam, ends: tuple[bytes, bytes]) -> dict[str, int]:
    """The fields of a REQ that come from the queue pair, from ``param`` and from both GIDs.

    RdmaError(EINVAL) for a type that asks for no connection. An XRC initiator tells nothing of a
    responder, as it has none.
    """
    if qp_type not in _ASKS:
        raise RdmaError(errno.EINVAL, f"{qp_type.name} queue pairs ask for no connection")
    service, extended = _ASKS[qp_type]
    responder = {
        "responder_resources": param.responder_resources,
        "retry_count": param.retry_count,
        "rnr_retry_count": param.rnr_retry_count,
    }
    return {
        **({} if extended is ExtendedTransport.XRC else responder),
        "transport_service": service,
        "extended_transport": extended,
        "initiator_depth": param.initiator_depth,
        "pkey": 0xFFFF,
        "path_mtu": param.path_mtu,
        "primary_local_lid": _NO_LID,
        "primary_remote_lid": _NO_LID,
        "primary_local_gid": int.from_bytes(ends[0], "big"),
        "primary_remote_gid": int.from_bytes(ends[1], "big"),
        "primary_hop_limit": _HOP_LIMIT,
        "primary_ack_timeout": param.ack_timeout,
    }


def reply_fields(qp_type: QpType, qpn: int, param: ConnParam) -> dict[str, int]:
    """The fields of a REP that come from the queue pair and from ``param``. An XRC target asks for
    nothing, and takes from shared receive queues."""
    fields = {
        "responder_resources": param.responder_resources,
        "rnr_retry_count": param.rnr_retry_count,
    }
    if qp_type == QpType.XRC_TGT:
        return fields | {"local_qpn": 0, "local_eecn": qpn, "srq": 1}
    return fields | {"local_qpn": qpn, "initiator_depth": param.initiator_depth}


def refusal(request: Message) -> Reason | None:
    """Why a REQ cannot be served, whoever listens; None if it can."""
    try:
        mad.unpack_addresses(request.private)
    except ValueError:
        return Reason.UNSUPPORTED
    if (request["transport_service"], request["extended_transport"]) not in _ANSWERS.values():
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
        dest_qp_num=answer.qpn,
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
