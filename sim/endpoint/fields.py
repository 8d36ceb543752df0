"""Requests of the endpoint's protocol: one JSON object a line, its fields and their values.

``REQUESTS`` is the protocol. A field that is absent, or null, takes its default; one without a
default must be there; one that does not belong to the request is refused.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from types import SimpleNamespace
from typing import Any

from hdl.abi.enums import Access, Mtu, QpState, QpType, SendFlags, WrOpcode
from hdl.abi.virtio_rdma import PSN_BITS, QPN_BITS
from sim.guest.driver.errors import RdmaError
from sim.guest.verbs import gid_bytes
from sim.models.impairments import Impairments

__all__ = ["MOST_DATA", "REQUESTS", "BadRequest", "card_mac", "mac_bytes", "parse"]

Parser = Callable[[Any], Any]

#: Bytes that one request may carry or fetch; a line is a little more than twice as long.
MOST_DATA = 32 << 20

_MISSING = object()


class BadRequest(RdmaError):
    """A line that is no request, or a request that cannot be meant; ``errno`` is EINVAL or said."""

    def __init__(self, text: str, code: int = errno.EINVAL):
        super().__init__(code, text)


@dataclass(frozen=True)
class Field:
    """``parse`` turns the JSON value into what is meant; ValueError says what is wrong with it."""

    parse: Parser
    default: Any = _MISSING


def mac_bytes(text: Any) -> bytes:
    """A MAC address as 6 bytes, from text such as 02:00:00:00:00:01; ValueError otherwise."""
    if not isinstance(text, str) or not re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", text):
        raise ValueError(f"must be a MAC address such as 02:00:00:00:00:01, not {_shown(text)}")
    return bytes.fromhex(text.replace(":", ""))


def card_mac(text: Any) -> bytes:
    """The same of one card, neither a group's nor all zero; ValueError otherwise."""
    octets = mac_bytes(text)
    if octets[0] & 1 or not any(octets):
        raise ValueError(f"must be the address of one card, not {_shown(text)}")
    return octets


def _shown(value: Any) -> str:
    """A value for a message, never long."""
    text = json.dumps(value, default=repr)
    return text if len(text) <= 60 else text[:57] + "..."


def _integer(low: int, high: int) -> Parser:
    def parse(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"must be a whole number, {low} to {high}, not {_shown(value)}")
        return value

    return parse


def _bits(count: int) -> Parser:
    return _integer(0, (1 << count) - 1)


def _name(kind: type[IntEnum]) -> Parser:
    def parse(value: Any) -> IntEnum:
        if not isinstance(value, str) or value not in kind.__members__:
            raise ValueError(f"must be one of {', '.join(kind.__members__)}, not {_shown(value)}")
        return kind[value]

    return parse


def _names(kind: type[IntFlag]) -> Parser:
    def parse(value: Any) -> IntFlag:
        found = kind(0)
        for one in _list(value):
            if not isinstance(one, str) or one not in kind.__members__:
                raise ValueError(f"must hold {', '.join(kind.__members__)}, not {_shown(one)}")
            found |= kind[one]
        return found

    return parse


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"must be a list, not {_shown(value)}")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {_shown(value)}")
    return value


def _hex(value: Any) -> bytes:
    try:
        if not isinstance(value, str) or re.search(r"\s", value):
            raise ValueError
        return bytes.fromhex(value)
    except ValueError:
        raise ValueError(f"must be pairs of hexadecimal digits, not {_shown(value)}") from None


def _gid(value: Any) -> bytes:
    try:
        if isinstance(value, str) and "%" not in value:
            return gid_bytes(value)
    except ValueError:
        pass
    raise ValueError(f"must be a GID such as ::ffff:10.0.0.1 or fd00::1, not {_shown(value)}")


def _mtu(value: Any) -> Mtu:
    for mtu in Mtu:
        if type(value) is int and mtu.octets == value:
            return mtu
    sizes = ", ".join(str(mtu.octets) for mtu in Mtu)
    raise ValueError(f"must be one of {sizes}, not {_shown(value)}")


