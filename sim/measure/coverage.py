"""``rocinante coverage``: what the simulations of the tests have seen of what there is to see."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from sim.bench.coverage import FILE, load, rows
from sim.measure import branches
from sim.rtl import reached
from sim.rtl.env import FILES, build_root
from sim.tools import console

__all__ = ["coverage"]

#: What the whole suite has seen, when it was recorded last.
RECORDED = FILES / "tests/data/coverage.json"
#: Which branches of hdl/ simulations that count them have entered.
RECORDED_CODE = FILES / "tests/data/code_coverage.json"


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--code", is_flag=True, help="Branches of hdl/, of `test --code-coverage`.")
@click.option("--missing", is_flag=True, help="Name each that was not seen.")
@click.option("--record", is_flag=True, help="Keep it in tests/data, for `review`.")
@console.json_option
def coverage(
    files: tuple[Path, ...], code: bool, missing: bool, record: bool, json_file: Path | None
) -> None:
    """Show what simulations have seen of what there is to see.

    FILES are coverage.json of simulations (with --code coverage.dat); without any, those of all
    tests that have run in this checkout are merged. docs/testing.md says what is counted.
    """
    name = reached.FILE if code else FILE
    chosen = files or tuple(sorted((build_root() / "runs").glob(f"*/{name}")))
    if not chosen:
        with_code = " with --code-coverage" if code else ""
        words = f"No simulation has left a record here: run tests{with_code} first"
        raise click.ClickException(words)
    try:
        facts = branches.rows(branches.entered(chosen)) if code else _classes(chosen)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    if json_file != Path("-"):
        groups = reached.rooms(facts) if code else {row["what"]: [row] for row in facts}
        console.out.print(_table(f"Coverage of {len(chosen)} simulations", groups))
        for row in facts if missing else ():
            for one in row["missing"]:
                place = f"{row['what']}:{one[0]}: {one[1]}" if code else ", ".join(one)
                click.echo(f"not seen: {place}")
    report = {"simulations": len(chosen), "rows": facts}
    console.write_json(json_file, report)
    if record:
        (RECORDED_CODE if code else RECORDED).write_text(json.dumps(report, indent=1) + "\n")


def _classes(chosen: Sequence[Path]) -> list[dict[str, Any]]:
    """Classes of what the cards did, by table, each with those that were not seen."""
    return [
        {"what": name, "bins": len(bins), "missing": [list(one) for one in lacking]}
        for name, bins, lacking in rows(load(chosen))
    ]


def _table(title: str, groups: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    """A line for each group of rows with seen, of how many and the share, and one of all."""
    table = Table(title=title)
    table.add_column("what")
    for name in ("seen", "of", "%"):
        table.add_column(name, justify="right")
    every = [row for group in groups.values() for row in group]
    for name, group in [*groups.items(), ("all", every)]:
        if group is every:
            table.add_section()
        whole = sum(row["bins"] for row in group)
        got = whole - sum(len(row["missing"]) for row in group)
        table.add_row(name, str(got), str(whole), f"{100 * got / whole:.0f}" if whole else "-")
    return table
