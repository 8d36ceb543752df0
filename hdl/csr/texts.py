"""Descriptions for SystemRDL that stand elsewhere: of rows and of the configuration.

A row is described where it is defined (``hdl.ports.rows``, ``hdl.ports.headers``): the comment of a
field stands behind it or in the lines above it. So are the features of a card, and what its other
numbers are is in the docstring of ``NicConfig``. Documents alone need these texts.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import textwrap
import tokenize
from dataclasses import fields
from functools import cache
from typing import Any

from hdl.config import CardFeature, NicConfig

from .row_layouts import layout_class

__all__ = ["config_texts", "row_texts"]

#: Fields of rows that are no classes: layout, pattern of the names, text.
_PLAIN = (
    ("PkeyRow", r"key(\d+)", r"entry \1 of the function's P_Key table"),
    ("GroupRow", r"valid", "the group has members"),
    ("GroupRow", r"gid", "address of the group"),
    ("GroupRow", r"member(\d+)", r"pair index of member \1"),
)


@cache
def row_texts(kind: str | None) -> dict[str, str]:
    """Return the text of each field by its dotted path; None: the row is one number."""
    if kind is None:
        return {"value": "the number"}
    return dict(_texts(kind, layout_class(kind), ""))


@cache
def config_texts() -> dict[str, str]:
    """Return the text of each field of ``NicConfig``.

    Its docstring has ``name: text``, sentence behind sentence; that of the switches, which stand
    together, is the comment of their ``CardFeature``.
    """
    comments = _comments(CardFeature)
    texts = {feature.value: comments[feature.name] for feature in CardFeature}
    described = " ".join((NicConfig.__doc__ or "").partition("Attributes:")[2].split())
    names = "|".join(item.name for item in fields(NicConfig))
    pieces = re.split(rf"\b({names}): ", described)
    texts |= {
        name: text.partition(f" {CardFeature.UC.value}, ")[0].strip(" .;")
        for name, text in zip(pieces[1::2], pieces[2::2], strict=True)
        if name not in texts
    }
    return texts


def _texts(kind: str, layout: Any, prefix: str) -> list[tuple[str, str]]:
    from amaranth.lib import data

    own = _comments(layout) if isinstance(layout, type) else {}
    found: list[tuple[str, str]] = []
    for name, field in data.Layout.cast(layout):
        text = own.get(name, "") or _plain(kind, name)
        if isinstance(field.shape, type) and issubclass(field.shape, data.Struct):
            found += _texts(kind, field.shape, f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", text))
    return found


def _plain(kind: str, name: str) -> str:
    for layout, pattern, text in _PLAIN:
        if layout == kind and (match := re.fullmatch(pattern, name)):
            return match.expand(text)
    return ""


def _comments(row: type) -> dict[str, str]:
    """Return the comment of each field or member of a class: those above it, then its own."""
    source = textwrap.dedent(inspect.getsource(row))
    lines = dict[int, str]()
    whole = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0]] = token.string.lstrip("#: ")
            if not token.line[: token.start[1]].strip():
                whole.add(token.start[0])
    texts: dict[str, str] = {}
    for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
        target = getattr(node, "target", None) or getattr(node, "targets", [None])[0]
        if isinstance(target, ast.Name):
            first, last = node.lineno, node.end_lineno or node.lineno
            above = first - 1
            while above in whole:
                above -= 1
            numbers = range(above + 1, last + 1)
            texts[target.id] = " ".join(lines[n] for n in numbers if n in lines)
    return texts