def _milliseconds(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= 1e12:  # nor NaN
        raise ValueError(f"must be milliseconds, 0 or more, not {_shown(value)}")
    return float(value)


def _sges(value: Any) -> list[tuple[int, int, int]]:
    """[mr, offset, length], ...: an offset or end beyond the region is the device's to judge."""
    limits = (_bits(32), _integer(-(1 << 63), (1 << 63) - 1), _bits(32))
    found = []
    for one in _list(value):
        if not isinstance(one, list) or len(one) != len(limits):
            raise ValueError(f"must hold [mr, offset, length], not {_shown(one)}")
        mr, offset, length = (parse(part) for parse, part in zip(limits, one, strict=True))
        found.append((mr, offset, length))
    return found


def _object(fields: dict[str, Field]) -> Parser:
    """An object with these fields, as a namespace."""

    def parse(value: Any) -> SimpleNamespace:
        if not isinstance(value, dict):
            raise ValueError(f"must be an object, not {_shown(value)}")
        return _take(fields, value)

    return parse


def _impairments(value: Any) -> Impairments:
    if not isinstance(value, str):
        raise ValueError(f"must be text such as loss=1%, not {_shown(value)}")
    return Impairments.parse(value)


#: Of each request: the guest function of the card that it is for.
_FUNCTION = {"function": Field(_bits(2), 0)}
_HANDLE = Field(_bits(32))
_DATA = Field(_integer(0, MOST_DATA))
_QPN, _PSN, _WORD, _ADDR = (Field(_bits(bits)) for bits in (QPN_BITS, PSN_BITS, 32, 64))
_BYTE = _bits(8)
_RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ

#: The way to a peer: of a queue pair that is connected, and of one datagram.
_ROUTE: dict[str, Field] = {
    "dest_gid": Field(_gid),
    "dest_mac": Field(card_mac),
    "sgid_index": Field(_BYTE, None),
    "traffic_class": Field(_BYTE, 0),
    "flow_label": Field(_bits(20), 0),
    "hop_limit": Field(_BYTE, 64),
}

_PORT = Field(_integer(1, 0xFFFF))
#: Of requests of the connection manager: whom they are for, what they offer, how long they wait.
_SERVICE: dict[str, Field] = {
    "dest_gid": Field(_gid),
    "port": _PORT,
    "sgid_index": Field(_BYTE, None),
}
_PARAM: dict[str, Field] = {
    "private_data": Field(_hex, b""),
    "responder_resources": Field(_BYTE, 1),
    "initiator_depth": Field(_BYTE, 1),
    "timeout": Field(_bits(5), 14),
}
_PATIENCE: dict[str, Field] = {"timeout_ms": Field(_milliseconds, 10_000.0)}

#: Name of a request -> its fields.
REQUESTS: dict[str, dict[str, Field]] = {
    "info": {},
    "reg_mr": {
        "length": Field(_integer(1, (1 << 64) - 1)),
        "access": Field(_names(Access), Access.LOCAL_WRITE),
        "va": Field(_bits(64), None),
        "fast": Field(_flag, False),
    },
    "dereg_mr": {"mr": _HANDLE},
    "write_mem": {"mr": _HANDLE, "offset": Field(_bits(64), 0), "data": Field(_hex)},
    "read_mem": {"mr": _HANDLE, "offset": Field(_bits(64), 0), "length": _DATA},
    "create_qp": {
        "type": Field(_name(QpType), QpType.RC),
        "max_send_wr": Field(_bits(32), 64),
        "max_recv_wr": Field(_bits(32), 64),
        "max_send_sge": Field(_bits(32), None),
        "max_recv_sge": Field(_bits(32), None),
        "max_inline_data": Field(_bits(32), None),
        "sq_sig_all": Field(_flag, True),
        "srq": Field(_HANDLE.parse, None),
    },
    "destroy_qp": {"qp": _HANDLE},
    "create_srq": {"max_wr": Field(_bits(32), 64), "max_sge": Field(_bits(32), 1)},
    "destroy_srq": {"srq": _HANDLE},
    "connect": {
        "qp": _HANDLE,
        "dest_qpn": _QPN,
        **_ROUTE,
        "rq_psn": Field(_PSN.parse, 0),
        "sq_psn": Field(_PSN.parse, 0),
        "path_mtu": Field(_mtu, Mtu.MTU_1024),
        "timeout": Field(_bits(5), 14),
        "retry_cnt": Field(_bits(3), 7),
        "rnr_retry": Field(_bits(3), 7),
        "min_rnr_timer": Field(_bits(5), 12),
        "max_rd_atomic": Field(_BYTE, 4),
        "max_dest_rd_atomic": Field(_BYTE, 4),
        "access": Field(_names(Access), _RIGHTS),
        "qkey": Field(_WORD.parse, 0),
    },
    "modify": {
        "qp": _HANDLE,
        "state": Field(_name(QpState)),
        "access": Field(_names(Access), _RIGHTS),
        "qkey": Field(_WORD.parse, 0),
    },
    "post_recv": {
        "qp": Field(_HANDLE.parse, None),
        "srq": Field(_HANDLE.parse, None),
        "wr_id": Field(_bits(64), 0),
        "sge": Field(_sges, []),
    },
    "post_send": {
        "qp": _HANDLE,
        "wr_id": Field(_bits(64), 0),
        "opcode": Field(_name(WrOpcode)),
        "sge": Field(_sges, []),
        "remote_addr": Field(_ADDR.parse, 0),
        "rkey": Field(_WORD.parse, 0),
        "imm": Field(_WORD.parse, 0),
        "invalidate_rkey": Field(_WORD.parse, 0),
        "compare_add": Field(_ADDR.parse, 0),
        "swap": Field(_ADDR.parse, 0),
        "flags": Field(_names(SendFlags), SendFlags(0)),
        "mr": Field(_HANDLE.parse, None),
        "access": Field(_names(Access), _RIGHTS),
        "ah": Field(_object({**_ROUTE, "dest_qpn": _QPN, "qkey": _WORD}), None),
    },
    "cm_neighbour": {"gid": Field(_gid), "mac": Field(card_mac)},
    "cm_listen": {"port": _PORT},
    "cm_request": {"port": _PORT, **_PATIENCE},
    "cm_accept": {"conn": _HANDLE, "qp": _HANDLE, **_PARAM, **_PATIENCE},
    "cm_connect": {"qp": _HANDLE, **_SERVICE, **_PARAM, **_PATIENCE},
    "cm_disconnect": {"conn": _HANDLE, **_PATIENCE},
    "cm_serve": {"port": _PORT, "qp": _HANDLE},
    "cm_resolve": {"qp": _HANDLE, **_SERVICE, "private_data": Field(_hex, b""), **_PATIENCE},
    "poll": {"n": Field(_bits(32), 1), "timeout_ms": Field(_milliseconds, 0.0)},
    "impair": {"what": Field(_impairments, Impairments())},
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
        raise BadRequest(f"A line must be a JSON object, not {_shown(values)}", errno.EBADMSG)
    op = values.pop("op", None)
    if op is None:
        raise BadRequest("op is missing")
    if not isinstance(op, str) or op not in REQUESTS:
        raise BadRequest(
            f"op must be one of {', '.join(REQUESTS)}, not {_shown(op)}", errno.EOPNOTSUPP
        )
    try:
        return op, _take({**REQUESTS[op], **_FUNCTION}, values)
    except ValueError as error:
        raise BadRequest(f"{op}: {error}") from None


def _take(fields: dict[str, Field], values: dict[str, Any]) -> SimpleNamespace:
    """The values of all fields; ValueError names the one that is wrong."""
    for name in values:
        if name not in fields:
            raise ValueError(f"there is no field {_shown(name)}")
    found = SimpleNamespace()
    for name, field in fields.items():
        value = values.get(name)
        if value is not None:
            try:
                value = field.parse(value)
            except ValueError as error:
                raise ValueError(f"{name} {error}") from None
        elif field.default is _MISSING:
            raise ValueError(f"{name} is missing")
        else:
            value = field.default
        setattr(found, name, value)
    return found
