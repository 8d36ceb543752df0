"""Requests of the endpoint's protocol: one JSON object a line, its fields and their values.

``REQUESTS`` is the protocol; ``schema`` shows it as a JSON Schema. A field that is absent, or null,
takes its default; one without a default must be there; one that does not belong to the request is
refused.
"""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from hdl.abi.enums import Access, FlushLevel, FlushType, QpState, QpType, SendFlags, WrOpcode
from hdl.abi.virtio_rdma import PSN_BITS, QPN_BITS
from sim.endpoint.values import (
    FLAG,
    GID,
    HEX,
    IMPAIRMENTS,
    MAC,
    MILLISECONDS,
    MTU,
    SGES,
    Kind,
    bits,
    each,
    integer,
    member,
    members,
    show,
)
from sim.guest.driver.errors import RdmaError

__all__ = ["MOST_DATA", "REQUESTS", "BadRequest", "parse", "schema"]

#: Bytes that one request may carry or fetch; a line is a little more than twice as long.
MOST_DATA = 32 << 20

_MISSING = object()


class BadRequest(RdmaError):
    """A line that is no request, or a request that cannot be meant; ``errno`` is EINVAL or said."""

    def __init__(self, text: str, code: int = errno.EINVAL):
        super().__init__(code, text)


@dataclass(frozen=True)
class Field:
    """A field and its default, as JSON has it; a default of None stays None."""

    kind: Kind
    default: Any = _MISSING


def _object(fields: dict[str, Field]) -> Kind:
    """An object with these fields, as a namespace."""

    def parse(value: Any) -> SimpleNamespace:
        if not isinstance(value, dict):
            raise ValueError(f"must be an object, not {show(value)}")
        return _take(fields, value)

    return Kind(parse, _shape(fields))


def _shape(fields: dict[str, Field]) -> dict[str, Any]:
    """The JSON Schema of an object with these fields."""
    return {
        "type": "object",
        "properties": {name: _property(field) for name, field in fields.items()},
        "required": [name for name, field in fields.items() if field.default is _MISSING],
        "additionalProperties": False,
    }


def _property(field: Field) -> dict[str, Any]:
    if field.default is _MISSING:
        return field.kind.schema
    found = {**field.kind.schema, "type": [field.kind.schema["type"], "null"]}
    if "enum" in found:
        found["enum"] = [*found["enum"], None]
    return found | {"default": field.default}


#: Of each request: the guest function of the card that it is for.
_FUNCTION = {"function": Field(bits(2), 0)}
_HANDLE = Field(bits(32))
_DATA = Field(integer(0, MOST_DATA))
_QPN, _PSN, _WORD, _ADDR = (Field(bits(size)) for size in (QPN_BITS, PSN_BITS, 32, 64))
_BYTE, _STREAM = bits(8), Field(bits(16))
#: Of a queue whose requests take several packets: bytes of a request, and of a segment of it.
_PIECES = _object({"buffer": _WORD, "align": Field(integer(1, 1 << 31))})
#: Of an initiator of dynamic connections, both as log2.
_STREAMS = _object({"log_streams": Field(_BYTE, 0), "log_errored": Field(_BYTE, 0)})
_RIGHTS = ["LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ"]

#: The way to a peer: of a queue pair that is connected, and of one datagram.
_ROUTE: dict[str, Field] = {
    "dest_gid": Field(GID),
    "dest_mac": Field(MAC),
    "sgid_index": Field(_BYTE, None),
    "traffic_class": Field(_BYTE, 0),
    "flow_label": Field(bits(20), 0),
    "hop_limit": Field(_BYTE, 64),
}

#: What a queue pair is brought up with, whoever its peer is.
_ATTRIBUTES: dict[str, Field] = {
    "path_mtu": Field(MTU, 1024),
    "timeout": Field(bits(5), 14),
    "retry_cnt": Field(bits(3), 7),
    "rnr_retry": Field(bits(3), 7),
    "min_rnr_timer": Field(bits(5), 12),
    "max_rd_atomic": Field(_BYTE, 4),
    "access": Field(members(Access), _RIGHTS),
}

