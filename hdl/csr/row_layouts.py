"""Where the fields of the tables' rows are: from the layouts, or from a file that was made of them.

The layouts of ``hdl.ports`` need Amaranth. A package of the firmware has none, but a file
``rows.json`` beside this one, which ``described`` has written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["FILE", "RowField", "RowLayout", "described", "layout_class", "row_layout_of"]

#: In a package of the firmware: what ``described`` returns.
FILE = Path(__file__).with_name("rows.json")


@dataclass(frozen=True)
class RowField:
    """Where a field of a row is: dotted ``path`` (``av.dgid``), lowest bit and width."""

    path: str
    low: int
    width: int


@dataclass(frozen=True)
class RowLayout:
    """A row: its fields and how many bits it has."""

    fields: tuple[RowField, ...]
    bits: int


@cache
def _file() -> dict[str, Any] | None:
    return json.loads(FILE.read_text()) if FILE.exists() else None


@cache
def row_layout_of(kind: str | None, bits: int) -> RowLayout:
    """The row of class ``kind``, of ``hdl.ports``; None: one number, ``value``, of ``bits``."""
    if kind is None:
        return RowLayout((RowField("value", 0, bits),), bits)
    known = _file()
    if known is not None:
        fields = tuple(RowField(*field) for field in known[kind]["fields"])
        return RowLayout(fields, known[kind]["bits"])
    from amaranth.hdl import Shape

    layout = layout_class(kind)
    return RowLayout(tuple(_flatten(layout, "", 0)), Shape.cast(layout).width)


def layout_class(kind: str) -> Any:
    """The layout itself, for gateware."""
    from hdl.ports import headers, rows

    return getattr(rows, kind, None) or getattr(headers, kind)


def _flatten(layout: Any, prefix: str, low: int) -> list[RowField]:
    from amaranth.hdl import Shape
    from amaranth.lib import data

    result = []
    for name, field in data.Layout.cast(layout):
        path, start = f"{prefix}{name}", low + field.offset
        shape = field.shape
        while hasattr(shape, "as_shape") and not isinstance(shape, data.Layout):
            shape = shape.as_shape()
        if isinstance(shape, data.Layout):
            result += _flatten(shape, f"{path}.", start)
        else:
            result.append(RowField(path, start, Shape.cast(shape).width))
    return result


def described(kinds: set[str]) -> str:
    """The layouts of these classes as JSON, for ``FILE``."""
    found = {kind: row_layout_of(kind, 0) for kind in sorted(kinds)}
    return json.dumps(
        {
            kind: {
                "bits": layout.bits,
                "fields": [[field.path, field.low, field.width] for field in layout.fields],
            }
            for kind, layout in found.items()
        }
    )
