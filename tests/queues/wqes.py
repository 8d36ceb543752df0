"""Send and receive WQEs as bytes, and what decoding them must give: written out by hand."""

from __future__ import annotations

import random
import struct
from typing import Any

from hdl.abi.operations import WORK_REQUESTS
from tests.operations import request_row

SEND_FIXED, RECV_FIXED = 75, 12
OK, EMPTY, WQE_ERROR, QUEUE_ERROR = range(4)
LOC_LEN_ERR, LOC_QP_OP_ERR = 1, 2
FENCE, SIGNALED, SOLICITED, INLINE = 1, 2, 4, 8
ATOMICS = CMP_AND_SWP, FETCH_AND_ADD = 5, 6
#: The slot of an atomic's operands.
OPERAND_SLOT = 31


class SendExpected(dict[str, Any]):
    """A SendWqe. ``destination``: the address vector that lies in its place; ``operands``: what an
    atomic's line holds in ``OPERAND_SLOT``, else nothing."""

    def __init__(self, fields: dict[str, Any], destination: dict[str, int], operands: bytes):
        super().__init__(fields)
        self.destination, self.operands = destination, operands


def random_sges(rng: random.Random, count: int) -> list[tuple[int, int, int]]:
    return [
        (rng.getrandbits(64), rng.randrange(1 << 26), rng.getrandbits(32)) for _ in range(count)
    ]


def sge_bytes(sges: list[tuple[int, int, int]]) -> bytes:
    return b"".join(struct.pack("<QII", *one) for one in sges)


def send_wqe(
    rng: random.Random, sges: list[tuple[int, int, int]], inline: bytes | None = None, **fields: int
) -> tuple[bytes, SendExpected]:
    """The element, and what it decodes to. Without ``opcode`` it has any, known or not; inline none
    of an atomic, which is refused later: what its line holds is nobody's promise."""
    flags = rng.getrandbits(3) | (INLINE if inline is not None else 0)
    flags = fields.get("flags", flags)
    known = [code for code in WORK_REQUESTS if inline is None or code not in ATOMICS]
    opcode = fields.get("opcode", rng.choice([*known, rng.randrange(64, 256)]))
    wr_id, imm = rng.getrandbits(64), rng.getrandbits(32)
    num_sge = fields.get("num_sge", 0 if inline is not None else len(sges))
    rest = rng.randbytes(51)  # what it holds depends on the opcode
    data = struct.pack("<IIIQI", num_sge, flags, opcode, wr_id, imm) + rest
    assert len(data) == SEND_FIXED
    data += inline if inline is not None else sge_bytes(sges)
    remote_addr, compare_add, swap, atomic_rkey = struct.unpack_from("<QQQI", rest)
    (rkey,) = struct.unpack_from("<I", rest, 8)
    atomic = opcode in ATOMICS
    pd, packed = struct.unpack_from("<II", rest, 12)
    destination = {
        "pd": pd,
        "gid_index": rest[36],
        "flow_label": packed & 0xFFFFF,
        "traffic_class": (packed >> 20) & 0xFF,
        "sl": packed >> 28,
        "dgid": int.from_bytes(rest[20:36], "little"),
        "hop_limit": rest[38],
        "dmac": int.from_bytes(rest[39:45], "little"),
    }
    operands = b""
    if atomic:
        pair = (swap, compare_add) if opcode == CMP_AND_SWP else (compare_add, 0)
        operands = struct.pack(">QQ", *pair)
    expected = {
        "operation": request_row(opcode & 0xFF),
        "fence": flags & FENCE and 1,
        "signaled": (flags & SIGNALED) >> 1,
        "solicited": (flags & SOLICITED) >> 2,
        "inline": int(inline is not None),
        "num_sge": num_sge & 0x3F,
        "wr_id": wr_id,
        "imm": imm,
        "remote_addr": remote_addr,
        "rkey": atomic_rkey if atomic else rkey,
        "length": len(inline) if inline is not None else sum(one[1] for one in sges),
    }
    return data, SendExpected(expected, destination, operands)


def recv_wqe(
    rng: random.Random, sges: list[tuple[int, int, int]], **fields: int
) -> tuple[bytes, dict[str, Any]]:
    wr_id = rng.getrandbits(64)
    num_sge = fields.get("num_sge", len(sges))
    length = min(sum(one[1] for one in sges), 0xFFFF_FFFF)
    data = struct.pack("<IQ", num_sge, wr_id) + sge_bytes(sges)
    return data, {"num_sge": num_sge & 0x3F, "wr_id": wr_id, "length": length}