_PORT = Field(integer(1, 0xFFFF))
#: Of requests of the connection manager: whom they are for, what they offer, how long they wait.
_SERVICE: dict[str, Field] = {
    "dest_gid": Field(GID),
    "port": _PORT,
    "sgid_index": Field(_BYTE, None),
}
_PARAM: dict[str, Field] = {
    "private_data": Field(HEX, ""),
    "responder_resources": Field(_BYTE, 1),
    "initiator_depth": Field(_BYTE, 1),
    "timeout": Field(bits(5), 14),
}
_PATIENCE: dict[str, Field] = {"timeout_ms": Field(MILLISECONDS, 10_000.0)}

#: Name of a request -> its fields.
REQUESTS: dict[str, dict[str, Field]] = {
    "info": {},
    "reg_mr": {
        "length": Field(integer(1, (1 << 64) - 1)),
        "access": Field(members(Access), ["LOCAL_WRITE"]),
        "va": Field(bits(64), None),
        "fast": Field(FLAG, False),
    },
    "create_mkey": {"max_entries": _WORD, "remote_invalidate": Field(FLAG, False)},
    "dereg_mr": {"mr": _HANDLE},
    "write_mem": {"mr": _HANDLE, "offset": Field(bits(64), 0), "data": Field(HEX)},
    "read_mem": {"mr": _HANDLE, "offset": Field(bits(64), 0), "length": _DATA},
    "create_qp": {
        "type": Field(member(QpType), "RC"),
        "max_send_wr": Field(bits(32), 64),
        "max_recv_wr": Field(bits(32), 64),
        "max_send_sge": Field(bits(32), None),
        "max_recv_sge": Field(bits(32), None),
        "max_inline_data": Field(bits(32), None),
        "sq_sig_all": Field(FLAG, True),
        "srq": Field(_HANDLE.kind, None),
        "xrcd": Field(_HANDLE.kind, None),
        "mp_wr": Field(_PIECES, None),
        "dc_key": Field(_ADDR.kind, 0),
        "streams": Field(_STREAMS, None),
    },
    "destroy_qp": {"qp": _HANDLE},
    "create_xrcd": {},
    "destroy_xrcd": {"xrcd": _HANDLE},
    "create_srq": {
        "max_wr": Field(bits(32), 64),
        "max_sge": Field(bits(32), 1),
        "xrcd": Field(_HANDLE.kind, None),
        "mp_wr": Field(_PIECES, None),
    },
    "destroy_srq": {"srq": _HANDLE},
    "connect": {
        "qp": _HANDLE,
        "dest_qpn": _QPN,
        **_ROUTE,
        "rq_psn": Field(_PSN.kind, 0),
        "sq_psn": Field(_PSN.kind, 0),
        **_ATTRIBUTES,
        "max_dest_rd_atomic": Field(_BYTE, 4),
        "qkey": Field(_WORD.kind, 0),
    },
    "modify": {
        "qp": _HANDLE,
        "state": Field(member(QpState)),
        "access": Field(members(Access), _RIGHTS),
        "qkey": Field(_WORD.kind, 0),
    },
    "post_recv": {
        "qp": Field(_HANDLE.kind, None),
        "srq": Field(_HANDLE.kind, None),
        "wr_id": Field(bits(64), 0),
        "sge": Field(SGES, []),
    },
    "post_send": {
        "qp": _HANDLE,
        "wr_id": Field(bits(64), 0),
        "opcode": Field(member(WrOpcode)),
        "sge": Field(SGES, []),
        "remote_addr": Field(_ADDR.kind, 0),
        "rkey": Field(_WORD.kind, 0),
        "imm": Field(_WORD.kind, 0),
        "invalidate_rkey": Field(_WORD.kind, 0),
        "compare_add": Field(_ADDR.kind, 0),
        "swap": Field(_ADDR.kind, 0),
        "length": Field(_WORD.kind, 0),
        "flush_type": Field(members(FlushType), ["GLOBAL"]),
        "level": Field(member(FlushLevel), "RANGE"),
        "data": Field(HEX, ""),
        "flags": Field(members(SendFlags), []),
        "mr": Field(_HANDLE.kind, None),
        "access": Field(members(Access), _RIGHTS),
        "ah": Field(_object({**_ROUTE, "dest_qpn": _QPN, "qkey": _WORD}), None),
        "srq_num": Field(_QPN.kind, None),
        "destination": Field(_HANDLE.kind, None),
        "stream_id": Field(_STREAM.kind, 0),
        "skip": Field(each(_WORD.kind), []),
        "repeat": Field(_WORD.kind, 1),
        "check_free": Field(FLAG, False),
    },
    "dc_ready": {"qp": _HANDLE, **_ROUTE, **_ATTRIBUTES},
    "dc_destination": {"dctn": _QPN, "dc_key": Field(_ADDR.kind, 0), **_ROUTE},
    "dc_forget": {"destination": _HANDLE},
    "dc_query": {"qp": _HANDLE},
    "dc_reset_stream": {"qp": _HANDLE, "stream_id": _STREAM},
    "cm_neighbour": {"gid": Field(GID), "mac": Field(MAC)},
    "cm_listen": {"port": _PORT},
    "cm_request": {"port": _PORT, **_PATIENCE},
    "cm_accept": {"conn": _HANDLE, "qp": _HANDLE, **_PARAM, **_PATIENCE},
    "cm_connect": {"qp": _HANDLE, **_SERVICE, **_PARAM, **_PATIENCE},
    "cm_disconnect": {"conn": _HANDLE, **_PATIENCE},
    "cm_serve": {"port": _PORT, "qp": _HANDLE},
    "cm_resolve": {"qp": _HANDLE, **_SERVICE, "private_data": Field(HEX, ""), **_PATIENCE},
    "poll": {"n": Field(bits(32), 1), "timeout_ms": Field(MILLISECONDS, 0.0)},
    "impair": {"what": Field(IMPAIRMENTS, "")},
    "counters": {},
    "quit": {},
}


