"""``./rocinante synth``: what the gateware costs and how deep its logic is."""

from __future__ import annotations

import dataclasses
import itertools
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.table import Table

from sim import console, env
from sim.env import BuildError
from sim.synth import baseline
from sim.synth.parts import WHOLE, Part, choose, configuration, parts
from sim.synth.report import LIMITS, Report, measure
from sim.synth.tool import FAMILIES

#: Limits of the whole NIC at 512 bit with 1024 QPs: figure -> highest value.
WHOLE_LIMITS = {
    "lut": 80_000,
    "ff": 100_000,
    "levels": LIMITS["register"],
    "ram_levels": LIMITS["ram"],
}

_HEADS = {
    "lut": "LUT",
    "ff": "FF",
    "bram": "BRAM36",
    "uram": "URAM",
    "dsp": "DSP",
    "levels": "levels",
    "ram_levels": "after RAM",
}


@click.command()
@console.width_option
@click.option("--config", "settings", multiple=True, metavar="KEY=VALUE", help="As in NicConfig.")
@click.option("--room", "rooms", multiple=True, metavar="NAME", help="A room, a component or nic.")
@click.option("--all-rooms", is_flag=True, help="All components, but not the whole NIC.")
@click.option("--family", type=click.Choice([*FAMILIES]), default="xcup", show_default=True)
@click.option("--paths", default=10, show_default=True, help="How many of the longest to print.")
@click.option("--check", is_flag=True, help="Fail when a figure is 5 % above its baseline.")
@click.option("--update-baseline", is_flag=True, help="Make these figures the baseline.")
@console.json_option
def synth(
    width: int,
    settings: tuple[str, ...],
    rooms: tuple[str, ...],
    all_rooms: bool,
    family: str,
    paths: int,
    check: bool,
    update_baseline: bool,
    json_file: Path | None,
) -> None:
    """Synthesise the NIC and each of its components: cells, and levels of logic on the paths.

    Ends with status 1 when a part has no figures, or, with --check, when one has grown.
    """
    with console.stops():
        config = configuration(width, settings)
        chosen = choose(config, rooms) if rooms else parts(config)
        if not rooms and not all_rooms:
            chosen += choose(config, (WHOLE,))
        reports, errors = measure_all(chosen, family)
    name = baseline.title(family, config)
    grown = baseline.compare(name, reports) if check else []
    if update_baseline and not errors:
        baseline.update(name, reports, gone=not rooms and not all_rooms)
    facts = {
        "family": family,
        "config": dataclasses.asdict(config),
        "tool": f"Yosys {env.package_version('pyosys')}",
        "parts": [_fact(report) for report in reports],
        "limits": limits(reports),
        "errors": errors,
        "grown": grown,
    }
    console.write_json(json_file, facts)
    if str(json_file) != "-":
        show(name, reports, paths)
    for line in (*errors, *grown):
        console.err.print(line, style="red", markup=False, highlight=False)
    sys.exit(1 if errors or grown else 0)


def measure_all(chosen: Sequence[Part], family: str) -> tuple[list[Report], list[str]]:
    """Measure all parts, a few at a time; returns the reports, and a line for each without."""
    done = 0
    lock = threading.Lock()

    def one(part: Part, show: Callable[[str], None]) -> Report | str:
        nonlocal done

        def say(text: str) -> None:
            with lock:
                show(f"{done} of {len(chosen)} done, {part.name}: {text}")

        try:
            return measure(part, family, say)
        except BuildError as error:
            return str(error)
        finally:
            with lock:
                done += 1

    with console.progress("Synthesis") as show, ThreadPoolExecutor(env.compile_jobs()) as pool:
        found = list(pool.map(lambda part: one(part, show), chosen))
    return (
        [report for report in found if isinstance(report, Report)],
        [report for report in found if isinstance(report, str)],
    )


def limits(reports: Sequence[Report]) -> dict[str, dict[str, Any]]:
    """Return the limits that apply to what was measured: those of the whole NIC, or the depths."""
    whole = next((report for report in reports if report.name == WHOLE), None)
    measured = [whole] if whole else reports
    names = WHOLE_LIMITS if whole else ("levels", "ram_levels")
    found = {}
    for figure in names if measured else ():
        worst = max(report.figures()[figure] for report in measured)
        limit = WHOLE_LIMITS[figure]
        found[figure] = {"limit": limit, "measured": worst, "met": worst <= limit}
    return found


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
    console.out.print(table)
    _show_paths(reports, paths)
    for figure, entry in limits(reports).items():
        verdict = "met" if entry["met"] else "NOT met"
        line = f"{_HEADS[figure]}: {entry['measured']:,} of at most {entry['limit']:,}: {verdict}"
        console.out.print(line, highlight=False)


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
        "seconds": report.seconds,
    }
