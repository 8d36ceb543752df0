"""Operations in gateware: the rows of the two tables as structures, decoded once where they enter.

``hdl.wire.opcodes.OPCODES`` and ``hdl.abi.operations.WORK_REQUESTS`` are read when a component is
elaborated, as far as the card's configuration has the features that their rows need. A packet's
opcode is decoded where Receive takes its header, a work request's where its WQE is decoded. From
there on the structure travels with the packet or the WQE, and nothing behind compares opcodes: it
asks for the class, or better for the property that decides.
"""

from collections import defaultdict
from collections.abc import Mapping

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from hdl.abi.enums import QpType
from hdl.abi.operations import WORK_REQUESTS, WorkRequest
from hdl.config import CardFeature, NicConfig
from hdl.wire.headers import DETH
from hdl.wire.opcodes import (
    DC_CONTROL,
    OPCODES,
    QP_CODE,
    QP_REQUESTS,
    QP_TRANSPORT,
    SERVICES,
    Answer,
    Kind,
    Opcode,
    Payload,
    Position,
    Psns,
    Transport,
    services,
)

__all__ = [
    "PacketCodes",
    "PacketOperation",
    "RequestOperation",
    "decode_packet",
    "decode_request",
    "early_facts",
    "is_atomic_write",
    "is_copy",
    "is_datagram",
    "is_flush",
    "is_layout",
    "is_placement",
    "is_type",
    "names_source",
    "packet_code",
    "packet_serves",
    "request_fields",
    "request_serves",
    "unanswered",
]


class PacketOperation(data.Struct):
    """A received BTH opcode. All zeros: no opcode of a service that the card serves."""

    served: 1  # an opcode of such a service
    service: Transport
    built: 1  # the card executes it
    response: 1
    kind: Kind
    first: 1  # FIRST or ONLY
    last: 1  # LAST or ONLY
    payload: 1  # it carries payload
    address: 1  # it carries an address and a key
    immediate: 1
    invalidate: 1
    receive: 1  # it takes a receive WQE
    by_length: 1  # it takes a PSN for each packet of the answer, otherwise one
    data: 1  # data answer it, otherwise an ACK; of a response: it is such data
    acknowledged: 1  # an ACK answers it
    compares: 1  # an atomic that changes its word only if that is what it expects
    rights: 4  # what its key must allow: bits of Access


class PacketCodes(data.Struct):
    """Low five bits of the BTH opcode of a message's packets, by position."""

    middle: 5
    first: 5
    last: 5
    only: 5


class RequestOperation(data.Struct):
    """A send WR opcode. All zeros: the card does not execute it."""

    services: len(SERVICES)  # those that know it, as ordered in SERVICES
    kind: Kind
    packets: PacketCodes
    data: 1  # data come back into its SGEs, otherwise what they hold goes out
    # Its one packet takes a PSN for each packet of the answer. Of a layout, which has no packets:
    # its entries repeat.
    by_length: 1
    compares: 1  # an atomic that compares the word first
    receive: 1  # it ends a receive WQE of the other side
    invalidate: 1  # it ends with the invalidation of a key of its own side
    bind: 1  # it binds a memory window
    completion: 7  # WC opcode


def _packet_fields(opcode: Opcode, config: NicConfig) -> dict:
    place, built = opcode.position, opcode.feature in config.features
    return {
        "served": 1,
        "service": opcode.transport,
        "built": built,
        "response": opcode.response,
        "kind": opcode.kind,
        "first": place in (Position.FIRST, Position.ONLY),
        "last": place in (Position.LAST, Position.ONLY),
        "payload": opcode.payload is not Payload.NONE,
        "address": opcode.address,
        "immediate": opcode.immediate,
        "invalidate": opcode.invalidate,
        "receive": opcode.receive,
        "by_length": opcode.psns is Psns.BY_LENGTH,
        "data": opcode.data and (built or not opcode.response),
        "acknowledged": opcode.answer is Answer.ACK,
        "compares": opcode.compares,
        "rights": int(opcode.rights),
    }


def request_fields(request: WorkRequest | None, config: NicConfig) -> dict:
    """The fields of its ``RequestOperation``; {} for one that the card does not execute."""
    if request is None or request.feature not in config.features:
        return {}
    served = set(services(config)) & set(request.services)
    only = request.packets.get(Position.ONLY, 0)
    return {
        "services": sum(1 << n for n, one in enumerate(SERVICES) if one in served),
        "kind": request.kind,
        "packets": {
            place.name.lower(): int(request.packets.get(place, only)) for place in Position
        },
        "data": request.data,
        "by_length": request.by_length or request.repeats,
        "compares": request.compares,
        "receive": request.receive,
        "invalidate": request.invalidate,
        "bind": request.bind,
        "completion": request.completion,
    }


def _decode(m: Module, opcode: Value, shape, rows: dict[int, dict], name: str) -> data.View:
    """``opcode`` as one of ``rows``; all zeros for any other."""
    same = defaultdict(list)
    for code, fields in rows.items():
        same[shape.const(fields).as_value().value].append(code)
    found = Signal(shape, name=name)
    with m.Switch(opcode):
        for number, codes in same.items():
            with m.Case(*codes):
                m.d.comb += found.as_value().eq(Const(number, found.as_value().shape()))
    return found


def decode_packet(
    m: Module, config: NicConfig, opcode: Value, *, name: str = "operation"
) -> data.View:
    """The operation of a BTH opcode (8 bits), as a combinational ``PacketOperation``."""
    served, lacking = services(config), {CardFeature.PLACEMENT} - config.features
    rows = {
        code: _packet_fields(row, config)
        for code, row in OPCODES.items()
        if row.transport in served and row.feature not in lacking and code not in DC_CONTROL
    }
    return _decode(m, opcode, PacketOperation, rows, name)


