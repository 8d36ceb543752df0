"""Values of queue pairs: which are legal, and the configuration row that follows from them.

Spec: virtio-rdma VR-3.25 to VR-3.29. Which transition needs which values: ``transitions``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from firmware.objects import Cq, Limits, Pd, Qp, Refused, Xrcd
from firmware.pieces import row_fields
from firmware.pkeys import PkeyTable
from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import Access, AhFlags, MigState, Mtu, QpState, QpType, RdmaFeature
from hdl.abi.enums import QpAttrMask as M
from hdl.abi.mkeys import LAYOUTS_AT
from hdl.csr.map import row_map
from hdl.wire.constants import is_mapped_gid
from hdl.wire.opcodes import QP_CODE

#: Attribute fields that each mask bit sets, other than the states.
FIELDS: dict[M, tuple[str, ...]] = {
    M.EN_SQD_ASYNC_NOTIFY: ("en_sqd_async_notify",),
    M.ACCESS_FLAGS: ("qp_access_flags",),
    M.PKEY_INDEX: ("pkey_index",),
    M.PORT: ("port_num",),
    M.QKEY: ("qkey",),
    M.AV: ("ah_attr",),
    M.PATH_MTU: ("path_mtu",),
    M.TIMEOUT: ("timeout",),
    M.RETRY_CNT: ("retry_cnt",),
    M.RNR_RETRY: ("rnr_retry",),
    M.RQ_PSN: ("rq_psn",),
    M.MAX_QP_RD_ATOMIC: ("max_rd_atomic",),
    M.MIN_RNR_TIMER: ("min_rnr_timer",),
    M.SQ_PSN: ("sq_psn",),
    M.MAX_DEST_RD_ATOMIC: ("max_dest_rd_atomic",),
    M.PATH_MIG_STATE: ("path_mig_state",),
    M.DEST_QPN: ("dest_qp_num",),
}

_FLUSHES = Access.FLUSH_GLOBAL | Access.FLUSH_PERSISTENT
_KNOWN_ACCESS = sum(flag.value for flag in Access)


async def placement_access(
    limits: Limits, negotiated: Callable[[RdmaFeature], Awaitable[bool]]
) -> Access:
    """The access flags that PLACEMENT adds (docs/extensions.md): none if it is not negotiated, and
    persistence on a card for such a host alone."""
    if not limits.config.placement or not await negotiated(RdmaFeature.PLACEMENT):
        return Access(0)
    return _FLUSHES if limits.config.persistence else Access.FLUSH_GLOBAL


def _at_most(limit: int, lowest: int = 0) -> Callable[[Limits, int], bool]:
    return lambda limits, value: lowest <= value <= limit


#: Values that are legal, by field; the rest is checked in ``check_address``.
_VALUES: dict[str, Callable[[Limits, int], bool]] = {
    "en_sqd_async_notify": _at_most(1),
    "pkey_index": lambda limits, value: value < limits.device["max_pkeys"],
    "port_num": lambda limits, value: 1 <= value <= limits.device["phys_port_cnt"],
    "path_mtu": lambda limits, value: Mtu.MTU_256 <= value <= limits.mtu,
    "timeout": _at_most(31),
    "retry_cnt": _at_most(7),
    "rnr_retry": _at_most(7),
    "rq_psn": _at_most((1 << abi.PSN_BITS) - 1),
    "sq_psn": _at_most((1 << abi.PSN_BITS) - 1),
    "dest_qp_num": _at_most((1 << abi.QPN_BITS) - 1),
    "max_rd_atomic": lambda limits, value: value <= limits.device["max_qp_init_rd_atom"],
    "max_dest_rd_atomic": lambda limits, value: value <= limits.device["max_qp_rd_atom"],
    "min_rnr_timer": _at_most(31),
    "path_mig_state": lambda limits, value: value == MigState.MIGRATED,
}


def new_attributes(
    limits: Limits,
    qp: Qp,
    mask: int,
    attrs: Mapping[str, Any],
    *,
    gids: Mapping[int, bytes],
    pkeys: PkeyTable,
) -> dict[str, Any]:
    """The QP's attributes with those that ``mask`` names replaced; Refused for an illegal value.

    ``gids``: the GIDs that are set, by index. ``pkeys``: the P_Keys.
    """
    if mask & M.ALT_PATH:
        raise Refused("There is no path migration (VR-3.25)")
    result = dict(qp.attrs)
    for bit, names in FIELDS.items():
        if not mask & bit:
            continue
        for name in names:
            value = attrs[name]
            legal = _VALUES.get(name)
            if legal is not None and not legal(limits, value):
                raise Refused(f"{name} cannot be {value}")
            result[name] = value
    if mask & M.PKEY_INDEX and not pkeys[result["pkey_index"]]:
        raise Refused(f"pkey_index {result['pkey_index']} has no P_Key")
    if mask & M.ACCESS_FLAGS:
        # Others are ignored (VR-3.19).
        result["qp_access_flags"] &= _KNOWN_ACCESS & ~int(_FLUSHES) | int(qp.placement)
    if mask & M.AV:
        check_address(limits, attrs["ah_attr"], gids)
    return result


def check_address(limits: Limits, ah: Mapping[str, Any], gids: Mapping[int, bytes]) -> None:
    """Refuse an address vector that cannot be used on Ethernet.

    Source and destination must both be IPv4 addresses or both IPv6 addresses: the packet has one IP
    header (RoCE v2, A17.4.5.2).
    """
    grh = ah["grh"]
    if not ah["ah_flags"] & AhFlags.GRH:
        raise Refused("ah_attr needs a global route")
    if not 1 <= ah["port_num"] <= limits.device["phys_port_cnt"]:
        raise Refused(f"ah_attr.port_num cannot be {ah['port_num']}")
    source = gids.get(grh["sgid_index"])
    if source is None:
        raise Refused(f"ah_attr.grh.sgid_index {grh['sgid_index']} has no GID")
    if grh["flow_label"] >> 20:
        raise Refused(f"ah_attr.grh.flow_label cannot be {grh['flow_label']:#x}")
    if ah["sl"] > 7:
        raise Refused(f"ah_attr.sl cannot be {ah['sl']}")
    if not any(grh["dgid"]):
        raise Refused("ah_attr.grh.dgid is zero")
    if is_mapped_gid(source) != is_mapped_gid(grh["dgid"]):
        raise Refused("ah_attr.grh.dgid is of another address family than the source GID")


def udp_source_port(qpn: int, dest_qpn: int, flow_label: int) -> int:
    """UDP source port of a connection: from its flow label, or from its QPNs, as Linux does."""
    if not flow_label:
        mixed = qpn * dest_qpn
        mixed ^= mixed >> 20
        mixed ^= mixed >> 40
        flow_label = mixed & 0xFFFFF
    return 0xC000 | (flow_label & 0x3FFF) ^ (flow_label >> 14 & 0x3F)


def raw(octets: bytes) -> int:
    """Bytes as the tables hold them: the first one of the wire in bits 7:0."""
    return int.from_bytes(octets, "little")


#: ``SourceKind`` of hdl/ports/rows.py, and the types of QPs that say where receive WQEs come from.
_PRIVATE, _SHARED, SOURCE_NAMED = range(3)
_SOURCES = dict.fromkeys((QpType.XRC_INI, QpType.XRC_TGT, QpType.DCI), SOURCE_NAMED)
_RECEIVE = ("max_recv_wr", "max_recv_sge", "recv_cqn", "srqn")
#: Fields of CREATE_QP that mean nothing for a type, and must be 0: an XRC initiator receives
#: nothing, and a target takes all that it needs from the receive queues of its domain.
UNUSED: dict[QpType, tuple[str, ...]] = {
    QpType.XRC_INI: _RECEIVE,
    QpType.XRC_TGT: (
        *("pdn", "send_cqn", "max_send_wr", "max_send_sge", "max_inline_data"),
        *_RECEIVE,
    ),
    QpType.DCI: (*_RECEIVE, "dc_key"),
    QpType.DCT: (
        *("send_cqn", "max_send_wr", "max_send_sge", "max_inline_data"),
        *("max_recv_wr", "max_recv_sge"),
    ),
}


def _number(made: Pd | Cq | Xrcd | None) -> int:
    return 0 if made is None else made.number


def spread(number: int, *names: str) -> dict[str, int]:
    """A number in the fields ``names`` of a row of ``qp_cfg``, lowest bits first."""
    found = {}
    for name in names:
        width = row_map("qp_cfg").fields[name].width
        found[name] = number & (1 << width) - 1
        number >>= width
    return found


def initiator_number(qpn: int) -> dict[str, int]:
    """Where the row of an initiator of DC has its number (``dc_initiator`` in hdl/ports)."""
    return spread(qpn, "max_dest_rd_atomic", "read_base")


def target_number(qpn: int) -> dict[str, int]:
    """Where the row of an end of a target of DC has the target's number (``dc_target``)."""
    return spread(qpn, "max_rd_atomic", "max_inline", "max_send_sge")


