"""BTH opcodes: the one table that says what each packet of RoCE v2 is and what it asks for.

A row holds the service, the class, the place in the message, the extended headers, the payload
rule, the PSNs that the packet takes, what answers it, which rights its address needs, whether it
takes a receive WQE, and which feature a card needs to execute it. ``hdl.abi.operations`` has the
same for work requests; ``hdl.ports.operations`` makes gateware of both.

Spec: IBTA vol 1, 9.2.1 (table of opcodes), 9.3; CNP: Annex A17, A17.9.3; FLUSH and ATOMIC WRITE:
Annex A19 (release 1.5).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum

from hdl.abi.enums import Access, QpType
from hdl.config import CardFeature, NicConfig

from .headers import (
    AETH,
    ATOMIC_ACK_ETH,
    ATOMIC_ETH,
    DC_CONNECT,
    DC_END,
    DC_REPLY,
    DETH,
    FETH,
    IETH,
    IMM_DT,
    RETH,
    XRCETH,
    Header,
)

__all__ = [
    "ATOMIC_BYTES",
    "CNP",
    "CNP_PAYLOAD",
    "DC_CONTROL",
    "NO_RIGHTS",
    "OPCODES",
    "QP_CODE",
    "QP_REQUESTS",
    "QP_TRANSPORT",
    "ROCE_OPCODES",
    "SERVICES",
    "XRC_QUEUE",
    "Answer",
    "DcControl",
    "Kind",
    "Opcode",
    "Operation",
    "Payload",
    "Position",
    "Psns",
    "Transport",
    "card_opcodes",
    "max_extended",
    "services",
]


class Transport(IntEnum):
    """Top three bits of the opcode: the service. DC has one of the two of manufacturers (6, 7)."""

    RC = 0
    UC = 1
    UD = 3
    CNP = 4
    XRC = 5
    DC = 6


#: The service that a QP of each type of the ABI uses.
QP_TRANSPORT = {
    QpType.GSI: Transport.UD,
    QpType.RC: Transport.RC,
    QpType.UC: Transport.UC,
    QpType.UD: Transport.UD,
    QpType.XRC_INI: Transport.XRC,
    QpType.XRC_TGT: Transport.XRC,
    QpType.DCI: Transport.DC,
    QpType.DCT: Transport.DC,
}
#: The service whose work requests a QP of each type posts: an initiator of XRC or DC is a requester
#: of RC. A target posts none.
QP_REQUESTS = {
    QpType.GSI: Transport.UD,
    QpType.RC: Transport.RC,
    QpType.UC: Transport.UC,
    QpType.UD: Transport.UD,
    QpType.XRC_INI: Transport.RC,
    QpType.DCI: Transport.RC,
}
#: The number that the card has for a type, in 3 bits: the ABI's, where that fits. Both ends of a
#: connection of DC have the same: the one that takes from no receive queue (``SourceKind.NAMED``)
#: is the initiator's. A row that is nobody's has it too, and is in RESET.
QP_CODE = {kind: int(kind) for kind in QpType} | {
    QpType.XRC_INI: 5,
    QpType.XRC_TGT: 6,
    QpType.DCI: 0,
    QpType.DCT: 0,
}
#: ... and for a pair that is no QP's but that of an XRC receive queue. Of its row count
#: ``function``, ``qpn`` (the number that packets name it by), ``pd`` (its domain), ``recv_pd`` and
#: ``recv_cq``; it stays in RESET.
XRC_QUEUE = 7


class Kind(IntEnum):
    """The class of an operation: what it does, whatever its service and its place are."""

    LOCAL = 0  # sends nothing: a work request that the NIC executes by itself
    SEND = 1  # payload into a receive WQE
    WRITE = 2  # payload to an address of the responder
    READ = 3  # payload from an address of the responder; none of it: FLUSH
    ATOMIC = 4  # one 8-byte operation at an address of the responder; with no result: ATOMIC WRITE
    ACKNOWLEDGE = 5  # ACK or NAK
    READ_RESPONSE = 6
    ATOMIC_RESPONSE = 7


class Position(IntEnum):
    """Place of a packet in its message: bit 0 says that it begins it, bit 1 that it ends it."""

    MIDDLE = 0
    FIRST = 1
    LAST = 2
    ONLY = 3


class Psns(Enum):
    """PSNs that a packet takes."""

    NONE = "none"  # a response repeats the PSN that it answers
    ONE = "one"
    BY_LENGTH = "by length"  # one for each packet of the response


class Answer(Enum):
    """What answers a packet."""

    NONE = "nothing"
    ACK = "ACK"
    DATA = "data"


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
    FLUSH = 0x1C
    ATOMIC_WRITE = 0x1D


class DcControl(IntEnum):
    """Packets that open and close a connection of DC. They carry no payload, and the firmware sends
    and gets them (docs/extensions.md)."""

    CONNECT = 0xD8
    CONNECT_REPLY = 0xD9
    DISCONNECT = 0xDA
    DISCONNECT_ACK = 0xDB
    CLOSE_REQUEST = 0xDE


class Payload(Enum):
    """Bytes of payload a packet carries."""

    NONE = "none"
    FULL = "one path MTU"  # FIRST, MIDDLE
    LAST = "1 to one path MTU"
    ONLY = "0 to one path MTU"
    WORD = "8 bytes"  # ATOMIC WRITE
    NOTICE = "16 bytes of zero"  # CNP


NO_RIGHTS = Access(0)
#: Bytes of the word that an atomic changes.
ATOMIC_BYTES = 8


@dataclass(frozen=True)
class Opcode:
    """One BTH opcode; ``headers`` follow the BTH in this order.

    ``rights``: what the key at its address must allow. ``receive``: a receive WQE ends with it
    (WRITE with immediate) or takes its payload (SEND). ``feature``: what a card must have to
    execute it; None: no card does.
    """

    code: int
    name: str
    transport: Transport
    kind: Kind
    position: Position
    headers: tuple[Header, ...]
    payload: Payload
    psns: Psns = Psns.NONE
    answer: Answer = Answer.NONE
    rights: Access = NO_RIGHTS
    receive: bool = False
    feature: CardFeature | None = None

    @property
    def extended(self) -> int:
        """Bytes of the extended headers."""
        return sum(header.size for header in self.headers)

    @property
    def operation(self) -> int:
        """Low five bits of the code."""
        return self.code & 0x1F

    @property
    def response(self) -> bool:
        """Whether it answers a request; otherwise it is one."""
        return self.kind in (Kind.ACKNOWLEDGE, Kind.READ_RESPONSE, Kind.ATOMIC_RESPONSE)

    @property
    def data(self) -> bool:
        """Whether data answer it, or, of a response, whether it is such an answer."""
        return self.answer is Answer.DATA or self.kind in _DATA

    @property
    def compares(self) -> bool:
        """Whether its atomic changes the word only if that is what it expects."""
        return self.operation == Operation.CMP_SWAP

    @property
    def immediate(self) -> bool:
        """Whether it carries immediate data."""
        return IMM_DT in self.headers

    @property
    def invalidate(self) -> bool:
        """Whether it carries a key to invalidate."""
        return IETH in self.headers

    @property
    def address(self) -> bool:
        """Whether it carries an address and a key of its own."""
        return RETH in self.headers or ATOMIC_ETH in self.headers


#: Responses that are data.
_DATA = (Kind.READ_RESPONSE, Kind.ATOMIC_RESPONSE)
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
    Operation.FLUSH: (FETH, RETH),
    Operation.ATOMIC_WRITE: (RETH,),
}
_KINDS = {
    "SEND": Kind.SEND,
    "WRITE": Kind.WRITE,
    "READ_REQUEST": Kind.READ,
    "READ_RESP": Kind.READ_RESPONSE,
    "ACKNOWLEDGE": Kind.ACKNOWLEDGE,
    "ATOMIC_ACK": Kind.ATOMIC_RESPONSE,
    "CMP_SWAP": Kind.ATOMIC,
    "FETCH_ADD": Kind.ATOMIC,
    "FLUSH": Kind.READ,
    "ATOMIC_WRITE": Kind.ATOMIC,
}
#: Operations that data answer of which there are none, so that the answer takes one PSN.
_PLACEMENT = (Operation.FLUSH, Operation.ATOMIC_WRITE)
_EMPTY = (Kind.READ, Kind.ACKNOWLEDGE, Kind.ATOMIC, Kind.ATOMIC_RESPONSE)
_PAYLOADS = {
    Position.FIRST: Payload.FULL,
    Position.MIDDLE: Payload.FULL,
    Position.LAST: Payload.LAST,
    Position.ONLY: Payload.ONLY,
}
_RIGHTS = {
    Kind.WRITE: Access.REMOTE_WRITE,
    Kind.READ: Access.REMOTE_READ,
    Kind.ATOMIC: Access.REMOTE_ATOMIC,
}
#: Rights of operations that need others than their class. What a FLUSH needs its header says.
_OTHER_RIGHTS = {
    Operation.FLUSH: NO_RIGHTS,
    Operation.ATOMIC_WRITE: Access.REMOTE_WRITE,
}
_UC = [op for op in Operation if op <= Operation.WRITE_ONLY_IMM]
#: Of XRC and of DC.
_EXTENDED_CONNECTIONS = [op for op in Operation if op not in _PLACEMENT]
_DC_HEADERS = {DcControl.CONNECT: DC_CONNECT, DcControl.CONNECT_REPLY: DC_REPLY}
_UD = [Operation.SEND_ONLY, Operation.SEND_ONLY_IMM]
_SERVICE_FEATURES = {
    Transport.RC: CardFeature.BASE,
    Transport.UC: CardFeature.UC,
    Transport.UD: CardFeature.UD,
    Transport.XRC: CardFeature.XRC,
    Transport.DC: CardFeature.DC,
}


def _feature(
    transport: Transport, op: Operation, kind: Kind, headers: tuple[Header, ...]
) -> CardFeature | None:
    if op in _PLACEMENT and transport is Transport.RC:
        return CardFeature.PLACEMENT
    if kind in (Kind.ATOMIC, Kind.ATOMIC_RESPONSE) and transport is Transport.RC:
        return CardFeature.ATOMICS
    if IETH in headers and transport is Transport.RC:
        return CardFeature.FAST_REGISTRATION
    return _SERVICE_FEATURES.get(transport)


def _position(op: Operation) -> Position:
    words = op.name.split("_")
    return next((place for place in Position if place.name in words), Position.ONLY)


def _answer(transport: Transport, kind: Kind) -> Answer:
    if transport in (Transport.UC, Transport.UD):
        return Answer.NONE
    return Answer.DATA if kind in (Kind.READ, Kind.ATOMIC) else Answer.ACK


def _opcode(transport: Transport, op: Operation) -> Opcode:
    kind = next(kind for word, kind in _KINDS.items() if op.name.startswith(word))
    position = _position(op)
    response = kind >= Kind.ACKNOWLEDGE
    before: tuple[Header, ...] = ()
    if transport is Transport.UD:
        before = (DETH,)
    elif transport is Transport.XRC and not response:
        before = (XRCETH,)
    headers = before + _EXTENDED.get(op, ())
    psns = Psns.BY_LENGTH if kind is Kind.READ and op not in _PLACEMENT else Psns.ONE
    payload = Payload.NONE if kind in _EMPTY else _PAYLOADS[position]
    if op is Operation.ATOMIC_WRITE:
        payload = Payload.WORD
    return Opcode(
        code=transport << 5 | op,
        name=f"{transport.name}_{op.name}",
        transport=transport,
        kind=kind,
        position=position,
        headers=headers,
        payload=payload,
        psns=Psns.NONE if response else psns,
        answer=Answer.NONE if response else _answer(transport, kind),
        rights=_OTHER_RIGHTS.get(op, _RIGHTS.get(kind, NO_RIGHTS)),
        receive=kind is Kind.SEND or IMM_DT in headers,
        feature=_feature(transport, op, kind, headers),
    )


def _control(code: DcControl) -> Opcode:
    name, headers = f"DC_{code.name}", (_DC_HEADERS.get(code, DC_END),)
    place, none, dc = Position.ONLY, Payload.NONE, CardFeature.DC
    return Opcode(code, name, Transport.DC, Kind.LOCAL, place, headers, none, feature=dc)


CNP = 0x81
CNP_PAYLOAD = 16

#: Every opcode of RoCE v2 that has a meaning, by code.
OPCODES: dict[int, Opcode] = {
    opcode.code: opcode
    for opcode in (
        *(_opcode(Transport.RC, op) for op in Operation),
        *(_opcode(Transport.UC, op) for op in _UC),
        *(_opcode(Transport.UD, op) for op in _UD),
        Opcode(
            CNP, "CNP", Transport.CNP, Kind.LOCAL, Position.ONLY, headers=(), payload=Payload.NOTICE
        ),
        *(
            _opcode(transport, op)
            for transport in (Transport.XRC, Transport.DC)
            for op in _EXTENDED_CONNECTIONS
        ),
        *(_control(code) for code in DcControl),
    )
}

#: Those that a NIC may deliver: all but CNP.
ROCE_OPCODES: dict[int, Opcode] = {
    code: opcode for code, opcode in OPCODES.items() if opcode.transport is not Transport.CNP
}
#: Those of them that the firmware sends and gets.
DC_CONTROL: dict[int, Opcode] = {code: OPCODES[code] for code in DcControl}
#: Services with work requests of their own, in the order of their numbers.
SERVICES: tuple[Transport, ...] = tuple(
    transport for transport in Transport if transport in QP_REQUESTS.values()
)


def card_opcodes(config: NicConfig) -> dict[int, Opcode]:
    """Those of ``ROCE_OPCODES`` that this card knows: FLUSH, ATOMIC WRITE, and those of XRC and of
    DC, are unknown to one that does not execute them."""
    lacking = {CardFeature.PLACEMENT, CardFeature.XRC, CardFeature.DC} - config.features
    return {code: row for code, row in ROCE_OPCODES.items() if row.feature not in lacking}


def max_extended(config: NicConfig) -> int:
    """Bytes of the longest extended headers of a packet that this card knows."""
    return max(opcode.extended for opcode in card_opcodes(config).values())


def services(config: NicConfig) -> tuple[Transport, ...]:
    """The services of which this card executes something, in the order of their numbers."""
    executed = (opcode for opcode in OPCODES.values() if opcode.feature in config.features)
    found = {opcode.transport for opcode in executed}
    return tuple(transport for transport in Transport if transport in found)
