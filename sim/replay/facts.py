"""The side file of a capture: what its packets do not say.

``Facts.load`` reads JSON; docs/replay.md describes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hdl.abi.enums import Access
from sim.replay.pairing import MTUS, PSN_MASK
from sim.wire.packets import gid_bytes

__all__ = ["ConnectionFacts", "Facts", "RegionFacts"]


@dataclass
class ConnectionFacts:
    """A connection: (GID, QPN) of its two ends, and what is known of it."""

    ends: list[tuple[bytes, int]]
    path_mtu: int | None = None
    msns: dict[tuple[bytes, int], int] = field(default_factory=dict)

    @property
    def key(self) -> tuple[bytes, int, bytes, int]:
        """Both ends."""
        return (*self.ends[0], *self.ends[1])


@dataclass
class RegionFacts:
    """A memory region of the machine with ``gid``; ``data`` is what it holds at first."""

    gid: bytes
    rkey: int
    base: int
    length: int
    access: Access
    data: bytes = b""


@dataclass
class Facts:
    """Everything that a side file states."""

    side_a: list[bytes] = field(default_factory=list)
    connections: list[ConnectionFacts] = field(default_factory=list)
    regions: list[RegionFacts] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path | str) -> Facts:
        """Read a side file. Raises ValueError, with one line, for what it does not understand."""
        try:
            return _facts(json.loads(Path(path).read_text()))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: no JSON: {error}") from None
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def of(self, ends: tuple[tuple[bytes, int], tuple[bytes, int]]) -> ConnectionFacts | None:
        """What is stated of the connection with these ends, either way round."""
        for one in self.connections:
            if set(one.ends) == set(ends):
                return one
        return None


Reader = Callable[[str, Any], Any]


def _object(where: str, value: Any, required: dict[str, Reader], optional: dict[str, Reader]):
    """The members of a JSON object, each read by its reader; None for those that are missing."""
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be an object, not {value!r}")
    readers = required | optional
    for name in value:
        if name not in readers:
            raise ValueError(f"{where} has no {name!r}, only {', '.join(readers)}")
    for name in required:
        if name not in value:
            raise ValueError(f"{where} needs {name!r}")
    return {
        name: read(f"{where}.{name}", value[name]) if name in value else None
        for name, read in readers.items()
    }


def _list(read: Reader) -> Reader:
    def items(where: str, value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ValueError(f"{where} must be a list, not {value!r}")
        return [read(f"{where}[{i}]", one) for i, one in enumerate(value)]

    return items


def _number(low: int, high: int) -> Reader:
    def number(where: str, value: Any) -> int:
        found = value
        if isinstance(value, str):
            with suppress(ValueError):
                found = int(value, 0)
        if not isinstance(found, int) or isinstance(found, bool) or not low <= found <= high:
            raise ValueError(f"{where} must be {low:#x} to {high:#x}, not {value!r}")
        return found

    return number


def _ip(where: str, value: Any) -> bytes:
    try:
        return gid_bytes(value)
    except ValueError:
        raise ValueError(f"{where} must be an IP address, not {value!r}") from None


def _access(where: str, value: Any) -> Access:
    names = {flag.name: flag for flag in Access}
    found = Access.LOCAL_WRITE
    for name in _list(lambda _, one: one)(where, value):
        if name not in names:
            raise ValueError(f"{where} has no {name!r}, only {', '.join(map(str, names))}")
        found |= names[name]
    return found


def _hex(where: str, value: Any) -> bytes:
    try:
        return bytes.fromhex(value)
    except (TypeError, ValueError):
        raise ValueError(f"{where} must be bytes in hexadecimal") from None


def _mtu(where: str, value: Any) -> int:
    if value not in MTUS:
        raise ValueError(f"{where} must be one of {MTUS}, not {value!r}")
    return int(value)


def _addresses(where: str, value: Any) -> list[bytes]:
    return [_ip(where, value)] if isinstance(value, str) else _list(_ip)(where, value)


_QPN = _number(1, PSN_MASK)
_END = {"ip": _ip, "qpn": _QPN}
_REGION = {
    "ip": _ip,
    "rkey": _number(0, (1 << 32) - 1),
    "base": _number(0, (1 << 64) - 1),
    "length": _number(1, 256 << 20),
}


def _end(where: str, value: Any) -> Any:
    return _object(where, value, _END, {"msn": _number(0, PSN_MASK)})


def _connection(where: str, value: Any) -> ConnectionFacts:
    found = _object(where, value, {"ends": _list(_end)}, {"path_mtu": _mtu})
    if len(found["ends"]) != 2:
        raise ValueError(f"{where}.ends must be two, not {len(found['ends'])}")
    ends = [(end["ip"], end["qpn"]) for end in found["ends"]]
    msns = {
        key: end["msn"]
        for key, end in zip(ends, found["ends"], strict=True)
        if end["msn"] is not None
    }
    return ConnectionFacts(ends, found["path_mtu"], msns)


def _region(where: str, value: Any) -> RegionFacts:
    found = _object(where, value, _REGION, {"access": _access, "data": _hex})
    access = found["access"]
    if access is None:
        access = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE
    data = found["data"] or b""
    if len(data) > found["length"]:
        raise ValueError(f"{where}.data has {len(data)} bytes, the region {found['length']}")
    return RegionFacts(found["ip"], found["rkey"], found["base"], found["length"], access, data)


def _facts(value: Any) -> Facts:
    found = _object(
        "the side file",
        value,
        {},
        {
            "side_a": _addresses,
            "connections": _list(_connection),
            "regions": _list(_region),
        },
    )
    return Facts(found["side_a"] or [], found["connections"] or [], found["regions"] or [])
