"""Where the fields of structures are, for benches that take many values apart."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from amaranth.hdl import Shape
from amaranth.lib import data

__all__ = ["Place", "places"]


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