def initiator_row(qp: Qp, *, destination: int = 0, status: int = 0) -> dict[str, int]:
    """What the row of an initiator of DC has that others have not: to which ``destination`` it is
    connected, or which has refused it with a WC ``status``, and its stream."""
    return {
        **initiator_number(qp.qpn),
        **spread(qp.stream, "recv_cq", "max_recv_sge"),
        "recv_pd": destination,
        "min_rnr_timer": status,
        "remote_write": int(qp.streams is not None),
    }


def configuration_row(qp: Qp, state: QpState, pkey: int) -> dict[str, int]:
    """The ``qp_cfg`` row of a QP in ``state``."""
    attrs: dict[str, Any] = qp.attrs
    ah = attrs["ah_attr"]
    grh, access = ah["grh"], attrs["qp_access_flags"]
    kind = _SHARED if qp.srq else _SOURCES.get(qp.type, _PRIVATE)
    row = {
        "state": state,
        "type": QP_CODE[qp.type],
        "pd": _number(qp.pd or qp.xrcd),
        "recv_pd": _number(qp.srq.pd if qp.srq else qp.pd),
        "send_cq": _number(qp.send_cq),
        "recv_cq": _number(qp.recv_cq),
        "source.kind": kind,
        "source.number": qp.srq.number if qp.srq else qp.number,
        "signal_all": int(qp.init["sq_sig_type"] == 0),
        "path_mtu": attrs["path_mtu"],
        "qpn": qp.qpn,
        "dest_qpn": attrs["dest_qp_num"],
        "pkey": pkey,
        "qkey": abi.GSI_QKEY if qp.type == QpType.GSI else attrs["qkey"],
        "remote_write": int(bool(access & Access.REMOTE_WRITE)),
        "remote_read": int(bool(access & Access.REMOTE_READ)),
        "remote_atomic": int(bool(access & Access.REMOTE_ATOMIC)),
        "binds": int(qp.binds),
        "max_rd_atomic": attrs["max_rd_atomic"],
        "max_dest_rd_atomic": qp.slice.size if qp.slice else 0,
        "read_base": qp.slice.base if qp.slice else 0,
        "min_rnr_timer": attrs["min_rnr_timer"],
        "timeout": attrs["timeout"],
        "retry_count": attrs["retry_cnt"],
        "rnr_retry": attrs["rnr_retry"],
        "max_send_sge": qp.init["max_send_sge"],
        "max_recv_sge": qp.init["max_recv_sge"],
        "max_inline": qp.init["max_inline_data"],
        "placement": int(bool(qp.placement)),
        "copies": int(qp.copies),
        "flush.visible": int(bool(access & Access.FLUSH_GLOBAL)),
        "flush.persistent": int(bool(access & Access.FLUSH_PERSISTENT)),
        "av.sgid_index": grh["sgid_index"],
        "av.dgid": raw(grh["dgid"]),
        "av.dmac": raw(ah["roce_dmac"]),
        "av.traffic_class": grh["traffic_class"],
        "av.flow_label": grh["flow_label"],
        "av.hop_limit": grh["hop_limit"],
        "av.sl": ah["sl"],
        "av.udp_source": udp_source_port(qp.qpn, attrs["dest_qp_num"], grh["flow_label"]),
    }
    row |= row_fields(qp.takes_pieces, qp.type) | qp.connected
    if qp.type == QpType.RC:  # which has no Q_Key
        row["qkey"] |= int(qp.layouts) << LAYOUTS_AT
    return row
