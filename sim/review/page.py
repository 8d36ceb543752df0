"""The page of a review: tables from the facts, plots, the block diagram."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from matplotlib.figure import Figure

from sim.review.collect import MISSING
from sim.review.differences import Difference, Verdict
from sim.review.extra import GIVEN, RESOURCES
from sim.review.roofline import roofline
from sim.review.sequence import drawn, sequence, stages, waterfall
from sim.rtl.reached import rooms

__all__ = ["page"]

_TEMPLATE = "page.html"
#: Columns of a part's cost.
_FIGURES = ("lut", "lutram", "ff", "bram", "uram", "dsp", "levels", "ram_levels")
_SECTIONS = {
    "differences": "Differences",
    "card": "What this card is",
    "speed": "Speed",
    "cost": "Cost",
    "interfaces": "Interfaces",
    "verification": "Verification",
    "limits": "Known limits",
}
#: Measured rates, and those of the other revision: they differ for the colour-blind too.
_HEAD, _BASE = "#0072B2", "#bbbbbb"


def page(
    facts: Mapping[str, Any],
    meanings: Mapping[str, str],
    *,
    head: str,
    command: str,
    base: str = "",
    base_facts: Mapping[str, Any] | None = None,
    found: Sequence[Difference] = (),
) -> str:
    """Return the HTML. facts: as ``collect`` returns them, with each card's flows and diagram,
    and as ``measured`` what ``sim.review.extra`` has read.
    meanings: what each field of the configuration is. With ``base`` its facts and what differs."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["plain"] = _plain
    counts = Counter(one.verdict for one in found)
    speed = {} if MISSING in facts["speed"] else facts["speed"]
    timing = {} if MISSING in facts["timing"] else facts["timing"]
    requirements = {} if MISSING in facts["requirements"] else facts["requirements"]
    old = (base_facts or {}).get("speed", {})
    told = {} if MISSING in facts["sequences"] else facts["sequences"]
    scenes = told.get("scenes", {})
    return environment.get_template(_TEMPLATE).render(
        facts=facts,
        meanings=meanings,
        head=head,
        base=base,
        command=command,
        sections=[(id_, title) for id_, title in _SECTIONS.items() if base or id_ != "differences"],
        differences=[(key, list(rows)) for key, rows in groupby(found, lambda one: one.section)],
        not_compared=list(_not_compared(base_facts or {}, facts)),
        lost=counts[Verdict.LOST],
        gained=counts[Verdict.GAINED],
        other=counts[Verdict.OTHER],
        speed=_by_table(speed),
        plots=[_plot(table, rows, old) for table, rows in _by_table(speed)],
        figures=_FIGURES,
        cases=list(dict.fromkeys(case for row in timing.values() for case in row["estimate"])),
        states=Counter(one["state"] for one in requirements.values()),
        measured=facts["measured"],
        coverage=facts["coverage"],
        rooms=rooms(facts["code"].get("rows", [])),
        given=GIVEN,
        resources=RESOURCES,
        roof=roofline(speed) if speed else "",
        scenes={name: sequence(told["lanes"], steps) for name, steps in scenes.items()},
        waterfall=_waterfall(scenes.get("WRITE", [])),
    )


def _waterfall(steps: Sequence[Mapping[str, Any]]) -> str:
    if not steps:
        return ""
    return waterfall(
        stages(steps), f"The stages of one message: {steps[0]['text'].removeprefix('posts ')}"
    )


def _plain(markdown: str) -> str:
    """Return a point of a list without Markdown's signs; links become their texts."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", markdown).replace("`", "").replace("**", "")


def _not_compared(base: Mapping[str, Any], head: Mapping[str, Any]) -> Iterator[str]:
    """What one of the two cannot tell."""
    for section, facts in base.items():
        for which, answer in (("the older revision", facts), ("this one", head[section])):
            if isinstance(answer, Mapping):
                if MISSING in answer:
                    yield f"{section}: {which} does not tell it ({answer[MISSING]})"
                if section == "cards":
                    for name, card in answer.items():
                        if MISSING in card:
                            yield f"card {name}: {which} has none such ({card[MISSING]})"


def _by_table(speed: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, Any]]]]:
    """The recorded rows of each table."""
    tables: dict[str, list[tuple[str, Any]]] = {}
    for command, row in speed.items():
        tables.setdefault(row["table"], []).append((command, row))
    return list(tables.items())


def _plot(table: str, rows: Sequence[tuple[str, Any]], old: Mapping[str, Any]) -> str:
    """Return bars of the first figure of each row as SVG; those of the older revision beside."""
    first = next(iter(rows[0][1]["figures"]))
    unit = "ns" if first == "min" else "Gb/s" if first == "gbps" else first
    names = [command for command, _ in rows]
    values = [row["figures"].get(first, 0) for _, row in rows]
    before = [old.get(name, {}).get("figures", {}).get(first, 0) for name in names]
    figure = Figure(figsize=(9, 0.32 * len(rows) + 1), layout="constrained")
    axes = figure.subplots()
    places = range(len(rows))
    if any(before):
        axes.barh([at + 0.28 for at in places], before, 0.24, color=_BASE, label="before")
    axes.barh(places, values, 0.5 if not any(before) else 0.3, color=_HEAD, label="now")
    axes.set_yticks(places, names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.set_title(table, loc="left", fontsize=10)
    axes.grid(True, axis="x", color="#dddddd")
    axes.set_axisbelow(True)
    if any(before):
        axes.legend(fontsize=8)
    return drawn(figure, table)
