"""Byte layouts, described once and read by gateware, firmware, driver, tests and documentation.

A layout is packed and little-endian (Virtio 1.2, 1.4: no implicit padding; virtio-rdma VR-0.1).
The description knows offsets, turns values into bytes and back, and gives an Amaranth layout:

>>> POINT = Struct("point", u8("kind"), le32("x"), byte_array("tag", 3))
>>> POINT.size, POINT.offset("x")
(8, 1)
>>> POINT.pack(kind=1, x=0x1234, tag=b"abc").hex()
'0134120000616263'
>>> POINT.unpack(bytes(8)).x
0

Nothing here imports gateware; `amaranth_layout` loads Amaranth when it is called.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_SCALAR_NAMES = {1: "u8", 2: "le16", 4: "le32", 8: "le64"}
_SCALAR_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}


class Values(dict[str, Any]):
    """The fields of one unpacked structure, readable as items and as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"No field {name!r}, only {', '.join(self)}") from None


class Kind:
    """What a field holds. ``size`` is in bytes, ``type_name`` is the name in documentation."""

    size: int
    type_name: str

    def pack_value(self, value: Any, where: str) -> bytes:
        """``value`` as ``size`` bytes; ValueError that begins with ``where`` when it cannot be."""
        raise NotImplementedError

    def unpack_value(self, data: bytes) -> Any:
        """The value held in exactly ``size`` bytes."""
        raise NotImplementedError

    def default(self) -> Any:
        """The value that stands for a field not given: all bytes zero."""
        return self.unpack_value(bytes(self.size))


@dataclass(frozen=True)
class Scalar(Kind):
    """An unsigned little-endian integer of 1, 2, 4 or 8 bytes."""

    size: int

    @property
    def type_name(self) -> str:  # type: ignore[override]
        return _SCALAR_NAMES[self.size]

    def pack_value(self, value: Any, where: str) -> bytes:
        try:
            number = value.__index__()
        except AttributeError:
            raise ValueError(f"{where} must be an integer, not {value!r}") from None
        if not 0 <= number < 1 << (8 * self.size):
            raise ValueError(f"{where} must fit {8 * self.size} bits, not {value!r}")
        return int(number).to_bytes(self.size, "little")

    def unpack_value(self, data: bytes) -> int:
        return int.from_bytes(data, "little")


@dataclass(frozen=True)
class Bytes(Kind):
    """Raw bytes in the order given: GIDs, MAC addresses, opaque words."""

    size: int

    @property
    def type_name(self) -> str:  # type: ignore[override]
        return f"u8[{self.size}]"

    def pack_value(self, value: Any, where: str) -> bytes:
        if not isinstance(value, (bytes, bytearray, memoryview)) or len(value) != self.size:
            raise ValueError(f"{where} must be {self.size} bytes, not {value!r}")
        return bytes(value)

    def unpack_value(self, data: bytes) -> bytes:
        return bytes(data)


@dataclass(frozen=True)
class Array(Kind):
    """A fixed number of equal scalars; a value is a sequence of integers."""

    element: Scalar
    count: int

    @property
    def size(self) -> int:  # type: ignore[override]
        return self.element.size * self.count

    @property
    def type_name(self) -> str:  # type: ignore[override]
        return f"{self.element.type_name}[{self.count}]"

    def pack_value(self, value: Any, where: str) -> bytes:
        if not isinstance(value, Sequence) or len(value) != self.count:
            raise ValueError(f"{where} must be {self.count} integers, not {value!r}")
        return b"".join(
            self.element.pack_value(item, f"{where}[{i}]") for i, item in enumerate(value)
        )

    def unpack_value(self, data: bytes) -> tuple[int, ...]:
        step = self.element.size
        return tuple(
            int.from_bytes(data[i : i + step], "little") for i in range(0, self.size, step)
        )


@dataclass(frozen=True)
class Field:
    """One named member of a structure; ``note`` goes to the documentation."""

    name: str
    kind: Kind
    note: str = ""


@dataclass(frozen=True)
class Place:
    """Where a field lies: dotted ``path``, ``offset`` and ``size`` in bytes."""

    path: str
    offset: int
    size: int
    kind: Kind
    note: str

    @property
    def end(self) -> int:
        """Offset of the first byte after the field."""
        return self.offset + self.size


