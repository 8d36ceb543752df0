"""The page of a space: each pair of metrics with its front, and the table of all cards."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from jinja2 import Environment, FileSystemLoader
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sim.explore.space import METRICS, front

__all__ = ["page"]

#: They differ for the colour-blind too.
_ON, _OFF = "#0072B2", "#999999"


def page(asked: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], swept: Sequence[str]) -> str:
    """Return the HTML. asked: the command, its metrics and traffic. rows: the cards, as the JSON
    has them. swept: the fields that differ."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    metrics = asked["metrics"]
    measured = [row for row in rows if row["figures"]]
    pairs = [(metrics[0], other) for other in metrics[1:]]
    return environment.get_template("page.html").render(
        asked=asked,
        rows=rows,
        swept=swept,
        texts={name: METRICS[name] for name in metrics},
        plots=[_plot(x, y, measured) for x, y in pairs if measured],
    )


def _plot(x: str, y: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the cards over two metrics as SVG, with the front of these two."""
    figure = Figure(figsize=(9, 5.2), layout="constrained")
    axes: Axes = figure.subplots()
    figures = [row["figures"] for row in rows]
    best = sorted(front(figures, (x, y)), key=lambda number: figures[number][x])
    for row in rows:
        one = row["figures"]
        colour, mark = (_ON, "o") if row["front"] else (_OFF, "x")
        axes.plot([one[x]], [one[y]], linestyle="none", color=colour, marker=mark)
        axes.annotate(
            row["name"], (one[x], one[y]), textcoords="offset points", xytext=(6, 4), fontsize=7
        )
    axes.plot(
        [figures[number][x] for number in best],
        [figures[number][y] for number in best],
        color=_ON,
        # Between two cards of the front counts the one that costs no more, or brings no less.
        drawstyle="steps-pre" if METRICS[x].more else "steps-post",
        linewidth=1,
    )
    axes.margins(x=0.15, y=0.1)
    for name, label in ((x, axes.set_xlabel), (y, axes.set_ylabel)):
        label(f"{METRICS[name].text} ({'more' if METRICS[name].more else 'less'} is better)")
    axes.grid(True, color="#dddddd")
    axes.set_axisbelow(True)
    text = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": f"rocinante {x} {y}", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue().partition("?>")[2].partition(">")[2]
