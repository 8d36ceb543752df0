"""Formats of the elements of send and receive queues: where each field of a WQE lies, as data.

A format is a row of ``WQE_FORMATS``. A queue's row names the format of its elements
(``RingRules.wqe_format``). The decoders (``hdl/queues/wqe``) read the fields where that row of the
table says.

An element is a fixed part and, behind it, SGEs of 16 bytes or inline bytes. How long the fixed part
is, and where its fields lie, may depend on the opcode: that is a ``Layout`` of its own. What a
format cannot say: an inline length of its own, other SGEs than 16 bytes.

Spec: virtio-rdma VR-4.1, VR-4.2, VR-4.4 to VR-4.7 (the first row).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from hdl.abi.enums import SendFlags
from hdl.abi.layout import Scalar, Struct
from hdl.abi.operations import WORK_REQUESTS, WorkRequest
from hdl.abi.virtio_rdma import POST_RECV, POST_SEND, SGE
from hdl.config import CardFeature, NicConfig
from hdl.wire.opcodes import Kind

__all__ = [
    "ADDRESS_VECTOR",
    "FIELDS",
    "FORMAT_BITS",
    "NAMED",
    "OPERANDS",
    "SGE_BYTES",
    "WQE_FORMATS",
    "Layout",
    "Place",
    "WqeFormat",
    "card_formats",
]

#: Bits of a format's number.
FORMAT_BITS = 2
#: Bytes of an SGE of any format.
SGE_BYTES = SGE.size
#: Fields of each WQE; a layout that does not name one has 0 there.
FIELDS = ("num_sge", "wr_id", "imm", "remote_addr", "rkey", "fence", "signaled", "solicited")
#: Operands of an atomic, and the address vector of a datagram. Of another work request, what lies
#: in the places of the latter are its operands (``hdl.ports.shared.operands``).
OPERANDS = ("compare_add", "swap")
#: Bytes that a FLUSH names.
NAMED = "length"
ADDRESS_VECTOR = (
    "pd",
    "gid_index",
    "flow_label",
    "traffic_class",
    "sl",
    "dgid",
    "hop_limit",
    "dmac",
)


@dataclass(frozen=True)
class Place:
    """``bits`` bits from bit ``low`` on of the number that the ``size`` bytes from ``offset`` on
    are; ``big``: its first byte is the highest. ``less`` is taken off what is read, or it is
    ``doubled``."""

    offset: int
    size: int
    low: int = 0
    bits: int = 0  # 0: all from ``low`` on
    big: bool = False
    less: int = 0
    doubled: bool = False

    def __post_init__(self):
        if not 0 <= self.low < self.low + self.width <= 8 * self.size:
            raise ValueError(f"{self.size} bytes have no bits {self.low} to {self.low + self.bits}")

    @property
    def width(self) -> int:
        """Bits of the field."""
        return self.bits or 8 * self.size - self.low

    @property
    def end(self) -> int:
        """Offset of the first byte behind."""
        return self.offset + self.size


def _any(_request: WorkRequest) -> bool:
    return True


@dataclass(frozen=True)
class Layout:
    """Fields of the fixed part of ``fixed`` bytes. ``of``: of a format's layouts, the first one
    for which that is true has the work request; the last has all others."""

    fixed: int
    fields: Mapping[str, Place]
    of: Callable[[WorkRequest], bool] = _any

    def __post_init__(self):
        for name, place in self.fields.items():
            if place.end > self.fixed:
                raise ValueError(f"{name} lies beyond a fixed part of {self.fixed} bytes")


@dataclass(frozen=True)
class WqeFormat:
    """``send``: layouts of a send WQE; ``receive``: that of a receive WQE. ``opcode`` and
    ``inline`` lie at the same place of all send WQEs. ``operations``: work requests by opcode (8
    bits; an opcode above ends with LOC_QP_OP_ERR). ``sge``: fields ``addr``, ``length`` and
    ``lkey`` of an SGE. ``feature``: what a card must have to know the format."""

    name: str
    opcode: Place
    inline: Place | None
    send: tuple[Layout, ...]
    receive: Layout
    sge: Mapping[str, Place]
    operations: Mapping[int, WorkRequest] = field(default_factory=lambda: WORK_REQUESTS)
    feature: CardFeature = CardFeature.BASE

    def opcodes(self, layout: Layout) -> list[int]:
        """Opcodes of the work requests that a layout of it has."""
        return [
            code
            for code, request in self.operations.items()
            if next((one for one in self.send if one.of(request)), self.send[-1]) is layout
        ]


def _place(struct: Struct, path: str) -> Place:
    found = struct.place(path)
    return Place(found.offset, found.size)


def _places(struct: Struct, **paths: str) -> dict[str, Place]:
    return {name: _place(struct, path) for name, path in paths.items()}


def _part(struct: Struct, path: str, low: int, bits: int) -> Place:
    found = struct.place(path)
    assert isinstance(found.kind, Scalar), path
    return Place(found.offset, found.size, low, bits)


def _flag(flag: SendFlags) -> Place:
    return _part(POST_SEND, "send_flags", flag.bit_length() - 1, 1)


_AV, _PACKED = "wr.ud.av", "wr.ud.av.sl_tclass_flowlabel"
_SEND = {
    **_places(POST_SEND, num_sge="num_sge", wr_id="wr_id", imm="ex"),
    **_places(POST_SEND, remote_addr="wr.rdma.remote_addr", rkey="wr.rdma.rkey"),
    **_places(POST_SEND, pd=f"{_AV}.pdn", gid_index=f"{_AV}.gid_index", dgid=f"{_AV}.dgid"),
    **_places(POST_SEND, hop_limit=f"{_AV}.hop_limit", dmac=f"{_AV}.dmac"),
    "flow_label": _part(POST_SEND, _PACKED, 0, 20),
    "traffic_class": _part(POST_SEND, _PACKED, 20, 8),
    "sl": _part(POST_SEND, _PACKED, 28, 4),
    "fence": _flag(SendFlags.FENCE),
    "signaled": _flag(SendFlags.SIGNALED),
    "solicited": _flag(SendFlags.SOLICITED),
}
_ATOMIC = _SEND | _places(
    POST_SEND,
    rkey="wr.atomic.rkey",
    **{name: f"wr.atomic.{name}" for name in OPERANDS},
)

_FLUSH = _SEND | {
    **_places(POST_SEND, remote_addr="wr.flush.remote_addr", rkey="wr.flush.rkey"),
    NAMED: _place(POST_SEND, "wr.flush.length"),
    # Type and level, one behind the other: ``WQE_FLUSH`` of hdl/ports/shared.py.
    "imm": Place(POST_SEND.offset("wr.flush.type"), 2),
}
#: The slots behind the fixed part of a layout are counted as SGEs: one for each entry, or two.
_ENTRIES = _place(POST_SEND, "wr.mkey.num_entries")
_LIST = _SEND | {"num_sge": _ENTRIES}
_INTERLEAVED = _SEND | {"num_sge": replace(_ENTRIES, doubled=True)}
_STORED = _place(POST_SEND, "wr.atomic_write.data")
_ATOMIC_WRITE = _SEND | {
    **_places(POST_SEND, remote_addr="wr.atomic_write.remote_addr", rkey="wr.atomic_write.rkey"),
    "compare_add": Place(_STORED.offset, _STORED.size, big=True),  # it is sent as a number would be
}

#: Number of a format, as ``RingRules.wqe_format`` has it -> its row. The fast path reads the first
#: one that a card has (docs/queues.md).
WQE_FORMATS: dict[int, WqeFormat] = {
    0: WqeFormat(
        "virtio-rdma",
        opcode=_place(POST_SEND, "opcode"),
        inline=_flag(SendFlags.INLINE),
        send=(
            Layout(POST_SEND.size, _FLUSH, lambda one: one.placement and one.kind is Kind.READ),
            Layout(POST_SEND.size, _ATOMIC_WRITE, lambda request: request.placement),
            Layout(POST_SEND.size, _INTERLEAVED, lambda request: request.repeats),
            Layout(POST_SEND.size, _LIST, lambda request: request.layout),
            Layout(POST_SEND.size, _ATOMIC, lambda request: request.kind is Kind.ATOMIC),
            Layout(POST_SEND.size, _SEND),
        ),
        receive=Layout(POST_RECV.size, _places(POST_RECV, num_sge="num_sge", wr_id="wr_id")),
        sge=_places(SGE, addr="addr", length="length", lkey="lkey"),
    )
}


def card_formats(config: NicConfig) -> dict[int, WqeFormat]:
    """The formats that a card knows, by number. Errors: ValueError for a number without room."""
    if wide := [n for n in WQE_FORMATS if n >> FORMAT_BITS]:
        raise ValueError(f"Numbers of formats have {FORMAT_BITS} bits, not {wide}")
    return {n: one for n, one in WQE_FORMATS.items() if one.feature in config.features}
