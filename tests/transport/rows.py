"""Rows as dictionaries: to and from the flat vectors of generated Verilog."""

from __future__ import annotations

from functools import cache
from typing import Any

from amaranth.hdl import Shape
from amaranth.lib import data

__all__ = ["pack", "unpack", "zero"]


@cache
def _fields(shape: Any) -> tuple[tuple[str, int, int, Any], ...]:
    """(name, offset, width, inner shape or None) of each field."""
    layout = shape if isinstance(shape, data.StructLayout) else shape.as_shape()
    found = []
    for name, field in layout:
        inner = field.shape
        nested = isinstance(inner, data.StructLayout) or (
            isinstance(inner, type) and issubclass(inner, data.Struct)
        )
        found.append((name, field.offset, Shape.cast(inner).width, inner if nested else None))
    return tuple(found)


def pack(shape: Any, row: dict[str, Any]) -> int:
    """A row as one number; fields left out are 0. Raises KeyError for an unknown field."""
    if not isinstance(row, dict):
        return int(row)
    fields = _fields(shape)
    if unknown := set(row) - {name for name, *_ in fields}:
        raise KeyError(f"{shape} has no {sorted(unknown)}")
    total = 0
    for name, offset, width, inner in fields:
        value = row.get(name, 0)
        number = pack(inner, value) if inner and value else int(value or 0)
        if number >> width:
            raise ValueError(f"{name} must fit {width} bits, not {number:#x}")
        total |= number << offset
    return total


def unpack(shape: Any, number: int) -> dict[str, Any]:
    """The fields of a packed row."""
    row: dict[str, Any] = {}
    for name, offset, width, inner in _fields(shape):
        value = number >> offset & (1 << width) - 1
        row[name] = unpack(inner, value) if inner else value
    return row


def zero(shape: Any) -> dict[str, Any]:
    """A row of zeros."""
    return unpack(shape, 0)
