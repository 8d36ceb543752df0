"""Figures of a sweep as PNG and SVG: goodput and message rate, or latency, over one quantity."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from sim.measure.perf.plan import Plan
from sim.measure.perf.report import Row
from sim.tools.console import octets

__all__ = ["draw"]

#: Colours that differ for the colour-blind and in print; line styles differ as well.
_MEASURED, _LIMIT, _TAIL = "#0072B2", "#555555", "#D55E00"
_NAMES = {"size": "message size", "qps": "queue pairs"}


def draw(plan: Plan, rows: Sequence[Row], over: str, folder: Path) -> list[Path]:
    """Draw ``rows`` over ``size`` (bytes) or ``qps``; returns the files written into ``folder``."""
    facts = sorted((row.json for row in rows), key=lambda row: row[over])
    x = [row[over] for row in facts]
    count = 1 if plan.latency else 2
    figure = Figure(figsize=(9, 4.2 * count + 0.6), dpi=150, layout="constrained")
    axes: list[Axes] = list(figure.subplots(count, 1, squeeze=False)[:, 0])
    if plan.latency:
        _latency(axes[0], x, facts)
    else:
        _rates(axes, x, facts)
    for each in axes:
        _axis_of(each, x, over)
    other = f"{plan.qps} QP" if over == "size" else octets(facts[0]["size"])
    both = ", bidirectional" if plan.bidirectional else ""
    figure.suptitle(
        f"{plan.op}{both} over {_NAMES[over]}: {other}, MTU {plan.mtu}, "
        f"{plan.width} bit at {plan.clock_mhz:g} MHz, {plan.line:g} Gb/s line"
    )
    files = [folder / f"perf-{plan.op}-{over}.{kind}" for kind in ("png", "svg")]
    with mpl.rc_context({"svg.hashsalt": "rocinante"}):  # the same picture, the same file
        for path in files:
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    return files


def _rates(axes: Sequence[Axes], x: list[int], facts: Sequence[dict[str, Any]]) -> None:
    limits = [row["wire_limit_gbps"] for row in facts]
    goodput, rate = axes
    goodput.plot(x, [row["gbps"] for row in facts], "o-", color=_MEASURED, label="measured")
    goodput.plot(x, limits, "--", color=_LIMIT, label="wire limit")
    goodput.set_ylabel("goodput (Gb/s)")
    rate.plot(x, [row["mmsg_s"] for row in facts], "o-", color=_MEASURED, label="measured")
    most = [1000 * limit / (8 * row["size"]) for limit, row in zip(limits, facts, strict=True)]
    rate.plot(x, most, "--", color=_LIMIT, label="wire limit")
    rate.set_ylabel("message rate (million/s)")


def _latency(axis: Axes, x: list[int], facts: Sequence[dict[str, Any]]) -> None:
    for name, label, style, colour in (
        ("min", "minimum", ":", _LIMIT),
        ("p50", "median", "o-", _MEASURED),
        ("p99", "99th percentile", "s--", _TAIL),
    ):
        values = [row["latency_ns"][name] / 1000 for row in facts]
        axis.plot(x, values, style, color=colour, label=label)
    axis.set_ylabel("latency (µs)")


def _axis_of(axis: Axes, x: list[int], over: str) -> None:
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    ticks = x if len(x) <= 12 else x[:: -(-len(x) // 12)]
    axis.xaxis.set_major_locator(FixedLocator(ticks))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if over == "size":
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: octets(round(value))))
    else:
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_xlabel(_NAMES[over])
    axis.grid(True, which="major", color="#dddddd")
    axis.legend()
