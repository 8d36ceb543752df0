"""Work requests: the one table that says what each send WR opcode is and how it is sent.

What a request asks of the other side follows from its packets, whose rows are in
``hdl.wire.opcodes``; here stands only what the wire does not know.

Spec: VR-4.4 (opcodes), VR-4.9 (opcodes of completions); IBTA vol 1, 9.4 and 10.7.2.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hdl.config import CardFeature
from hdl.wire.opcodes import NO_RIGHTS, OPCODES, Answer, Kind, Opcode, Position, Psns, Transport
from hdl.wire.opcodes import Operation as Op

from .enums import Access, WcOpcode, WrOpcode

__all__ = ["WORK_REQUESTS", "WorkRequest"]


@dataclass(frozen=True)
class WorkRequest:
    """One WR opcode.

    ``packets``: low five bits of the BTH opcode for each place in the message; a request that has
    ONLY alone goes out as one packet whatever its length is, one without packets is local.
    ``services``: those that know it, the one that serves as its example first. ``completion``:
    opcode of its CQE. ``rights``: what its SGEs' keys must allow. ``feature``: what a card must
    have to execute it, beside its service. ``invalidate``: it ends with the invalidation of a key
    of its own side. ``bind``: it binds a memory window. ``repeats``: it sets a layout whose
    entries come again and again.
    """

    code: int
    name: str
    kind: Kind
    completion: WcOpcode
    services: tuple[Transport, ...] = ()
    packets: Mapping[Position, int] = field(default_factory=dict)
    rights: Access = NO_RIGHTS
    feature: CardFeature = CardFeature.BASE
    invalidate: bool = False
    bind: bool = False
    repeats: bool = False

    @property
    def final(self) -> Opcode | None:
        """The row of the packet that ends it, of its first service; None for a local one."""
        if not self.packets:
            return None
        return OPCODES[self.services[0] << 5 | self.packets[Position.ONLY]]

    @property
    def immediate(self) -> bool:
        """Whether its last packet carries immediate data."""
        return self.final is not None and self.final.immediate

    @property
    def receive(self) -> bool:
        """Whether it ends a receive WQE of the other side."""
        return self.final is not None and self.final.receive

    @property
    def data(self) -> bool:
        """Whether data come back into its SGEs; otherwise what they hold goes out."""
        return self.copies or (self.final is not None and self.final.answer is Answer.DATA)

    @property
    def copies(self) -> bool:
        """Whether it copies inside host memory: from its second SGE to its first. Like
        a READ it has a sink, which is told where its data go."""
        return self.feature is CardFeature.MEMCPY

    @property
    def compares(self) -> bool:
        """Whether it is an atomic that compares the word with its operand."""
        return self.final is not None and self.final.compares

    @property
    def layout(self) -> bool:
        """Whether it gives an indirect key a layout."""
        return self.feature is CardFeature.MKEYS

    @property
    def by_length(self) -> bool:
        """Whether its one packet takes a PSN for each packet of the answer."""
        return self.final is not None and self.final.psns is Psns.BY_LENGTH

    @property
    def placement(self) -> bool:
        """Whether it has no SGEs, as its answer brings no data: FLUSH, ATOMIC WRITE."""
        return self.feature is CardFeature.PLACEMENT


_CONNECTED = (Transport.RC, Transport.XRC, Transport.UC)
_RELIABLE = (Transport.RC, Transport.XRC)
_BASE, _KEYS = CardFeature.BASE, CardFeature.FAST_REGISTRATION


def _local(
    opcode: WrOpcode,
    completion: WcOpcode,
    *,
    invalidate: bool = False,
    bind: bool = False,
    feature: CardFeature = _KEYS,
) -> WorkRequest:
    return WorkRequest(
        opcode,
        opcode.name,
        Kind.LOCAL,
        completion,
        _CONNECTED,
        feature=feature,
        invalidate=invalidate,
        bind=bind,
    )


def _send(
    opcode: WrOpcode,
    last: Op,
    only: Op,
    *services: Transport,
    feature: CardFeature = _BASE,
) -> WorkRequest:
    first = {Position.FIRST: Op.SEND_FIRST, Position.MIDDLE: Op.SEND_MIDDLE}
    packets = {**first, Position.LAST: last, Position.ONLY: only}
    return WorkRequest(
        opcode, opcode.name, Kind.SEND, WcOpcode.SEND, services, packets, feature=feature
    )


def _write(opcode: WrOpcode, last: Op, only: Op) -> WorkRequest:
    first = {Position.FIRST: Op.WRITE_FIRST, Position.MIDDLE: Op.WRITE_MIDDLE}
    packets = {**first, Position.LAST: last, Position.ONLY: only}
    return WorkRequest(opcode, opcode.name, Kind.WRITE, WcOpcode.RDMA_WRITE, _CONNECTED, packets)


def _fetch(
    opcode: WrOpcode,
    kind: Kind,
    only: Op,
    completion: WcOpcode,
    feature: CardFeature = _BASE,
) -> WorkRequest:
    """A request that brings data back; one of ``_KEYS`` invalidates a key behind them."""
    packets, rights, keys = {Position.ONLY: only}, Access.LOCAL_WRITE, feature is _KEYS
    return WorkRequest(
        opcode, opcode.name, kind, completion, _RELIABLE, packets, rights, feature, keys
    )


def _place(opcode: WrOpcode, kind: Kind, only: Op, completion: WcOpcode) -> WorkRequest:
    """A request whose answer is awaited as data are, and brings none."""
    packets = {Position.ONLY: only}
    return WorkRequest(
        opcode, opcode.name, kind, completion, (Transport.RC,), packets, feature=_PLACES
    )


def _copy(opcode: WrOpcode, completion: WcOpcode) -> WorkRequest:
    """A request whose data come back without having left the card."""
    services, feature = (Transport.RC,), CardFeature.MEMCPY
    return WorkRequest(opcode, opcode.name, Kind.LOCAL, completion, services, feature=feature)


def _layout(opcode: WrOpcode, *, repeats: bool) -> WorkRequest:
    """A local request that gives an indirect key a layout."""
    return WorkRequest(
        opcode,
        opcode.name,
        Kind.LOCAL,
        WcOpcode.MKEY,
        (Transport.RC,),
        feature=CardFeature.MKEYS,
        repeats=repeats,
    )


_UD, _ATOMICS, _PLACES = Transport.UD, CardFeature.ATOMICS, CardFeature.PLACEMENT
_ROWS = (
    _write(WrOpcode.RDMA_WRITE, Op.WRITE_LAST, Op.WRITE_ONLY),
    _write(WrOpcode.RDMA_WRITE_WITH_IMM, Op.WRITE_LAST_IMM, Op.WRITE_ONLY_IMM),
    _send(WrOpcode.SEND, Op.SEND_LAST, Op.SEND_ONLY, *_CONNECTED, _UD),
    _send(WrOpcode.SEND_WITH_IMM, Op.SEND_LAST_IMM, Op.SEND_ONLY_IMM, *_CONNECTED, _UD),
    _fetch(WrOpcode.RDMA_READ, Kind.READ, Op.READ_REQUEST, WcOpcode.RDMA_READ),
    _fetch(WrOpcode.ATOMIC_CMP_AND_SWP, Kind.ATOMIC, Op.CMP_SWAP, WcOpcode.COMP_SWAP, _ATOMICS),
    _fetch(WrOpcode.ATOMIC_FETCH_AND_ADD, Kind.ATOMIC, Op.FETCH_ADD, WcOpcode.FETCH_ADD, _ATOMICS),
    _local(WrOpcode.LOCAL_INV, WcOpcode.LOCAL_INV, invalidate=True),
    _send(WrOpcode.SEND_WITH_INV, Op.SEND_LAST_INV, Op.SEND_ONLY_INV, *_RELIABLE, feature=_KEYS),
    _fetch(WrOpcode.RDMA_READ_WITH_INV, Kind.READ, Op.READ_REQUEST, WcOpcode.RDMA_READ, _KEYS),
    _local(WrOpcode.REG_MR, WcOpcode.REG_MR),
    _place(WrOpcode.FLUSH, Kind.READ, Op.FLUSH, WcOpcode.FLUSH),
    _place(WrOpcode.ATOMIC_WRITE, Kind.ATOMIC, Op.ATOMIC_WRITE, WcOpcode.ATOMIC_WRITE),
    _local(WrOpcode.BIND_MW, WcOpcode.BIND_MW, bind=True, feature=CardFeature.MW),
    _layout(WrOpcode.MKEY_LIST, repeats=False),
    _layout(WrOpcode.MKEY_INTERLEAVED, repeats=True),
    _copy(WrOpcode.MEMCPY, WcOpcode.MEMCPY),
)

#: Every WR opcode that the ABI knows, by code.
WORK_REQUESTS: dict[int, WorkRequest] = {int(request.code): request for request in _ROWS}
