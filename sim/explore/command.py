"""``./rocinante explore``: the cards of a space, measured on all cores, and their Pareto front."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.table import Table

from hdl.config import NicConfig
from sim.explore.page import page
from sim.explore.space import METRICS, Kind, Point, front, points
from sim.explore.work import Job, do, plan_for, total
from sim.make.core.settings import read_settings
from sim.make.synth.parts import SIZES, choose, parts, setting
from sim.make.synth.tool import FAMILIES
from sim.rtl import env
from sim.tools import console, outputs

__all__ = ["explore"]

_FILES = ("index.html", "explore.json")
#: Cards at most: each is some minutes of work.
MOST = 1024


@click.command()
@click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="FIELD=VALUE,...",
    help="A field of NicConfig and its values; again for more: all combinations are measured.",
)
@click.option(
    "--metric",
    "metrics",
    default="lut,gbps",
    show_default=True,
    metavar="NAME,...",
    help=f"What counts: {', '.join(METRICS)}.",
)
@click.option(
    "--config",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The card that the sweeps change, as `verilog` takes it.",
)
@click.option(
    "--size",
    type=click.Choice([one for one in SIZES if one]),
    help="Instead of a file: the card of `synth --small` or `--tiny`.",
)
@click.option("--set", "settings", multiple=True, metavar="FIELD=VALUE", help="For all cards.")
@click.option(
    "--room",
    "rooms",
    multiple=True,
    metavar="NAME",
    help="Cost of these rooms or components, as `synth` has them.  [default: all components]",
)
@click.option("--family", type=click.Choice([*FAMILIES]), default="xcup", show_default=True)
@click.option(
    "--rate", default="write_bw -s 65536", show_default=True, metavar="TEXT", help="As for `perf`."
)
@click.option(
    "--latency", default="write_lat -s 64", show_default=True, metavar="TEXT", help="As for `perf`."
)
@click.option(
    "--cluster", metavar="ADDRESS", help="A Dask cluster.  [default: one on this machine]"
)
@click.option(
    "--workers", type=click.IntRange(1, 1024), help="Processes here.  [default: one for a core]"
)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder for the page; default: explore-out in the folder of all that is built.",
)
def explore(output: Path | None, cluster: str | None, workers: int | None, **chosen: Any) -> None:
    """Measure the cards of a space, and draw which of them no other one beats.

    Ends with status 1 when a card could not be measured. What is measured is kept by content: a
    space with some cards more measures these alone.
    """
    with console.stops():
        metrics = _metrics(chosen["metrics"])
        space = points(_base(chosen), chosen["sweeps"])
        if not 1 <= sum(point.config is not None for point in space) <= MOST:
            raise ValueError(f"--sweep must make 1 to {MOST} cards: {space[0].problem or 'less'}")
        jobs = [_jobs(point.config, metrics, chosen) for point in space]
        kinds = {METRICS[name].kind for name in metrics}
        if kinds & {Kind.RATE, Kind.LATENCY}:
            env.require_compiler()
        folder = output or env.build_root() / "explore-out"
        outputs.require_folder(folder, _FILES)
        folder.mkdir(parents=True, exist_ok=True)
        found = _measured(jobs, cluster, workers)
    rows = [_row(point, metrics, *one) for point, one in zip(space, found, strict=True)]
    best = _mark(rows, metrics)
    asked = {"command": _command(), "metrics": metrics, "rate": chosen["rate"]}
    asked |= {"latency": chosen["latency"], "parts": list(chosen["rooms"]) or ["all components"]}
    outputs.write_text(folder / "explore.json", json.dumps(asked | {"cards": rows}, indent=1))
    outputs.write_text(folder / "index.html", page(asked, rows, list(space[0].chosen)))
    _show(metrics, rows)
    click.echo(f"{best} of {len(rows)} cards are on the front: {folder / 'index.html'}")
    if any(row["config"] and row["problem"] for row in rows):
        raise SystemExit(1)


def _metrics(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in METRICS:
            raise ValueError(f"--metric must be of {', '.join(METRICS)}, not {name!r}")
    return list(dict.fromkeys(names))


def _base(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that all cards have in common."""
    if chosen["file"] and chosen["size"]:
        raise ValueError("--config and --size exclude each other")
    base: dict[str, Any] = dict(SIZES[chosen["size"] or ""])
    if chosen["file"]:
        base = asdict(read_settings(chosen["file"]).config)
    return base | dict(setting("--set", text) for text in chosen["settings"])


