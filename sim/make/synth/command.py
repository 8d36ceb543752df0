"""``./rocinante synth``: what the gateware costs and how deep its logic is."""

from __future__ import annotations

import dataclasses
import itertools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import click
from rich import box
from rich.table import Table

from hdl.config import NicConfig
from sim.make.synth import baseline
from sim.make.synth.parts import CORE, WHOLE, Part, choose, configuration, parts
from sim.make.synth.place import Placed, place
from sim.make.synth.report import LIMITS, Report, measure
from sim.make.synth.tool import FAMILIES
from sim.rtl import env
from sim.rtl.env import BuildError
from sim.tools import console, outputs

#: Limits of the whole NIC with all switches on, 512 bit and 1024 QPs: figure -> highest value.
WHOLE_LIMITS = {
    "lut": 90_000,
    "ff": 95_000,
    "levels": LIMITS["register"],
    "ram_levels": LIMITS["ram"],
}

#: The largest number of QPs, and how much more than the chosen one it may cost, percent.
MOST_QPS, MOST_GROWTH = 16384, 5

Result = TypeVar("Result")

_HEADS = {
    "lut": "LUT",
    "ff": "FF",
    "bram": "BRAM36",
    "uram": "URAM",
    "dsp": "DSP",
    "levels": "levels",
    "ram_levels": "after RAM",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the command line asks for, option by option."""

    width: int
    settings: tuple[str, ...]
    size: str
    rooms: tuple[str, ...]
    all_rooms: bool
    family: str
    paths: int
    growth: bool
    placing: bool
    check: bool
    update_baseline: bool
    json_file: Path | None

    @property
    def target(self) -> str:
        """The family to synthesise for: only ECP5 can be placed and routed."""
        return "ecp5" if self.placing else self.family

    @property
    def chosen(self) -> tuple[str, ...]:
        """The rooms and components that are named, or implied by what is asked for."""
        return self.rooms or ((CORE,) if self.placing else ())


@dataclasses.dataclass(frozen=True)
class Measured:
    """What came of it; ``most`` with ``MOST_QPS``, ``errors``: parts without figures."""

    config: NicConfig
    reports: list[Report]
    most: list[Report]
    placed: list[Placed]
    errors: list[str]


@click.command()
@console.width_option
@click.option("--config", "settings", multiple=True, metavar="KEY=VALUE", help="As in NicConfig.")
@click.option("--small", "size", flag_value="small", default="", help="Few QPs, small tables.")
@click.option("--tiny", "size", flag_value="tiny", help="Smaller still: for the largest ECP5.")
@click.option(
    "--room", "rooms", multiple=True, metavar="NAME", help="A room, a component, core or nic."
)
@click.option("--all-rooms", is_flag=True, help="All components, but not the whole NIC.")
@click.option("--family", type=click.Choice([*FAMILIES]), default="xcup", show_default=True)
@click.option(
    "--paths",
    type=click.IntRange(0, 10_000),
    default=10,
    show_default=True,
    help="How many of the longest to print.",
)
@click.option("--growth", is_flag=True, help=f"Compare each with the same for {MOST_QPS} QPs.")
@click.option(
    "--place", "placing", is_flag=True, help="Place and route, for ECP5, and report Fmax."
)
@click.option("--check", is_flag=True, help="Fail when a figure is 5 % above its baseline.")
@click.option("--update-baseline", is_flag=True, help="Make these figures the baseline.")
@console.json_option
def synth(**options: Any) -> None:
    """Synthesise the NIC and each of its components: cells, and levels of logic on the paths.

    Ends with status 1 when a part has no figures, or, with --check, when one has grown.
    """
    wanted = Wanted(**options)
    with console.stops():
        if wanted.update_baseline:
            outputs.require_file(baseline.FILE)
        measured = synthesise(wanted)
    name = baseline.title(wanted.target, measured.config)
    grown = baseline.compare(name, measured.reports) if wanted.check else []
    if wanted.update_baseline and not measured.errors:
        baseline.update(name, measured.reports, complete=not wanted.chosen)
    met = limits(measured.reports, measured.most)
    facts = {
        "family": wanted.target,
        "config": dataclasses.asdict(measured.config),
        "tool": f"Yosys {env.package_version('pyosys')}",
        "parts": [_fact(report) for report in measured.reports],
        "placed": [dataclasses.asdict(one) for one in measured.placed],
        "growth": [_fact(report) for report in measured.most],
        "limits": met,
        "errors": measured.errors,
        "grown": grown,
    }
    console.write_json(wanted.json_file, facts)
    if str(wanted.json_file) != "-":
        show(name, measured.reports, wanted.paths)
        if wanted.growth:
            show_growth(measured.reports, measured.most)
        for one in measured.placed:
            show_placed(one)
        for entry in met.values():
            console.out.print(_verdict(entry), highlight=False)
    for line in (*measured.errors, *grown):
        console.err.print(line, style="red", markup=False, highlight=False)
    sys.exit(1 if measured.errors or grown else 0)


def synthesise(wanted: Wanted) -> Measured:
    """Measure the parts that are wanted. Raises ValueError for a configuration or part unknown."""
    config = configuration(wanted.width, wanted.settings, size=wanted.size)
    chosen = choose(config, wanted.chosen) if wanted.chosen else parts(config)
    if not wanted.chosen and not wanted.all_rooms:
        chosen += choose(config, (WHOLE,))
    most_config = dataclasses.replace(config, qps=MOST_QPS)
    larger = [dataclasses.replace(part, config=most_config) for part in chosen if wanted.growth]
    reports, errors = attempt(chosen, lambda part, say: measure(part, wanted.target, say))
    most, missing = attempt(larger, lambda part, say: measure(part, wanted.target, say))
    placed, failed = attempt(chosen if wanted.placing else [], place)
    return Measured(config, reports, most, placed, errors + missing + failed)


def attempt(
    chosen: Sequence[Part], work: Callable[[Part, Callable[[str], None]], Result]
) -> tuple[list[Result], list[str]]:
    """Do ``work`` for all parts, a few at a time; returns the results, and a line for each without.

    work: takes a part and a function that says what happens now.
    """
    done = 0
    lock = threading.Lock()

    def one(part: Part, show: Callable[[str], None]) -> tuple[Result | None, str]:
        nonlocal done

        def say(text: str) -> None:
            with lock:
                show(f"{done} of {len(chosen)} done, {part.name}: {text}")

        try:
            return work(part, say), ""
        except BuildError as error:
            return None, str(error)
        finally:
            with lock:
                done += 1

    with console.progress("Synthesis") as show, ThreadPoolExecutor(env.compile_jobs()) as pool:
        found = list(pool.map(lambda part: one(part, show), chosen))
    results = [result for result, _error in found if result is not None]
    return results, [error for _result, error in found if error]


def limits(reports: Sequence[Report], most: Sequence[Report] = ()) -> dict[str, dict[str, Any]]:
    """Return the limits that apply to what was measured: those of the whole NIC, or the depths.

    They are UltraScale+'s: an ECP5, whose look-up tables have four inputs, has none.
    most: parts with ``MOST_QPS``; the growth of the whole NIC has a limit too, if it is there.
    """
    whole, larger = (
        next((report for report in found if report.name == WHOLE), None)
        for found in (reports, most)
    )
    measured = [report for report in ([whole] if whole else reports) if report.family == "xcup"]
    found = {}
    for figure in (WHOLE_LIMITS if whole else ("levels", "ram_levels")) if measured else ():
        worst = max(report.figures()[figure] for report in measured)
        found[figure] = _limit(_HEADS[figure], WHOLE_LIMITS[figure], worst)
    if whole and larger and measured:
        for figure in ("lut", "ff"):
            growth = 100 * (larger.figures()[figure] / whole.figures()[figure] - 1)
            text = f"{_HEADS[figure]} more with {MOST_QPS} QPs, %"
            found[f"{figure}_growth"] = _limit(text, MOST_GROWTH, round(growth, 2))
    return found


def _limit(text: str, limit: float, measured: float) -> dict[str, Any]:
    return {"text": text, "limit": limit, "measured": measured, "met": measured <= limit}


def _verdict(entry: dict[str, Any]) -> str:
    met = "met" if entry["met"] else "NOT met"
    return f"{entry['text']}: {entry['measured']:,} of at most {entry['limit']:,}: {met}"


def show(name: str, reports: Sequence[Report], paths: int) -> None:
    """Print the tables."""
    table = Table(
        title=name,
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 0, 0, 1),
    )
    table.caption = (
        "levels: cells on the longest path between registers; in brackets with\n"
        "two carry blocks counted as one. over: how many registers have a path\n"
        f"of more than {LIMITS['register']} levels, or more than {LIMITS['ram']} after a block RAM."
    )
    table.add_column("part", no_wrap=True)
    for figure, head in _HEADS.items():
        table.add_column(head, justify="right")
        if figure.endswith("levels"):
            table.add_column("over", justify="right")
    for room, members in itertools.groupby(reports, lambda report: report.room):
        table.add_row(room, style="bold")
        for report in members:
            table.add_row(*_row(report))
            for row in _inside(report):
                table.add_row(*row)
    console.out.print(table)
    _show_paths(reports, paths)


def show_growth(reports: Sequence[Report], most: Sequence[Report]) -> None:
    """Print what each part costs more with ``MOST_QPS``, and all of them together."""
    table = Table(title=f"with {MOST_QPS} QPs", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("part", no_wrap=True)
    figures = ("lut", "ff", "bram", "uram")
    for figure in figures:
        for head in (_HEADS[figure], "more"):
            table.add_column(head, justify="right")
    total, before = Counter[str](), {report.name: report.figures() for report in reports}
    for report in sorted(most, key=lambda one: one.name):
        if report.name not in before:
            continue
        row = [report.name]
        for figure in figures:
            now, more = report.figures()[figure], report.figures()[figure]
            more -= before[report.name][figure]
            total.update({figure: now, f"{figure} more": more})
            row += [f"{now:,.7g}", f"{more:+,.7g}" if more else ""]
        table.add_row(*row)
    sums = [f"{total[f'{figure}{kind}']:,.7g}" for figure in figures for kind in ("", " more")]
    table.add_row("all of these", *sums, style="bold")
    console.out.print(table)


def show_placed(placed: Placed) -> None:
    """Print what nextpnr reached."""
    used = ", ".join(f"{name} {some:,} of {all_:,}" for name, (some, all_) in placed.used.items())
    console.out.print(f"{placed.name} on {placed.device}: {placed.fmax_mhz} MHz", style="bold")
    console.out.print(f"    {used}", highlight=False)
    for step in placed.critical:
        console.out.print(f"    {step}", markup=False, highlight=False)


def _row(report: Report) -> list[str]:
    figures = report.figures()
    row = [f" {report.name}"]
    for figure in _HEADS:
        row.append(f"{figures[figure]:,.7g}")
        if figure.endswith("levels"):
            found = report.levels["register" if figure == "levels" else "ram"]
            row[-1] += f" ({found['worst_pairs']})" if figure == "levels" else ""
            row.append(str(found["above"]))
    return row


def _inside(report: Report) -> list[list[str]]:
    """Rows of the components of the whole, those that take most look-up tables first."""
    found = sorted(report.inside.items(), key=lambda entry: -entry[1]["lut"])
    figures = [figure for figure in _HEADS if not figure.endswith("levels")]
    return [
        [f"  {name or '(between)'}", *(f"{some[figure]:,.7g}" for figure in figures)]
        for name, some in found
    ]


def _show_paths(reports: Sequence[Report], number: int) -> None:
    found = [
        (path["levels"] - LIMITS[one], report.name, one, path)
        for report in reports
        for one in LIMITS
        for path in report.levels[one]["paths"]
        if path["levels"] > LIMITS[one]
    ]
    found.sort(key=lambda entry: -entry[0])
    for _excess, name, _one, path in found[:number]:
        console.out.print(
            f"{name}: {path['levels']} levels ({path['carry']} carry) "
            f"{path['start']} -> {path['end']}",
            markup=False,
            highlight=False,
            style="bold",
        )
        for line in (" > ".join(path["names"]), *path["sources"]):
            console.out.print(f"    {line}", markup=False, highlight=False)


def _fact(report: Report) -> dict[str, Any]:
    """One part of the JSON."""
    return {
        "name": report.name,
        "room": report.room,
        **report.resources,
        "cells": report.cells,
        "levels": report.levels,
        "inside": report.inside,
        "seconds": report.seconds,
    }
