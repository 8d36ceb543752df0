"""Headers in gateware: fields out of, and into, a flat vector whose byte 0 is in bits 7:0."""

from __future__ import annotations

from collections.abc import Mapping

from amaranth.hdl import Cat, Const, Value, ValueLike

from .headers import Field, Header

__all__ = ["build", "get", "raw", "swap"]


def _pieces(field: Field) -> list[tuple[int, int]]:
    """(start, width) of the field's parts in a flat vector, least significant part first."""
    parts, at, left = [], field.start, field.width
    while left:
        bit = at % 8
        width = min(8 - bit, left)
        parts.append((8 * (at // 8) + 8 - bit - width, width))
        at, left = at + width, left - width
    return parts[::-1]


def get(vector: Value, header: Header, field: str, *, at: int = 0) -> Value:
    """A field as a number; the header starts at byte ``at`` of ``vector``."""
    return Cat(
        vector[8 * at + start : 8 * at + start + width] for start, width in _pieces(header[field])
    )


def raw(vector: Value, header: Header, field: str, *, at: int = 0) -> Value:
    """A field of whole bytes as they lie: its first byte in bits 7:0."""
    place = header[field]
    if place.bit or place.width % 8:
        raise ValueError(f"{header.name}.{field} must be whole bytes to be taken raw")
    return vector[8 * (at + place.byte) :][: place.width]


def swap(value: ValueLike) -> Value:
    """A number of whole bytes as big-endian bytes, first byte in bits 7:0; or back."""
    value = Value.cast(value)
    if len(value) % 8:
        raise ValueError(f"Value must be whole bytes, not {len(value)} bits")
    return Cat(value[at : at + 8] for at in reversed(range(0, len(value), 8)))


def build(header: Header, values: Mapping[str, ValueLike]) -> Value:
    """The header as a flat vector from numbers; fields not given are 0.

    A value narrower than its field is extended with zeros, a wider one is cut.
    """
    for name in values:
        header[name]  # KeyError for an unknown field
    parts: list[tuple[int, Value]] = []
    for name, field in header.fields.items():
        value = Value.cast(values.get(name, 0))
        value = Cat(value, Const(0, max(0, field.width - len(value))))
        low = 0
        for start, width in _pieces(field):
            parts.append((start, value[low : low + width]))
            low += width
    return Cat(part for _, part in sorted(parts, key=lambda part: part[0]))
