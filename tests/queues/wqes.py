"""Send and receive WQEs as bytes, and what decoding them must give: written out by hand."""

from __future__ import annotations

import random
import struct
from typing import Any

from tests.operations import request_row

SEND_FIXED, RECV_FIXED = 75, 12
OK, EMPTY, WQE_ERROR, QUEUE_ERROR = range(4)
LOC_LEN_ERR, LOC_QP_OP_ERR = 1, 2
FENCE, SIGNALED, SOLICITED, INLINE = 1, 2, 4, 8


def random_sges(rng: random.Random, count: int) -> list[tuple[int, int, int]]:
    return [
        (rng.getrandbits(64), rng.randrange(1 << 26), rng.getrandbits(32)) for _ in range(count)
    ]


def sge_bytes(sges: list[tuple[int, int, int]]) -> bytes:
    return b"".join(struct.pack("<QII", *one) for one in sges)


def send_wqe(
    rng: random.Random, sges: list[tuple[int, int, int]], inline: bytes | None = None, **fields: int
) -> tuple[bytes, dict[str, Any]]:
    """The element, and the SendWqe it decodes to."""
    flags = rng.getrandbits(3) | (INLINE if inline is not None else 0)
    flags = fields.get("flags", flags)
    opcode = fields.get("opcode", rng.choice([0, 1, 2, 3, 4, 9]))
    wr_id, imm = rng.getrandbits(64), rng.getrandbits(32)
    remote_addr, rkey = rng.getrandbits(64), rng.getrandbits(32)
    num_sge = fields.get("num_sge", 0 if inline is not None else len(sges))
    data = struct.pack("<IIIQI", num_sge, flags, opcode, wr_id, imm)
    data += struct.pack("<QI", remote_addr, rkey) + rng.randbytes(51 - 12)
    assert len(data) == SEND_FIXED
    data += inline if inline is not None else sge_bytes(sges)
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
        "rkey": rkey,
        "length": len(inline) if inline is not None else sum(one[1] for one in sges),
    }
    return data, expected


def recv_wqe(
    rng: random.Random, sges: list[tuple[int, int, int]], **fields: int
) -> tuple[bytes, dict[str, Any]]:
    wr_id = rng.getrandbits(64)
    num_sge = fields.get("num_sge", len(sges))
    length = min(sum(one[1] for one in sges), 0xFFFF_FFFF)
    data = struct.pack("<IQ", num_sge, wr_id) + sge_bytes(sges)
    return data, {"num_sge": num_sge & 0x3F, "wr_id": wr_id, "length": length}