class Struct(Kind):
    """Fields one after another without padding.

    Errors: ValueError for a field given twice in the description, an unknown field or a value that
    does not fit (all name structure, field and value); KeyError for an unknown path.
    """

    def __init__(self, name: str, *fields: Field):
        self.name = self.type_name = name
        self.fields = fields
        self._places: dict[str, Place] = {}
        offset = 0
        for field in fields:
            if field.name in self._places:
                raise ValueError(f"{name} has two fields named {field.name!r}")
            self._add_places(field, offset)
            offset += field.kind.size
        self.size = offset

    def _add_places(self, field: Field, offset: int) -> None:
        kind = field.kind
        self._places[field.name] = Place(field.name, offset, kind.size, kind, field.note)
        if isinstance(kind, (Struct, Union)):
            for inner in kind.places():
                path = f"{field.name}.{inner.path}"
                self._places[path] = Place(
                    path, offset + inner.offset, inner.size, inner.kind, inner.note
                )

    def __repr__(self) -> str:
        return f"<Struct {self.name}, {self.size} bytes>"

    def places(self) -> Iterator[Place]:
        """Every field in order, members of nested structures after the structure itself."""
        return iter(self._places.values())

    def place(self, path: str) -> Place:
        """Where the field with the dotted ``path`` lies."""
        try:
            return self._places[path]
        except KeyError:
            raise KeyError(f"{self.name} has no field {path!r}") from None

    def offset(self, path: str) -> int:
        """Byte offset of the field with the dotted ``path``."""
        return self.place(path).offset

    def codec(self) -> struct.Struct:
        """A positional codec for code that packs often: one value per field.

        Nested structures, unions and arrays are their bytes. Nothing is named in its errors.
        """
        codes = [
            _SCALAR_CODES[field.kind.size]
            if isinstance(field.kind, Scalar)
            else f"{field.kind.size}s"
            for field in self.fields
        ]
        return struct.Struct("<" + "".join(codes))

    def pack(self, values: Mapping[str, Any] | None = None, /, **fields: Any) -> bytes:
        """The structure as ``size`` bytes; a field that is not given is zero."""
        return self.pack_value({**(values or {}), **fields}, self.name)

    def unpack(self, data: bytes | bytearray | memoryview) -> Values:
        """The fields of the first ``size`` bytes of ``data``; ValueError when it is shorter."""
        if len(data) < self.size:
            raise ValueError(f"{self.name} needs {self.size} bytes, not {len(data)}")
        return self.unpack_value(bytes(data[: self.size]))

    def pack_value(self, value: Any, where: str) -> bytes:
        _check_members(value, {field.name for field in self.fields}, where)
        return b"".join(
            field.kind.pack_value(value[field.name], f"{where}.{field.name}")
            if field.name in value
            else bytes(field.kind.size)
            for field in self.fields
        )

    def unpack_value(self, data: bytes) -> Values:
        result = Values()
        offset = 0
        for field in self.fields:
            end = offset + field.kind.size
            result[field.name] = field.kind.unpack_value(data[offset:end])
            offset = end
        return result


class Union(Kind):
    """Members that share the same bytes; as large as the largest, unused bytes are zero.

    A value is a mapping with at most one member, or with ``raw``: all the bytes. Unpacking gives
    every member and ``raw``, so that packing an unpacked value returns the same bytes.
    """

    def __init__(self, name: str, *fields: Field):
        self.name = self.type_name = name
        self.fields = fields
        self.size = max(field.kind.size for field in fields)

    def __repr__(self) -> str:
        return f"<Union {self.name}, {self.size} bytes>"

    def places(self) -> Iterator[Place]:
        """Every member and the fields in it; all members begin at offset 0."""
        for field in self.fields:
            yield from Struct(self.name, field).places()

    def pack_value(self, value: Any, where: str) -> bytes:
        kinds = {field.name: field.kind for field in self.fields}
        _check_members(value, {*kinds, "raw"}, where)
        if "raw" in value:
            return Bytes(self.size).pack_value(value["raw"], f"{where}.raw")
        if len(value) > 1:
            raise ValueError(f"{where} takes one member, not {', '.join(sorted(value))}")
        packed = b"".join(
            kinds[name].pack_value(item, f"{where}.{name}") for name, item in value.items()
        )
        return packed.ljust(self.size, b"\0")

    def unpack_value(self, data: bytes) -> Values:
        result = Values(raw=bytes(data))
        for field in self.fields:
            result[field.name] = field.kind.unpack_value(data[: field.kind.size])
        return result


def _check_members(value: Any, names: set[str], where: str) -> None:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} must be a mapping of fields, not {value!r}")
    unknown = [name for name in value if name not in names]
    if unknown:
        raise ValueError(f"{where} has no field {unknown[0]!r} (value {value[unknown[0]]!r})")


def u8(name: str, note: str = "") -> Field:
    """An 8-bit field."""
    return Field(name, Scalar(1), note)


def le16(name: str, note: str = "") -> Field:
    """A 16-bit little-endian field."""
    return Field(name, Scalar(2), note)


def le32(name: str, note: str = "") -> Field:
    """A 32-bit little-endian field."""
    return Field(name, Scalar(4), note)


def le64(name: str, note: str = "") -> Field:
    """A 64-bit little-endian field."""
    return Field(name, Scalar(8), note)


def byte_array(name: str, count: int, note: str = "") -> Field:
    """``count`` raw bytes."""
    return Field(name, Bytes(count), note)


def array(name: str, element: Scalar, count: int, note: str = "") -> Field:
    """``count`` scalars."""
    return Field(name, Array(element, count), note)


def nested(name: str, kind: Struct | Union, note: str = "") -> Field:
    """A structure or union inside another."""
    return Field(name, kind, note)


#: No data: a command that needs none or answers none.
NOTHING = Struct("nothing")


def amaranth_layout(kind: Struct | Union) -> Any:
    """The ``amaranth.lib.data`` layout with every field at bit 8 * its byte offset.

    Scalars and arrays of bytes or scalars are flat unsigned fields (byte 0 in bits 7:0), because a
    wire per byte is slow to convert and to simulate; nested structures stay structures.
    """
    from amaranth.hdl import unsigned
    from amaranth.lib import data

    members = {
        field.name: amaranth_layout(field.kind)
        if isinstance(field.kind, (Struct, Union))
        else unsigned(8 * field.kind.size)
        for field in kind.fields
    }
    return data.UnionLayout(members) if isinstance(kind, Union) else data.StructLayout(members)
