"""Raw work queue elements: their segments, and what the card is asked for in their place.

An element lies in memory as libmlx5's public header has it: a control segment, then what its
opcode needs, in units of 16 bytes and in network order. The card has a format of its own, so the
library translates; the card knows nothing of this (mlx5dv_wr_post(3)).
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hdl.abi.enums import SendFlags
from sim.guest.driver.errors import RdmaError
from sim.guest.verbs import AH as GuestAH
from sim.guest.verbs import SGE as GuestSGE
from sim.guest.verbs import SendWR as GuestSendWR
from sim.guest.verbs.address import AHAttr, GlobalRoute
from sim.programs.pyverbs import enums
from sim.programs.pyverbs.base import PyverbsCM, show
from sim.programs.pyverbs.providers.mlx5 import mlx5_enums as dv

__all__ = ["Wqe", "WqeCtrlSeg", "WqeDataSeg", "WqeSeg", "translate"]

#: Bytes of a unit; of the control segment and of one for data, too.
UNIT = 16
#: Units that an element has at the most: its number has six bits.
MOST_UNITS = 63
#: opmod, index and opcode; queue pair and units; signature; stream; flags; immediate or key.
_CTRL = struct.Struct(">IIBHBI")
#: Bytes, key and address; a length with its highest bit set says that the bytes follow it.
_DATA = struct.Struct(">IIQ")
_INLINE = 1 << 31
_REMOTE = struct.Struct(">QI4x")
_ATOMIC = struct.Struct(">QQ")
#: Q_Key; queue pair; rate and level; LID; UDP port; MAC; class; hop limit; GRH, flow; GID.
_ADDRESS = struct.Struct(">I4xIBBH4x6sBBI16s")


class WqeSeg(PyverbsCM):
    """Bytes of an element, whose parts are fields of the segment."""

    layout: struct.Struct
    #: Names of the parts.
    names: tuple[str, ...]

    def __init__(self, *values: int):
        super().__init__()
        self._bytes = ctypes.create_string_buffer(self.layout.size)
        self._set(*values)

    def _set(self, *values: float) -> None:
        self.layout.pack_into(self._bytes, 0, *map(int, values))

    def _get(self) -> list[int]:
        return list(self.layout.unpack_from(self._bytes))

    @classmethod
    def sizeof(cls) -> int:
        """Bytes of it."""
        return cls.layout.size

    def _copy_to_buffer(self, addr: int) -> None:
        ctypes.memmove(addr, self._bytes, self.layout.size)

    def __str__(self) -> str:
        return show(**dict(zip(self.names, self._get(), strict=True)))


def _part(index: int, what: str) -> Any:
    """A property that is one of the parts."""

    def get(segment: WqeSeg) -> int:
        return segment._get()[index]

    def put(segment: WqeSeg, value: float) -> None:
        parts = segment._get()
        parts[index] = int(value)
        segment._set(*parts)

    return property(get, put, doc=what)


class WqeCtrlSeg(WqeSeg):
    """What is to be done. ``pi``: its place in the queue, which means nothing here."""

    layout = _CTRL
    names = ("opmod_idx_opcode", "qpn_ds", "signature", "stream_id", "fm_ce_se", "imm")

    #: Arguments, in their order; each is 0 unless it is given.
    _ARGUMENTS = ("pi", "opcode", "opmod", "qp_num", "fm_ce_se", "ds", "signature", "imm")

    def __init__(self, *values: int, **named: int):
        super().__init__(*(0 for _ in self.names))
        if unknown := named.keys() - {*self._ARGUMENTS}:
            raise TypeError(f"WqeCtrlSeg takes no {', '.join(sorted(unknown))}")
        given = dict.fromkeys(self._ARGUMENTS, 0) | dict(zip(self._ARGUMENTS, values, strict=False))
        self.set_ctrl_seg(*(given | named).values())

    def set_ctrl_seg(self, *values: int) -> None:
        """Sets all parts, as the constructor has them."""
        place, opcode, modifier, qp_num, flags, units, signature, imm = values
        words = modifier << 24 | (place & 0xFFFF) << 8 | opcode, qp_num << 8 | units
        # ``imm`` is in network order already, as ``mlx5dv_set_ctrl_seg`` takes it.
        swapped = int.from_bytes(imm.to_bytes(4, "little"), "big")
        self._set(*words, signature, 0, flags, swapped)

    opmod_idx_opcode = _part(0, "Modifier, place and opcode in one word.")
    qpn_ds = _part(1, "Number of the queue pair, and units of the element, in one word.")
    signature = _part(2, "Means nothing here.")
    fm_ce_se = _part(4, "Whether it is signalled, solicited, and waits for those before it.")
    imm = _part(5, "Immediate, or the key that is to be invalidated.")

    @property
    def addr(self) -> int:
        """Where it lies."""
        return ctypes.addressof(self._bytes)


class WqeDataSeg(WqeSeg):
    """``length`` bytes at an address, in the region with ``lkey``."""

    layout, names = _DATA, ("byte_count", "lkey", "addr")

    def __init__(self, length: float = 0, lkey: int = 0, addr: float = 0):
        super().__init__(0, 0, 0)
        self.set_data_seg(length, lkey, addr)

    def set_data_seg(self, length: float, lkey: int, addr: float) -> None:
        """Sets all parts."""
        self._set(length, lkey, addr)

    byte_count = _part(0, "Bytes.")
    lkey = _part(1, "Key.")
    addr = _part(2, "Address of the bytes.")


class Wqe(PyverbsCM):
    """Segments one after the other, at ``addr`` or in memory of its own."""

    def __init__(self, segments: Sequence[WqeSeg], addr: int = 0):
        super().__init__()
        self.segments = segments
        size = sum(one.sizeof() for one in segments)
        self._own = None if addr else ctypes.create_string_buffer(max(size, 1))
        self.address: int = addr or ctypes.addressof(self._own)  # type: ignore[arg-type]
        at = self.address
        for one in segments:
            one._copy_to_buffer(at)
            at += one.sizeof()

    def __str__(self) -> str:
        return "".join(
            f"Segment type {type(one).__name__} #{i}:\n{one}" for i, one in enumerate(self.segments)
        )


@dataclass(frozen=True)
class _Kind:
    """What an opcode is. ``remote``, ``atomic``: segments that it has. ``word``: what the last word
    of the control segment is: immediate ("imm"), key ("key") or nothing."""

    opcode: int
    remote: bool = False
    atomic: bool = False
    word: str = ""
    data: bool = True


_KINDS = {
    dv.MLX5_OPCODE_SEND: _Kind(enums.IBV_WR_SEND),
    dv.MLX5_OPCODE_SEND_IMM: _Kind(enums.IBV_WR_SEND_WITH_IMM, word="imm"),
    dv.MLX5_OPCODE_SEND_INVAL: _Kind(enums.IBV_WR_SEND_WITH_INV, word="key"),
    dv.MLX5_OPCODE_RDMA_WRITE: _Kind(enums.IBV_WR_RDMA_WRITE, remote=True),
    dv.MLX5_OPCODE_RDMA_WRITE_IMM: _Kind(enums.IBV_WR_RDMA_WRITE_WITH_IMM, remote=True, word="imm"),
    dv.MLX5_OPCODE_RDMA_READ: _Kind(enums.IBV_WR_RDMA_READ, remote=True),
    dv.MLX5_OPCODE_ATOMIC_CS: _Kind(enums.IBV_WR_ATOMIC_CMP_AND_SWP, remote=True, atomic=True),
    dv.MLX5_OPCODE_ATOMIC_FA: _Kind(enums.IBV_WR_ATOMIC_FETCH_AND_ADD, remote=True, atomic=True),
    dv.MLX5_OPCODE_LOCAL_INVAL: _Kind(enums.IBV_WR_LOCAL_INV, word="key", data=False),
}


class _Rest:
    """What of an element is still to be read; EINVAL when it ends too early."""

    def __init__(self, octets: bytes):
        self.octets = octets

    def take(self, layout: struct.Struct) -> tuple[Any, ...]:
        if len(self.octets) < layout.size:
            raise RdmaError(errno.EINVAL, "The element ends within a segment")
        head, self.octets = self.octets[: layout.size], self.octets[layout.size :]
        return layout.unpack(head)

    def skip(self, size: int) -> bytes:
        if len(self.octets) < size:
            raise RdmaError(errno.EINVAL, "The element ends within its bytes")
        head, self.octets = self.octets[:size], self.octets[size:]
        return head


def translate(address: int, wr_id: int, pd: Any, datagrams: bool) -> GuestSendWR:
    """The request of the element that lies at ``address``; it is read now.

    datagrams: of a queue pair for them, whose elements have an address. RdmaError: EOPNOTSUPP for
    an opcode that has no counterpart, EINVAL for segments that it does not have.
    """
    word, units = struct.unpack(">II", ctypes.string_at(address, 8))
    kind, count = _KINDS.get(word & 0xFF), units & MOST_UNITS
    if kind is None or word >> 24:
        raise RdmaError(errno.EOPNOTSUPP, f"Opcode {word & 0xFF:#x} has no counterpart")
    rest = _Rest(ctypes.string_at(address, count * UNIT))
    *_, flags, last = rest.take(_CTRL)
    wr = GuestSendWR(wr_id, kind.opcode, [], _flags(flags))
    if kind.word == "key":
        wr.invalidate_rkey = last
    elif kind.word == "imm":
        wr.imm_data = last
    if datagrams:
        _address(wr, rest.take(_ADDRESS), pd)
    if kind.remote:
        addr, rkey = rest.take(_REMOTE)
        operands = rest.take(_ATOMIC) if kind.atomic else ()
        _remote(wr, kind, rkey, addr, operands)
    if kind.data:
        _data(wr, rest)
    elif rest.octets:
        raise RdmaError(errno.EINVAL, "The element is longer than its opcode allows")
    return wr


def _flags(bits: int) -> SendFlags:
    flags = SendFlags(0)
    for bit, flag in (
        (dv.MLX5_WQE_CTRL_CQ_UPDATE, SendFlags.SIGNALED),
        (dv.MLX5_WQE_CTRL_SOLICITED, SendFlags.SOLICITED),
        (dv.MLX5_WQE_CTRL_FENCE, SendFlags.FENCE),
    ):
        if bits & bit:
            flags |= flag
    return flags


def _remote(wr: GuestSendWR, kind: _Kind, rkey: int, addr: int, operands: tuple[int, ...]) -> None:
    """Fetch and add has its operand where compare and swap has what it writes."""
    if not operands:
        wr.set_wr_rdma(rkey, addr)
    elif kind.opcode == enums.IBV_WR_ATOMIC_FETCH_AND_ADD:
        wr.set_wr_atomic(rkey, addr, operands[0])
    else:
        swap, compare = operands
        wr.set_wr_atomic(rkey, addr, compare, swap)


def _address(wr: GuestSendWR, parts: tuple[Any, ...], pd: Any) -> None:
    qkey, peer, level, _, _, mac, traffic_class, hop_limit, route, gid = parts
    where = GlobalRoute(gid, route & 0xFFFFF, route >> 20 & 0xFF, hop_limit, traffic_class)
    attr = AHAttr(where, sl=level & 0xF, roce_dmac=mac)
    wr.set_wr_ud(GuestAH(pd, attr), peer & 0xFFFFFF, qkey)


def _data(wr: GuestSendWR, rest: _Rest) -> None:
    """SGEs, or the bytes themselves; an element has one or the other."""
    sges, inline = list[GuestSGE](), list[bytes]()
    while rest.octets:
        (head,) = struct.unpack(">I", rest.octets[:4])
        if head & _INLINE:
            size = head & (_INLINE - 1)
            whole = rest.skip(-(-(4 + size) // UNIT) * UNIT)
            inline.append(whole[4 : 4 + size])
        else:
            length, lkey, addr = rest.take(_DATA)
            sges.append(GuestSGE(addr, length, lkey))
    if sges and inline:
        raise RdmaError(errno.EINVAL, "The element has bytes and addresses of bytes")
    wr.sg = sges
    if inline:
        wr.inline_data = b"".join(inline)
        wr.send_flags |= SendFlags.INLINE