def _jobs(
    config: NicConfig | None, metrics: Sequence[str], chosen: Mapping[str, Any]
) -> dict[Kind, list[Job]]:
    """What is to be measured of a card. Raises ValueError where the traffic is not for it."""
    from sim.campaign.work import code

    if config is None:
        return {}
    version = code()
    jobs: dict[Kind, list[Job]] = {}
    for kind in dict.fromkeys(METRICS[name].kind for name in metrics):
        if kind is Kind.COST:
            found = choose(config, chosen["rooms"]) if chosen["rooms"] else parts(config)
            jobs[kind] = [Job(version, part, chosen["family"]) for part in found]
        else:
            line = chosen["rate" if kind is Kind.RATE else "latency"]
            plan = plan_for(config, line)
            if plan.latency != (kind is Kind.LATENCY):
                raise ValueError(f"{line!r} measures no {kind.name.lower()}")
            jobs[kind] = [Job(version, plan=plan)]
    return jobs


def _measured(
    jobs: Sequence[Mapping[Kind, list[Job]]], cluster: str | None, workers: int | None
) -> list[tuple[dict[str, float], str]]:
    """For each card its figures, and what went wrong."""
    from distributed import as_completed

    from sim.campaign.cluster import connected

    figures: list[dict[Kind, list[dict[str, float]]]] = [{} for _ in jobs]
    problems = ["" for _ in jobs]
    with connected(cluster, workers) as client:
        wanted = {
            client.submit(do, job, pure=False): (number, kind)
            for number, card in enumerate(jobs)
            for kind, some in sorted(card.items(), key=lambda one: one[0].name, reverse=True)
            for job in some
        }
        with console.bar("Measurements", len(wanted)) as step:
            for future in as_completed(list(wanted)):
                number, kind = wanted[future]
                if (error := future.exception()) is not None:
                    problems[number] = problems[number] or f"{type(error).__name__}: {error}"
                else:
                    figures[number].setdefault(kind, []).append(future.result())
                step(1, error is not None)
    return [
        ({} if problem else _together(one), problem)
        for one, problem in zip(figures, problems, strict=True)
    ]


def _together(figures: Mapping[Kind, list[dict[str, float]]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for some in figures.values():
        found |= total(some)
    return found


def _row(
    point: Point, metrics: Sequence[str], figures: Mapping[str, float], problem: str
) -> dict[str, Any]:
    """A card as the JSON has it. front: no other card beats it."""
    differs = {
        field.name: getattr(point.config, field.name)
        for field in fields(NicConfig)
        if point.config and getattr(point.config, field.name) != field.default
    }
    return {
        "name": point.name,
        "swept": dict(point.chosen),
        "config": differs if point.config else None,
        "problem": problem or point.problem,
        "figures": {name: figures[name] for name in metrics if name in figures},
        "front": False,
    }


def _mark(rows: Sequence[dict[str, Any]], metrics: Sequence[str]) -> int:
    """Set ``front`` of the cards that no other one beats; returns how many these are."""
    measured = [row for row in rows if row["figures"]]
    for number in front([row["figures"] for row in measured], metrics):
        measured[number]["front"] = True
    return Counter(row["front"] for row in rows)[True]


def _command() -> str:
    """The command line, as it is given again."""
    return shlex.join(["./rocinante", "explore", *_given()])


def _given() -> Iterator[str]:
    """The options that make the space, but neither where it is measured nor where it is written."""
    context = click.get_current_context()
    for option in explore.params:
        name = option.name or ""
        value = context.params[name]
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if name in ("output", "cluster", "workers") or not given:
            continue
        for one in value if isinstance(value, tuple) else (value,):
            yield from (option.opts[-1], one.name if isinstance(one, Path) else str(one))


def _show(metrics: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    table = Table(caption="* no other card beats it", caption_justify="left")
    for head in ("", "card", *metrics):
        table.add_column(head, justify="right" if head in metrics else "left")
    for row in rows:
        shown = [f"{row['figures'][name]:,.7g}" for name in metrics if row["figures"]]
        table.add_row("*" if row["front"] else "", row["name"], *(shown or [row["problem"]]))
    console.out.print(table)
