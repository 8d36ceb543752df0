"""Rows inside the room: a packet's headers ready to send, and a beat on its way to the ICRC."""

from amaranth.lib import data
from amaranth.utils import ceil_log2

from hdl.config import NicConfig
from hdl.ports.atomics import OPERAND_BYTES
from hdl.ports.headers import Departure
from hdl.wire.constants import MAX_MTU, MIN_FRAME, bth_offset
from hdl.wire.headers import (
    AETH,
    ATOMIC_ACK_ETH,
    ATOMIC_ETH,
    BTH,
    DC_CONNECT,
    DC_END,
    DC_REPLY,
    DETH,
    FETH,
    IETH,
    IMM_DT,
    RETH,
    XRCETH,
)
from hdl.wire.opcodes import ROCE_OPCODES, Opcode, card_opcodes, services

__all__ = [
    "CONTENTS",
    "FRAME_BYTES",
    "SENT_OPCODES",
    "beat_number",
    "built_bytes",
    "extended_bytes",
    "head",
    "head_bytes",
    "lengths",
    "sealed_beat",
    "sent_opcodes",
]

#: Headers that a ``TxHeader`` has the fields of.
FILLED = (RETH, AETH, IMM_DT, IETH, ATOMIC_ETH, ATOMIC_ACK_ETH, DETH, FETH, XRCETH)
#: Headers of ``DcControl``, which the firmware fills.
CONTENTS = (DC_CONNECT, DC_REPLY, DC_END)
#: Bytes of them that follow from it. The operands of an atomic are the packet's payload in here.
BUILT_BYTES = {header: header.size for header in FILLED + CONTENTS} | {
    ATOMIC_ETH: ATOMIC_ETH.size - OPERAND_BYTES
}
#: Opcodes that can be sent.
SENT_OPCODES = {
    code: opcode
    for code, opcode in ROCE_OPCODES.items()
    if all(header in BUILT_BYTES for header in opcode.headers)
}


def built_bytes(opcode: Opcode) -> int:
    """Bytes of the extended headers that are built here."""
    return sum(BUILT_BYTES[header] for header in opcode.headers)


#: Bytes of all headers but the extended ones.
BASE_BYTES = bth_offset(vlan=True, ipv6=True) + BTH.size
#: Bytes of the longest frame of any card: headers, payload, pad and ICRC.
FRAME_BYTES = max(
    MIN_FRAME, BASE_BYTES + max(built_bytes(one) for one in SENT_OPCODES.values()) + MAX_MTU + 8
)


def sent_opcodes(config: NicConfig) -> dict[int, Opcode]:
    """Those that this card sends."""
    served, known = services(config), card_opcodes(config)
    sent = (code for code in SENT_OPCODES if code in known)
    return {code: SENT_OPCODES[code] for code in sent if SENT_OPCODES[code].transport in served}


def extended_bytes(config: NicConfig) -> int:
    """Bytes of the longest extended headers that this card builds."""
    return max(built_bytes(opcode) for opcode in card_sends(config))


def head_bytes(config: NicConfig) -> int:
    """Bytes of all headers that this card builds, if they are the longest ones."""
    return BASE_BYTES + extended_bytes(config)


def card_sends(config: NicConfig) -> list[Opcode]:
    """The opcodes that this card knows and could send."""
    return [row for code, row in SENT_OPCODES.items() if code in card_opcodes(config)]


def head(width: int) -> data.StructLayout:
    """One packet to send. ``checksum`` of an IPv4 header is not in its bytes yet."""
    return data.StructLayout({"lengths": lengths(width), "checksum": 16})


def lengths(width: int) -> data.StructLayout:
    """The lengths that follow from all headers of one packet.

    ``size`` of the headers, always 2 modulo 4; ``beats`` of the payload; ``check``: bytes that the
    ICRC covers, so its place; ``frame``: bytes of the frame without FCS; ``last_beat``: number
    of its last beat. ``error``: the frame is sent spoiled. ``told`` and ``departure``:
    see ``TxHeader``.
    """
    size = width // 8
    count = ceil_log2(FRAME_BYTES + 1)
    return data.StructLayout(
        {
            "size": 7,
            "beats": 14 - ceil_log2(size),
            "check": count,
            "frame": count,
            "last_beat": beat_number(width),
            "vlan": 1,
            "ipv6": 1,
            "error": 1,
            "told": 1,
            "departure": Departure,
        }
    )


def beat_number(width: int) -> int:
    """Bits of a number of a frame's beat."""
    return ceil_log2(FRAME_BYTES) - ceil_log2(width // 8) + 1


def sealed_beat(width: int) -> data.StructLayout:
    """A beat of a frame with zeros in place of its ICRC, and what the ICRC needs to know.

    ``error`` is final where the ICRC starts; ``frame`` is the frame's length in bytes; ``number``
    counts its beats; ``ends``: the ICRC starts in this beat, at byte ``place``; ``skip``: this beat
    lies behind it; ``tail``: the ICRC's second half starts this beat.
    """
    lane_bits = ceil_log2(width // 8)
    return data.StructLayout(
        {
            "data": width,
            "first": 1,
            "last": 1,
            "error": 1,
            "frame": ceil_log2(FRAME_BYTES + 1),
            "number": beat_number(width),
            "vlan": 1,
            "ipv6": 1,
            "ends": 1,
            "skip": 1,
            "tail": 1,
            "place": lane_bits,
        }
    )
