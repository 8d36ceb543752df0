"""Figures kept in the repository, so that a change which makes the gateware dearer says so.

With the figures of a part there is what they follow from (``of``): a part that is still the same
need not be mapped again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from hdl.config import NicConfig
from sim.make.synth.parts import SIZES, WHOLE, Part, configuration
from sim.make.synth.report import Report, identity
from sim.rtl.env import FILES

FILE = FILES / "tests" / "data" / "synth.json"

#: A figure may grow by this much before a change has to update it on purpose.
TOLERANCE = 0.05


def title(family: str, config: NicConfig) -> str:
    """Return the name of a set of figures: family, width, and what differs from the size that it
    is nearest to."""

    def changes(size: str) -> list[str]:
        base = configuration(config.width, size=size)
        return [
            f"{field.name}={getattr(config, field.name)}"
            for field in fields(config)
            if getattr(config, field.name) != getattr(base, field.name)
        ]

    names = [[size, *changes(size)] if size else changes(size) for size in SIZES]
    return " ".join([family, f"width={config.width}", *min(names, key=len)])


def load() -> dict[str, dict[str, dict[str, Any]]]:
    """Return set -> part -> figure -> value, and under ``of`` what the figures follow from.

    Empty when the file is not there yet.
    """
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def unchanged(name: str, part: Part, family: str) -> bool:
    """Whether the figures of ``part`` in the set ``name`` are those that mapping it would give."""
    known = load().get(name, {}).get(part.name, {})
    return known.get("of") == identity(part, family)


def compare(name: str, reports: Iterable[Report]) -> list[str]:
    """Return one line for every figure that grew by more than ``TOLERANCE``, and for every part
    that has none in the set ``name``."""
    known = load().get(name, {})
    found = []
    for report in reports:
        before = known.get(report.name)
        if before is None:
            found.append(f"{report.name}: no baseline for {name}")
            continue
        found += [
            f"{report.name}: {figure} grew from {before.get(figure, 0):g} to {value:g}"
            for figure, value in report.figures().items()
            if value > before.get(figure, 0) * (1 + TOLERANCE)
        ]
    return found


def update(name: str, reports: Iterable[Report], *, complete: bool = False) -> None:
    """Write the figures of ``reports`` into the set ``name``; the others stay.

    complete: the reports are of all components, so others in the set are gone (the whole is not).
    """
    sets = load()
    kept = {
        part: figures
        for part, figures in sets.get(name, {}).items()
        if part == WHOLE or not complete
    }
    new = {one.name: {**one.figures(), "of": one.of} for one in reports}
    sets[name] = dict(sorted({**kept, **new}.items()))
    lines = []
    for key, figures in sorted(sets.items()):
        rows = [f"    {json.dumps(part)}: {json.dumps(row)}" for part, row in figures.items()]
        lines.append(f"  {json.dumps(key)}: {{\n" + ",\n".join(rows) + "\n  }")
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
