"""Connections of DC as plain values for a journal (``firmware.records``), and back.

Written down is what the card's rows do not say and packets need: who the peers are, nonces, and how
far a channel is. Times are not: a firmware that takes over closes what it finds open.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from firmware.dc.channel import Attempt, Channel, Phase
from firmware.dc.context import Context, Peer
from firmware.objects import Destination, Objects, Qp, Slice
from firmware.qp import initiator_row, target_number
from hdl.abi import virtio_rdma as abi
from hdl.abi.layout import Values

__all__ = [
    "made_channel",
    "made_context",
    "made_end",
    "opened_row",
    "plain_channel",
    "plain_end",
]

Record = dict[str, Any]

#: Of a context: numbers, as they are.
_NUMBERS = ("number", "dctn", "channel", "nonce", "psn", "depth", "keep")


def plain_end(context: Context, dct: Qp, qp: Qp) -> Record:
    """An end of a connection to ``dct``, whose row is that of ``qp``."""
    assert qp.slice is not None, "an end has room for its READs"
    return {
        **{name: getattr(context, name) for name in _NUMBERS},
        "gid": context.peer.gid.hex(),
        "mac": context.peer.mac.hex(),
        "dct": dct.number,
        "slice": [qp.slice.base, qp.slice.size],
        "attrs": abi.QP_ATTR.pack(qp.attrs).hex(),
    }


def made_context(plain: Record, now: int) -> Context:
    """The context of a record, which has been heard of ``now``."""
    peer = Peer(bytes.fromhex(plain["gid"]), bytes.fromhex(plain["mac"]))
    numbers = {name: plain[name] for name in _NUMBERS}
    return Context(peer=peer, heard=now, **numbers)


def made_end(plain: Record, dct: Qp, objects: Objects, pair: int) -> Qp:
    """The row of an end. Refused: its part of the READ requests is another one's."""
    part = Slice(*plain["slice"])
    objects.slices.take_again(part)
    attrs = Values(abi.QP_ATTR.unpack(bytes.fromhex(plain["attrs"])))
    qp = Qp(dct.pd, None, dct.recv_cq, dct.init, attrs, dct.srq, pair, plain["number"], part)
    qp.connected = target_number(dct.qpn)
    return qp


def plain_channel(channel: Channel, destination: Destination, stream: int) -> Record:
    """A channel that is open or closing, to where, and at which stream."""
    return {
        "closing": channel.phase is Phase.CLOSING,
        "attempt": dataclasses.astuple(channel.attempt),
        "context": channel.context,
        "depth": channel.depth,
        "keep": channel.keep,
        "next_psn": channel.next_psn,
        "stream": stream,
        "destination": destination.number,
        "dctn": destination.dctn,
        "key": destination.key,
        "ah": abi.AH_ATTR.pack(destination.ah).hex(),
    }


def made_channel(plain: Record, qp: Qp, now: int) -> tuple[Channel, Destination]:
    """The channel of a record. It has been asked to end, as nobody knows when it was answered last;
    if it closes, that is said again ``now``. Its destination may have been forgotten."""
    assert qp.pd is not None, "an initiator has a protection domain"
    ah = abi.AH_ATTR.unpack(bytes.fromhex(plain["ah"]))
    channel = Channel(
        Phase.CLOSING if plain["closing"] else Phase.OPEN,
        plain["dctn"],
        plain["key"],
        Attempt(*plain["attempt"]),
        plain["context"],
        plain["depth"],
        plain["keep"],
        due=now if plain["closing"] else None,
        answered=now,
        asked=True,
        next_psn=plain["next_psn"],
    )
    return channel, Destination(qp.pd, plain["dctn"], plain["key"], ah, plain["destination"])


def opened_row(qp: Qp, channel: Channel, destination: Destination) -> dict[str, int]:
    """What the row of an initiator says when it is connected."""
    return {
        **initiator_row(qp, destination=destination.number),
        "qpn": channel.attempt.number,
        "dest_qpn": channel.context,
        "max_rd_atomic": channel.depth,
    }
