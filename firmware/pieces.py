"""Receive queues whose requests take several packets (docs/extensions.md, MP WR): what is legal,
and the row fields that follow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from firmware.objects import Limits, Pieces, Refused
from hdl.abi.enums import QpType, RdmaFeature
from hdl.abi.layout import Values
from hdl.abi.limits import MIN_MP_WR_ALIGN
from hdl.abi.pieces import pieces_word

__all__ = [
    "asked_pieces",
    "check_datagrams",
    "check_pieces",
    "check_type",
    "row_fields",
]

#: Bytes of the largest packet, and of what a datagram has in front of it.
_PACKET, _GRH = 4096, 40
#: Types of QPs that have a receive queue of their own for it.
_TYPES = (QpType.RC, QpType.UC, QpType.UD)


def row_fields(pieces: Pieces | None, qp_type: QpType | None) -> dict[str, int]:
    """What the ``qp_cfg`` row of a QP of that type has instead of its own for such a receive queue,
    or for another one; of a receive queue that packets name (None) likewise. On the card
    ``pieces_of`` reads it."""
    place = "av.dmac" if qp_type in (QpType.UD, QpType.GSI) else "qkey"
    return {place: 0 if pieces is None else pieces_word(pieces.buffer, pieces.align_log2)}


async def asked_pieces(
    limits: Limits, v: Values, negotiated: Callable[[RdmaFeature], Awaitable[bool]]
) -> Pieces | None:
    """What a command asks for, whose fields mean nothing without the feature; Refused if it is out
    of bounds."""
    if not limits.config.mp_wr or not await negotiated(RdmaFeature.MP_WR):
        return None
    return check_pieces(limits, v.mp_wr_buffer, v.mp_wr_align_log2)


def check_pieces(limits: Limits, buffer: int, align_log2: int) -> Pieces | None:
    """Requests of ``buffer`` bytes in segments; None without any; Refused for bad numbers."""
    if not buffer and not align_log2:
        return None
    align = 1 << align_log2 if align_log2 < 32 else 0
    if not MIN_MP_WR_ALIGN <= align <= limits.device["max_mp_wr_align"]:
        raise Refused(f"mp_wr_align_log2 cannot be {align_log2}")
    limits.check("max_mp_wr_buffer", buffer, _PACKET)
    if buffer % align:
        raise Refused(f"mp_wr_buffer {buffer} is no multiple of {align} bytes")
    return Pieces(buffer, align_log2)


def check_type(pieces: Pieces, qp_type: int, shared: bool) -> None:
    """Refuses a queue pair that has no receive queue for it, or datagrams that would not fit."""
    if shared or qp_type not in _TYPES:
        raise Refused(f"mp_wr_buffer must be 0, not {pieces.buffer}: no receive queue of its own")
    check_datagrams(pieces, qp_type)


def check_datagrams(pieces: Pieces, qp_type: int) -> None:
    """Refuses requests in which the largest datagram does not fit, behind its GRH area."""
    if qp_type in (QpType.UD, QpType.GSI) and pieces.buffer < _PACKET + _GRH:
        raise Refused(f"mp_wr_buffer {pieces.buffer} has no room for a datagram")
