"""BTH opcodes: name, transport, extended headers and payload rule.

Spec: IBTA vol 1, 9.2.1 (table of opcodes), 9.3; CNP: Annex A17, A17.9.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum

from .headers import (
    AETH,
    ATOMIC_ACK_ETH,
    ATOMIC_ETH,
    DETH,
    IETH,
    IMM_DT,
    RETH,
    XRCETH,
    Header,
)

__all__ = [
    "CNP",
    "CNP_PAYLOAD",
    "MAX_EXTENDED",
    "OPCODES",
    "ROCE_OPCODES",
    "Opcode",
    "Operation",
    "Payload",
    "Transport",
]


class Transport(IntEnum):
    """Top three bits of the opcode."""

    RC = 0
    UC = 1
    UD = 3
    CNP = 4
    XRC = 5


class Operation(IntEnum):
    """Low five bits of the opcode."""

    SEND_FIRST = 0x00
    SEND_MIDDLE = 0x01
    SEND_LAST = 0x02
    SEND_LAST_IMM = 0x03
    SEND_ONLY = 0x04
    SEND_ONLY_IMM = 0x05
    WRITE_FIRST = 0x06
    WRITE_MIDDLE = 0x07
    WRITE_LAST = 0x08
    WRITE_LAST_IMM = 0x09
    WRITE_ONLY = 0x0A
    WRITE_ONLY_IMM = 0x0B
    READ_REQUEST = 0x0C
    READ_RESP_FIRST = 0x0D
    READ_RESP_MIDDLE = 0x0E
    READ_RESP_LAST = 0x0F
    READ_RESP_ONLY = 0x10
    ACKNOWLEDGE = 0x11
    ATOMIC_ACK = 0x12
    CMP_SWAP = 0x13
    FETCH_ADD = 0x14
    SEND_LAST_INV = 0x16
    SEND_ONLY_INV = 0x17


class Payload(Enum):
    """Bytes of payload a packet carries."""

    NONE = "none"
    FULL = "one path MTU"  # FIRST, MIDDLE
    LAST = "1 to one path MTU"
    ONLY = "0 to one path MTU"
    NOTICE = "16 bytes of zero"  # CNP


@dataclass(frozen=True)
class Opcode:
    """One BTH opcode; ``headers`` follow the BTH in this order."""

    code: int
    name: str
    transport: Transport
    headers: tuple[Header, ...]
    payload: Payload
    response: bool = False

    @property
    def extended(self) -> int:
        """Bytes of the extended headers."""
        return sum(header.size for header in self.headers)

    @property
    def operation(self) -> int:
        """Low five bits of the code."""
        return self.code & 0x1F


_EXTENDED: dict[Operation, tuple[Header, ...]] = {
    Operation.SEND_LAST_IMM: (IMM_DT,),
    Operation.SEND_ONLY_IMM: (IMM_DT,),
    Operation.WRITE_FIRST: (RETH,),
    Operation.WRITE_LAST_IMM: (IMM_DT,),
    Operation.WRITE_ONLY: (RETH,),
    Operation.WRITE_ONLY_IMM: (RETH, IMM_DT),
    Operation.READ_REQUEST: (RETH,),
    Operation.READ_RESP_FIRST: (AETH,),
    Operation.READ_RESP_LAST: (AETH,),
    Operation.READ_RESP_ONLY: (AETH,),
    Operation.ACKNOWLEDGE: (AETH,),
    Operation.ATOMIC_ACK: (AETH, ATOMIC_ACK_ETH),
    Operation.CMP_SWAP: (ATOMIC_ETH,),
    Operation.FETCH_ADD: (ATOMIC_ETH,),
    Operation.SEND_LAST_INV: (IETH,),
    Operation.SEND_ONLY_INV: (IETH,),
}
_EMPTY = {
    Operation.READ_REQUEST,
    Operation.ACKNOWLEDGE,
    Operation.ATOMIC_ACK,
    Operation.CMP_SWAP,
    Operation.FETCH_ADD,
}
_RESPONSES = {op for op in Operation if "RESP" in op.name or "ACK" in op.name}
_UC = [op for op in Operation if op <= Operation.WRITE_ONLY_IMM]
_UD = [Operation.SEND_ONLY, Operation.SEND_ONLY_IMM]


def _payload(op: Operation) -> Payload:
    if op in _EMPTY:
        return Payload.NONE
    if "FIRST" in op.name or "MIDDLE" in op.name:
        return Payload.FULL
    return Payload.LAST if "LAST" in op.name else Payload.ONLY


def _opcode(transport: Transport, op: Operation) -> Opcode:
    response = op in _RESPONSES
    before: tuple[Header, ...] = ()
    if transport is Transport.UD:
        before = (DETH,)
    elif transport is Transport.XRC and not response:
        before = (XRCETH,)
    return Opcode(
        code=transport << 5 | op,
        name=f"{transport.name}_{op.name}",
        transport=transport,
        headers=before + _EXTENDED.get(op, ()),
        payload=_payload(op),
        response=response,
    )


CNP = 0x81
CNP_PAYLOAD = 16

#: Every opcode of RoCE v2 that has a meaning, by code.
OPCODES: dict[int, Opcode] = {
    opcode.code: opcode
    for opcode in (
        *(_opcode(Transport.RC, op) for op in Operation),
        *(_opcode(Transport.UC, op) for op in _UC),
        *(_opcode(Transport.UD, op) for op in _UD),
        Opcode(CNP, "CNP", Transport.CNP, (), Payload.NOTICE),
        *(_opcode(Transport.XRC, op) for op in Operation),
    )
}

#: Those the NIC delivers: RC, UC and UD.
ROCE_OPCODES: dict[int, Opcode] = {
    code: opcode
    for code, opcode in OPCODES.items()
    if opcode.transport in (Transport.RC, Transport.UC, Transport.UD)
}
#: Bytes of the longest extended headers among them.
MAX_EXTENDED = max(opcode.extended for opcode in ROCE_OPCODES.values())
