"""Rows as dictionaries: to and from the flat vectors of generated Verilog."""

from __future__ import annotations

from typing import Any

from tests.fields import places

__all__ = ["pack", "unpack", "zero"]


def pack(shape: Any, row: dict[str, Any]) -> int:
    """A row as one number; fields left out are 0. Raises KeyError for an unknown field."""
    if not isinstance(row, dict):
        return int(row)
    fields = places(shape)
    total = 0
    for name, value in row.items():
        at = fields[name]
        if not value:
            continue
        number = int(value) if at.inner is None else pack(at.inner, value)
        if number >> at.width:
            raise ValueError(f"{name} must fit {at.width} bits, not {number:#x}")
        total |= number << at.offset
    return total


def unpack(shape: Any, number: int) -> dict[str, Any]:
    """The fields of a packed row."""
    row: dict[str, Any] = {}
    for name, at in places(shape).items():
        value = number >> at.offset & (1 << at.width) - 1
        row[name] = value if at.inner is None else unpack(at.inner, value)
    return row


def zero(shape: Any) -> dict[str, Any]:
    """A row of zeros."""
    return unpack(shape, 0)
