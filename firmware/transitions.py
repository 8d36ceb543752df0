"""Queue pair states: which transition needs and allows which attributes.

Spec: IBTA vol 1, 10.3.1 and 11.2.5.2, table 91 (modify QP), as Linux's ``ib_modify_qp_is_ok`` has
it (virtio-rdma VR-3.27).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from firmware.objects import Refused
from hdl.abi.enums import QpAttrMask as M
from hdl.abi.enums import QpState as S
from hdl.abi.enums import QpType as T

__all__ = ["SEND_ERROR_STATES", "TRANSITIONS", "Attributes", "next_state"]

_NONE = M(0)


@dataclass(frozen=True)
class Attributes:
    """What comes with a transition besides STATE."""

    required: M = _NONE
    optional: M = _NONE


_DATAGRAM, _XRC = (T.UD, T.GSI), (T.XRC_INI, T.XRC_TGT)
_CONNECTED = (T.UC, T.RC, *_XRC)
#: Of DC; their ends of connections have no transitions of a driver's.
_DYNAMIC = (T.DCI, T.DCT)
_ALL = (*_CONNECTED, *_DATAGRAM)
_DC_INIT = M.PKEY_INDEX | M.PORT

_CONNECTED_INIT = M.PKEY_INDEX | M.PORT | M.ACCESS_FLAGS
_UD_INIT, _GSI_INIT = M.PKEY_INDEX | M.PORT | M.QKEY, M.PKEY_INDEX | M.QKEY
_ROUTE = M.AV | M.PATH_MTU | M.DEST_QPN | M.RQ_PSN
_RC_ROUTE = _ROUTE | M.MAX_DEST_RD_ATOMIC | M.MIN_RNR_TIMER
_AT_ROUTE = M.ALT_PATH | M.ACCESS_FLAGS | M.PKEY_INDEX
_RETRIES = M.TIMEOUT | M.RETRY_CNT | M.RNR_RETRY
_MIGRATION = M.ALT_PATH | M.PATH_MIG_STATE
_UC_LIVE = M.CUR_STATE | M.ACCESS_FLAGS | _MIGRATION
_RC_LIVE, _UD_LIVE = _UC_LIVE | M.MIN_RNR_TIMER, M.CUR_STATE | M.QKEY
_UC_DRAINED = M.AV | M.ACCESS_FLAGS | M.PKEY_INDEX | _MIGRATION
_RC_DRAINED = (
    _UC_DRAINED | _RETRIES | M.PORT | M.MAX_QP_RD_ATOMIC | M.MAX_DEST_RD_ATOMIC | M.MIN_RNR_TIMER
)
#: An initiator has nothing of a responder, a target nothing of a requester.
_INI_DRAINED = _UC_DRAINED | _RETRIES | M.PORT | M.MAX_QP_RD_ATOMIC
_TGT_DRAINED = _UC_DRAINED | M.TIMEOUT | M.PORT | M.MAX_DEST_RD_ATOMIC | M.MIN_RNR_TIMER

#: (types, from, to, required, optional). Every state also goes to RESET and ERR, with STATE alone.
_ROWS = (
    (_CONNECTED, S.RESET, S.INIT, _CONNECTED_INIT, _NONE),
    ((T.UD,), S.RESET, S.INIT, _UD_INIT, _NONE),
    ((T.GSI,), S.RESET, S.INIT, _GSI_INIT, _NONE),
    (_CONNECTED, S.INIT, S.INIT, _NONE, _CONNECTED_INIT),
    ((T.UD,), S.INIT, S.INIT, _NONE, _UD_INIT),
    ((T.GSI,), S.INIT, S.INIT, _NONE, _GSI_INIT),
    ((T.UC, T.XRC_INI), S.INIT, S.RTR, _ROUTE, _AT_ROUTE),
    ((T.RC, T.XRC_TGT), S.INIT, S.RTR, _RC_ROUTE, _AT_ROUTE),
    (_DATAGRAM, S.INIT, S.RTR, _NONE, M.PKEY_INDEX | M.QKEY),
    ((T.DCI,), S.RESET, S.INIT, _DC_INIT, _NONE),
    ((T.DCI,), S.INIT, S.INIT, _NONE, _DC_INIT),
    ((T.DCI,), S.INIT, S.RTR, M.PATH_MTU, M.PKEY_INDEX | M.AV),
    ((T.DCI,), S.RTR, S.RTS, M.SQ_PSN | _RETRIES | M.MAX_QP_RD_ATOMIC, M.MIN_RNR_TIMER),
    ((T.DCI,), S.RTS, S.RTS, _NONE, M.MIN_RNR_TIMER),
    ((T.DCT,), S.RESET, S.INIT, _DC_INIT | M.ACCESS_FLAGS, _NONE),
    ((T.DCT,), S.INIT, S.RTR, M.AV | M.PATH_MTU | M.MIN_RNR_TIMER, _NONE),
    ((T.UC,), S.RTR, S.RTS, M.SQ_PSN, _UC_LIVE),
    ((T.RC,), S.RTR, S.RTS, M.SQ_PSN | _RETRIES | M.MAX_QP_RD_ATOMIC, _RC_LIVE),
    ((T.XRC_INI,), S.RTR, S.RTS, M.SQ_PSN | _RETRIES | M.MAX_QP_RD_ATOMIC, _UC_LIVE),
    ((T.XRC_TGT,), S.RTR, S.RTS, M.SQ_PSN | M.TIMEOUT, _RC_LIVE),
    (_DATAGRAM, S.RTR, S.RTS, M.SQ_PSN, _UD_LIVE),
    ((T.UC, T.XRC_INI), S.RTS, S.RTS, _NONE, _UC_LIVE),
    ((T.RC, T.XRC_TGT), S.RTS, S.RTS, _NONE, _RC_LIVE),
    (_DATAGRAM, S.RTS, S.RTS, _NONE, _UD_LIVE),
    (_ALL, S.RTS, S.SQD, _NONE, M.EN_SQD_ASYNC_NOTIFY),
    ((T.UC, T.XRC_INI), S.SQD, S.RTS, _NONE, _UC_LIVE),
    ((T.RC, T.XRC_TGT), S.SQD, S.RTS, _NONE, _RC_LIVE),
    (_DATAGRAM, S.SQD, S.RTS, _NONE, _UD_LIVE),
    ((T.UC,), S.SQD, S.SQD, _NONE, _UC_DRAINED),
    ((T.RC,), S.SQD, S.SQD, _NONE, _RC_DRAINED),
    ((T.XRC_INI,), S.SQD, S.SQD, _NONE, _INI_DRAINED),
    ((T.XRC_TGT,), S.SQD, S.SQD, _NONE, _TGT_DRAINED),
    (_DATAGRAM, S.SQD, S.SQD, _NONE, M.PKEY_INDEX | M.QKEY),
    ((T.UC,), S.SQE, S.RTS, _NONE, M.CUR_STATE | M.ACCESS_FLAGS),
    (_DATAGRAM, S.SQE, S.RTS, _NONE, _UD_LIVE),
)


def _transitions() -> Iterator[tuple[tuple[T, S, S], Attributes]]:
    for types, start, end, required, optional in _ROWS:
        for type_ in types:
            yield (type_, start, end), Attributes(required, optional)
    for type_ in (*_ALL, *_DYNAMIC):
        for start in S:
            yield (type_, start, S.RESET), Attributes()
            yield (type_, start, S.ERR), Attributes()


#: (type, from, to) -> what comes with the transition. What is not here is illegal.
TRANSITIONS: dict[tuple[T, S, S], Attributes] = dict(_transitions())

#: The state of a QP whose send side has stopped on an error: only a reliable one stops whole, as
#: its peer waits for what it cannot send (IBTA vol 1, 10.3.1.6).
SEND_ERROR_STATES: dict[T, S] = {
    **dict.fromkeys((T.RC, *_XRC, *_DYNAMIC), S.ERR),
    **dict.fromkeys((T.UC, T.UD, T.GSI), S.SQE),
}

#: States that a driver may claim a QP to be in.
_CLAIMABLE = (S.RTR, S.RTS, S.SQD, S.SQE)

_KNOWN_MASK = sum(bit.value for bit in M)


def next_state(current: S, type_: T, mask: int, attrs: Mapping[str, Any]) -> S:
    """The state after a modify with ``mask``; Refused when transition or mask is illegal.

    ``current``: the state that the QP is in. Without STATE it stays there. With CUR_STATE the
    driver must claim just this one.
    """
    if mask & ~_KNOWN_MASK:
        raise Refused(f"attr_mask {mask:#x} has unknown bits")
    given = M(mask)
    target = current
    if given & M.STATE:
        if attrs["qp_state"] not in list(S):
            raise Refused(f"qp_state {attrs['qp_state']} does not exist")
        target = S(attrs["qp_state"])
    if given & M.CUR_STATE and (current not in _CLAIMABLE or attrs["cur_qp_state"] != current):
        raise Refused(f"cur_qp_state {attrs['cur_qp_state']}, but the QP is in {current.name}")
    allowed = TRANSITIONS.get((type_, current, target))
    if allowed is None:
        raise Refused(f"No transition from {current.name} to {target.name}")
    missing = allowed.required & ~given
    extra = given & ~(allowed.required | allowed.optional | M.STATE)
    if missing or extra:
        raise Refused(
            f"{current.name} to {target.name}: missing {missing!r}, not allowed {extra!r}"
        )
    return target