def parse(line: bytes) -> tuple[str, SimpleNamespace]:
    """The request in a line: its name and its fields.

    Raises BadRequest: EBADMSG when the line is no JSON object, EOPNOTSUPP for a request that does
    not exist, EINVAL for a field that is missing, unknown or wrong.
    """
    try:
        values = json.loads(line.decode())
    except RecursionError:
        raise BadRequest("A line must be one JSON object, not so deep", errno.EBADMSG) from None
    except ValueError as error:  # not UTF-8, not JSON, a number of thousands of digits
        raise BadRequest(f"A line must be one JSON object: {error}", errno.EBADMSG) from None
    if not isinstance(values, dict):
        raise BadRequest(f"A line must be a JSON object, not {show(values)}", errno.EBADMSG)
    op = values.pop("op", None)
    if op is None:
        raise BadRequest("op is missing")
    if not isinstance(op, str) or op not in REQUESTS:
        raise BadRequest(
            f"op must be one of {', '.join(REQUESTS)}, not {show(op)}", errno.EOPNOTSUPP
        )
    try:
        return op, _take({**REQUESTS[op], **_FUNCTION}, values)
    except ValueError as error:
        raise BadRequest(f"{op}: {error}") from None


def _take(fields: dict[str, Field], values: dict[str, Any]) -> SimpleNamespace:
    """The values of all fields; ValueError names the one that is wrong."""
    for name in values:
        if name not in fields:
            raise ValueError(f"there is no field {show(name)}")
    found = SimpleNamespace()
    for name, field in fields.items():
        value = values.get(name)
        if value is None:
            value = field.default
        if value is _MISSING:
            raise ValueError(f"{name} is missing")
        try:
            setattr(found, name, None if value is None else field.kind.parse(value))
        except ValueError as error:
            raise ValueError(f"{name} {error}") from None
    return found


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a request; ``$defs`` has each kind of them by its name.

    It also allows a few that ``parse`` refuses: whole numbers as 1.0, GIDs, descriptions of a
    network and MAC addresses that are none.
    """
    requests = {}
    for op, fields in REQUESTS.items():
        shape = _shape({**fields, **_FUNCTION})
        shape["properties"] = {"op": {"const": op}, **shape["properties"]}
        shape["required"] = ["op", *shape["required"]]
        requests[op] = shape
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A request to ./rocinante endpoint",
        "oneOf": [{"$ref": f"#/$defs/{op}"} for op in requests],
        "$defs": requests,
    }
