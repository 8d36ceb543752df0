"""Values in the endpoint's requests: what JSON may hold there, and what it stands for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any

from hdl.abi.enums import Mtu
from sim.guest.verbs import gid_bytes
from sim.models.impairments import Impairments

__all__ = [
    "FLAG",
    "GID",
    "HEX",
    "IMPAIRMENTS",
    "MAC",
    "MILLISECONDS",
    "MTU",
    "SGES",
    "Kind",
    "bits",
    "card_mac",
    "each",
    "integer",
    "mac_bytes",
    "member",
    "members",
    "show",
]


@dataclass(frozen=True)
class Kind:
    """A kind of value.

    ``parse`` turns the JSON value into what is meant; ValueError says what is wrong with it.
    ``schema`` is its JSON Schema: it allows whatever ``parse`` takes, and little more.
    """

    parse: Callable[[Any], Any]
    schema: dict[str, Any]


def show(value: Any) -> str:
    """A value for a message, never long."""
    text = json.dumps(value, default=repr)
    return text if len(text) <= 60 else text[:57] + "..."


_MAC_PATTERN = "[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}"


def mac_bytes(text: Any) -> bytes:
    """A MAC address as 6 bytes, from text such as 02:00:00:00:00:01; ValueError otherwise."""
    if not isinstance(text, str) or not re.fullmatch(_MAC_PATTERN, text):
        raise ValueError(f"must be a MAC address such as 02:00:00:00:00:01, not {show(text)}")
    return bytes.fromhex(text.replace(":", ""))


def card_mac(text: Any) -> bytes:
    """The same of one card, neither a group's nor all zero; ValueError otherwise."""
    octets = mac_bytes(text)
    if octets[0] & 1 or not any(octets):
        raise ValueError(f"must be the address of one card, not {show(text)}")
    return octets


MAC = Kind(card_mac, {"type": "string", "pattern": f"^{_MAC_PATTERN}$"})


def integer(low: int, high: int) -> Kind:
    """A whole number, ``low`` to ``high``."""

    def parse(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"must be a whole number, {low} to {high}, not {show(value)}")
        return value

    return Kind(parse, {"type": "integer", "minimum": low, "maximum": high})


def bits(count: int) -> Kind:
    """A whole number of ``count`` bits."""
    return integer(0, (1 << count) - 1)


def each(kind: Kind) -> Kind:
    """A list of such values."""

    def parse(value: Any) -> list[Any]:
        return [kind.parse(one) for one in _list(value)]

    return Kind(parse, {"type": "array", "items": kind.schema})


def member(kind: type[IntEnum], *without: IntEnum) -> Kind:
    """The name of a member that is none of ``without``."""
    names = [one.name for one in kind if one not in without]

    def parse(value: Any) -> IntEnum:
        if not isinstance(value, str) or value not in names:
            raise ValueError(f"must be one of {', '.join(names)}, not {show(value)}")
        return kind[value]

    return Kind(parse, {"type": "string", "enum": names})


def members(kind: type[IntFlag]) -> Kind:
    """A list of names of flags."""

    def parse(value: Any) -> IntFlag:
        found = kind(0)
        for one in _list(value):
            if not isinstance(one, str) or one not in kind.__members__:
                raise ValueError(f"must hold {', '.join(kind.__members__)}, not {show(one)}")
            found |= kind[one]
        return found

    one = {"type": "string", "enum": list(kind.__members__)}
    return Kind(parse, {"type": "array", "items": one})


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"must be a list, not {show(value)}")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {show(value)}")
    return value


FLAG = Kind(_flag, {"type": "boolean"})


def _hex(value: Any) -> bytes:
    try:
        if not isinstance(value, str) or re.search(r"\s", value):
            raise ValueError
        return bytes.fromhex(value)
    except ValueError:
        raise ValueError(f"must be pairs of hexadecimal digits, not {show(value)}") from None


HEX = Kind(_hex, {"type": "string", "pattern": "^([0-9a-fA-F]{2})*$"})


def _gid(value: Any) -> bytes:
    try:
        if isinstance(value, str) and "%" not in value:
            return gid_bytes(value)
    except ValueError:
        pass
    raise ValueError(f"must be a GID such as ::ffff:10.0.0.1 or fd00::1, not {show(value)}")


GID = Kind(_gid, {"type": "string", "description": "a GID such as ::ffff:10.0.0.1 or fd00::1"})


def _mtu(value: Any) -> Mtu:
    for mtu in Mtu:
        if type(value) is int and mtu.octets == value:
            return mtu
    sizes = ", ".join(str(mtu.octets) for mtu in Mtu)
    raise ValueError(f"must be one of {sizes}, not {show(value)}")


MTU = Kind(_mtu, {"type": "integer", "enum": [mtu.octets for mtu in Mtu]})

_LONGEST_MS = 10**12


def _milliseconds(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= _LONGEST_MS:  # nor NaN
        raise ValueError(f"must be milliseconds, 0 or more, not {show(value)}")
    return float(value)


MILLISECONDS = Kind(_milliseconds, {"type": "number", "minimum": 0, "maximum": _LONGEST_MS})

#: Of [mr, offset, length]: an offset or end beyond the region is the device's to judge.
_SGE = (bits(32), integer(-(1 << 63), (1 << 63) - 1), bits(32))


def _sges(value: Any) -> list[tuple[int, int, int]]:
    found = []
    for one in _list(value):
        if not isinstance(one, list) or len(one) != len(_SGE):
            raise ValueError(f"must hold [mr, offset, length], not {show(one)}")
        mr, offset, length = (kind.parse(part) for kind, part in zip(_SGE, one, strict=True))
        found.append((mr, offset, length))
    return found


SGES = Kind(
    _sges,
    {
        "type": "array",
        "items": {
            "type": "array",
            "description": "[mr, offset, length]",
            "prefixItems": [kind.schema for kind in _SGE],
            "minItems": len(_SGE),
            "maxItems": len(_SGE),
        },
    },
)


def _impairments(value: Any) -> Impairments:
    if not isinstance(value, str):
        raise ValueError(f"must be text such as loss=1%, not {show(value)}")
    return Impairments.parse(value)


IMPAIRMENTS = Kind(_impairments, {"type": "string", "description": "text such as loss=1%"})
