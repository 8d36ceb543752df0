"""Structures as dictionaries of integers, for benches: to and from flat vectors of Verilog."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from amaranth.hdl import Shape
from amaranth.lib import data

__all__ = ["Place", "pack", "places", "unpack", "zero"]


class Place(NamedTuple):
    """Where a field is in its structure; ``inner``: its own shape, if it is a structure too."""

    offset: int
    width: int
    inner: Any


@cache
def places(shape: Any) -> dict[str, Place]:
    """The fields of a structure: Amaranth would work them out anew with each value."""
    found = {}
    for name, at in data.Layout.cast(shape):
        try:
            inner = data.Layout.cast(at.shape) and at.shape
        except TypeError:
            inner = None
        found[name] = Place(at.offset, Shape.cast(at.shape).width, inner)
    return found


def pack(shape: Any, value: Any) -> int:
    """A structure as one number; fields left out are 0. ``value``: its fields by name, each as its
    own structure or a number; or the whole as a number, or as bytes from the lowest one on.

    Raises KeyError for an unknown field, ValueError for one that does not fit."""
    if isinstance(value, (bytes, bytearray)):
        return int.from_bytes(value, "little")
    if not isinstance(value, dict):
        return int(value)
    fields, total = places(shape), 0
    for name, part in value.items():
        at = fields[name]
        number = part if type(part) is int else pack(at.inner, part)
        if not 0 <= number < 1 << at.width:
            raise ValueError(f"{name} must fit {at.width} bits, not {part!r}")
        total |= number << at.offset
    return total


def unpack(shape: Any, number: int) -> dict[str, Any]:
    """The fields of a structure as numbers, of those that are structures likewise."""
    found: dict[str, Any] = {}
    for name, at in places(shape).items():
        part = number >> at.offset & (1 << at.width) - 1
        found[name] = part if at.inner is None else unpack(at.inner, part)
    return found


def zero(shape: Any) -> dict[str, Any]:
    """A structure of zeros."""
    return unpack(shape, 0)