def early_facts(config: NicConfig) -> dict[str, tuple[int, ...]]:
    """What an ``RxHeader`` says of its opcode before that is decoded, and the opcodes of which it
    is true: ``takes``: a receive WQE of its QP's own source; ``silent``: so it does, and its
    service has no answers."""
    rows = {
        code: row
        for code, row in OPCODES.items()
        if row.transport in services(config) and row.receive and row.transport != Transport.XRC
    }
    silent = (code for code, row in rows.items() if row.answer is not Answer.ACK)
    return {"takes": tuple(rows), "silent": tuple(silent)}


def decode_request(
    m: Module,
    config: NicConfig,
    opcode: Value,
    *,
    requests: Mapping[int, WorkRequest] = WORK_REQUESTS,
    name: str = "operation",
) -> data.View:
    """The operation of a WR opcode (8 bits) of ``requests``, as a combinational
    ``RequestOperation``."""
    rows = {code: request_fields(row, config) for code, row in requests.items()}
    return _decode(m, opcode, RequestOperation, rows, name)


def _types(service: Transport, qp_type: Value) -> Value:
    """Whether a QP of this type (``QP_CODE``) uses ``service``."""
    return qp_type.matches(*(QP_CODE[one] for one, used in QP_TRANSPORT.items() if used is service))


def is_type(config: NicConfig, qp_type: Value, *types: QpType) -> Value:
    """Whether a QP (``QP_CODE``) is of one of ``types``, as far as the card has these."""
    served = services(config)
    return qp_type.matches(*(QP_CODE[one] for one in types if QP_TRANSPORT[one] in served))


def packet_serves(
    config: NicConfig, operation: PacketOperation, qp_type: Value, *, asks: Value
) -> Value:
    """Whether the packet's service is the QP's, and one that the card serves. Of the two ends of a
    connection of XRC or DC one gets requests alone, and the other one, which ``asks``, answers."""
    hit = Const(0, 1)
    for service in services(config):
        mine = _types(service, qp_type)
        if service is Transport.XRC:
            mine &= operation.response == is_type(config, qp_type, QpType.XRC_INI)
        if service is Transport.DC:
            mine &= operation.response == asks
        hit |= (operation.service == service) & mine
    return operation.served & hit


def request_serves(config: NicConfig, operation: RequestOperation, qp_type: Value) -> Value:
    """Whether the card executes the work request on a QP of this type."""
    hit = Const(0, 1)
    served = services(config)
    for bit, service in zip(operation.services, SERVICES, strict=True):
        if service in served:
            posts = (one for one, used in QP_REQUESTS.items() if used is service)
            hit |= bit & is_type(config, qp_type, *posts)
    return hit


def unanswered(config: NicConfig, qp_type: Value) -> Value:
    """Whether nothing ever answers the requests of a QP of this type (IBTA vol 1, 9.8)."""
    hit = Const(0, 1)
    for service in services(config):
        if all(row.answer is Answer.NONE for row in OPCODES.values() if row.transport is service):
            hit |= _types(service, qp_type)
    return hit


def is_datagram(config: NicConfig, qp_type: Value) -> Value:
    """Whether each packet of a QP of this type says where it comes from, and each work request
    where it goes (DETH): UD, and with it GSI."""
    hit = Const(0, 1)
    for service in services(config):
        if all(DETH in row.headers for row in OPCODES.values() if row.transport is service):
            hit |= _types(service, qp_type)
    return hit


def names_source(config: NicConfig, operation: PacketOperation) -> Value:
    """Whether a packet is a request that names the receive queue for it (XRCETH)."""
    if not config.xrc:
        return Const(0, 1)
    return (operation.service == Transport.XRC) & ~operation.response


def is_flush(config: NicConfig, operation: PacketOperation) -> Value:
    """Whether a packet is a FLUSH: data answer it of which there are none."""
    if not config.placement:
        return Const(0, 1)
    return (operation.kind == Kind.READ) & ~operation.by_length


def is_atomic_write(config: NicConfig, operation: PacketOperation) -> Value:
    """Whether a packet is an ATOMIC WRITE: what it makes of the word is its payload."""
    if not config.placement:
        return Const(0, 1)
    return (operation.kind == Kind.ATOMIC) & operation.payload


def is_placement(config: NicConfig, completion: Value) -> Value:
    """Whether a work request with this opcode of its CQE has no SGEs, and an answer without data:
    FLUSH, ATOMIC WRITE."""
    if not config.placement:
        return Const(0, 1)
    return completion.matches(*(row.completion for row in WORK_REQUESTS.values() if row.placement))


def is_copy(config: NicConfig, completion: Value) -> Value:
    """Whether a work request with this opcode of its CQE copies inside host memory. It has the
    sink of a READ, and nothing of it leaves the card."""
    if not config.memcpy:
        return Const(0, 1)
    return completion.matches(*(row.completion for row in WORK_REQUESTS.values() if row.copies))


def is_layout(config: NicConfig, completion: Value) -> Value:
    """Whether a work request with this opcode of its CQE gives an indirect key a layout. Its slots
    are the entries, and it has no message."""
    if not config.mkeys:
        return Const(0, 1)
    codes = {row.completion for row in WORK_REQUESTS.values() if row.layout}
    return completion.matches(*codes)


def packet_code(
    config: NicConfig, codes: PacketCodes, *, first: Value, last: Value, qp_type: Value
) -> Value:
    """The BTH opcode (8 bits) of the packet of a message that begins or ends it, or not."""
    low = Mux(last, Mux(first, codes.only, codes.last), Mux(first, codes.first, codes.middle))
    service = Const(0, 3)
    for one in services(config):
        service |= Const(one, 3) & _types(one, qp_type).replicate(3)
    return Cat(low, service)
