"""An imaginary WQE format: big-endian, in segments of 16 bytes, as many as the opcode needs."""

from __future__ import annotations

import random
import struct

from hdl.abi.enums import WrOpcode
from hdl.abi.operations import WORK_REQUESTS
from hdl.abi.wqe_formats import Layout, Place, WqeFormat
from hdl.wire.opcodes import Kind
from tests.operations import request_row
from tests.queues.wqes import SendExpected

__all__ = ["FORMAT", "OPCODES", "SEGMENTS", "recv_element", "send_element", "sge_segments"]

FORMAT = 1
SEGMENT = 16
#: Its opcodes, and segments in front of the SGEs or the inline bytes.
OPCODES = {
    0x01: (WrOpcode.SEND_WITH_INV, 2),
    0x08: (WrOpcode.RDMA_WRITE, 3),
    0x09: (WrOpcode.RDMA_WRITE_WITH_IMM, 3),
    0x0A: (WrOpcode.SEND, 2),
    0x0B: (WrOpcode.SEND_WITH_IMM, 2),
    0x10: (WrOpcode.RDMA_READ, 3),
    0x11: (WrOpcode.ATOMIC_CMP_AND_SWP, 4),
    0x12: (WrOpcode.ATOMIC_FETCH_AND_ADD, 4),
}


def _big(offset: int, size: int, low: int = 0, bits: int = 0, less: int = 0) -> Place:
    return Place(offset, size, low, bits, big=True, less=less)


def _layout(segments: int, of, **fields: Place) -> Layout:
    """What all have: segments in all, flags, immediate and name; and ``fields``."""
    common = {
        "num_sge": _big(4, 4, 0, 6, less=segments),
        "fence": _big(8, 4, 2, 1),
        "signaled": _big(8, 4, 3, 1),
        "solicited": _big(8, 4, 1, 1),
        "imm": Place(12, 4),
        "wr_id": _big(16, 8),
    }
    return Layout(SEGMENT * segments, common | fields, of)


_REMOTE = {"remote_addr": _big(32, 8), "rkey": _big(40, 4)}
#: The row of the table.
SEGMENTS = WqeFormat(
    "segments",
    opcode=_big(0, 4, 0, 8),
    inline=_big(8, 4, 31, 1),
    send=(
        _layout(2, lambda one: one.code == WrOpcode.SEND_WITH_INV, imm=_big(12, 4)),
        _layout(4, lambda one: one.compares, swap=_big(48, 8), compare_add=_big(56, 8), **_REMOTE),
        _layout(4, lambda one: one.kind is Kind.ATOMIC, compare_add=_big(48, 8), **_REMOTE),
        _layout(3, lambda one: one.kind in (Kind.WRITE, Kind.READ), **_REMOTE),
        _layout(2, lambda _one: True),
    ),
    receive=Layout(SEGMENT, {"wr_id": _big(0, 8), "num_sge": _big(8, 4)}),
    sge={"length": _big(0, 4), "lkey": _big(4, 4), "addr": _big(8, 8)},
    operations={code: WORK_REQUESTS[request] for code, (request, _) in OPCODES.items()},
)


def sge_segments(sges: list[tuple[int, int, int]]) -> bytes:
    return b"".join(struct.pack(">IIQ", length, lkey, addr) for addr, length, lkey in sges)


def send_element(
    rng: random.Random,
    sges: list[tuple[int, int, int]],
    inline: bytes | None = None,
    **fields: int,
) -> tuple[bytes, SendExpected]:
    """The element, and the WQE that it is. ``opcode``: of ``OPCODES``; ``segments``: what it says
    of its length."""
    opcode = fields.get("opcode", rng.choice([*OPCODES]))
    request, fixed = OPCODES[opcode]
    segments = fields.get("segments", fixed + len(sges))
    flags = rng.getrandbits(3)  # solicited, fence, signaled
    imm, wr_id, remote, rkey = (rng.getrandbits(bits) for bits in (32, 64, 64, 32))
    first, second = rng.getrandbits(64), rng.getrandbits(64)
    words = (opcode | rng.getrandbits(24) << 8, rng.getrandbits(24) << 8 | segments)
    data = struct.pack(">IIII", *words, flags << 1 | (inline is not None) << 31, imm)
    data += struct.pack(">QQQIIQQ", wr_id, rng.getrandbits(64), remote, rkey, 0, first, second)
    data = data[: SEGMENT * fixed] + (sge_segments(sges) if inline is None else inline)
    raw = int.from_bytes(struct.pack(">I", imm), "little")
    operands = {
        WrOpcode.ATOMIC_CMP_AND_SWP: struct.pack(">QQ", first, second),
        WrOpcode.ATOMIC_FETCH_AND_ADD: struct.pack(">QQ", first, 0),
    }
    expected = {
        "operation": request_row(request),
        "solicited": flags & 1,
        "fence": flags >> 1 & 1,
        "signaled": flags >> 2 & 1,
        "inline": int(inline is not None),
        "num_sge": (segments - fixed) & 0x3F,
        "wr_id": wr_id,
        "imm": imm if request == WrOpcode.SEND_WITH_INV else raw,
        "remote_addr": remote if fixed > 2 else 0,
        "rkey": rkey if fixed > 2 else 0,
        "length": len(inline) if inline is not None else sum(one[1] for one in sges),
    }
    return data, SendExpected(expected, {}, operands.get(request, b""))


def recv_element(rng: random.Random, sges: list[tuple[int, int, int]]) -> tuple[bytes, dict]:
    """The element, and the WQE that it is."""
    wr_id, length = rng.getrandbits(64), min(sum(one[1] for one in sges), 0xFFFF_FFFF)
    data = struct.pack(">QII", wr_id, len(sges), rng.getrandbits(32)) + sge_segments(sges)
    return data, {"num_sge": len(sges), "wr_id": wr_id, "length": length}
