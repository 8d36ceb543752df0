"""``rocinante coverage``: what the simulations of the tests have seen of what there is to see."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.table import Table

from sim.bench.coverage import FILE, load, rows
from sim.rtl.env import FILES, build_root
from sim.tools import console

__all__ = ["coverage"]

#: What the whole suite has seen, when it was recorded last.
RECORDED = FILES / "tests/data/coverage.json"


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--missing", is_flag=True, help="Name each that was not seen.")
@click.option("--record", is_flag=True, help="Keep it: tests/data/coverage.json, for `review`.")
@console.json_option
def coverage(files: tuple[Path, ...], missing: bool, record: bool, json_file: Path | None) -> None:
    """Show what simulations have seen of what there is to see.

    FILES are coverage.json of simulations; without any, those of all tests that have run in this
    checkout are merged. docs/testing.md says what is counted.
    """
    chosen = files or tuple(sorted((build_root() / "runs").glob(f"*/{FILE}")))
    if not chosen:
        raise click.ClickException("No simulation has left a record here: run tests first")
    try:
        seen = load(chosen)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    found = rows(seen)
    table = Table(title=f"Coverage of {len(chosen)} simulations")
    table.add_column("what")
    for name in ("seen", "of", "%"):
        table.add_column(name, justify="right")
    for name, bins, lacking in found:
        got = len(bins) - len(lacking)
        table.add_row(name, str(got), str(len(bins)), f"{100 * got / len(bins):.0f}")
    whole = sum(len(bins) for _, bins, _ in found)
    got = whole - sum(len(lacking) for _, _, lacking in found)
    table.add_section()
    table.add_row("all", str(got), str(whole), f"{100 * got / whole:.0f}")
    if json_file != Path("-"):
        console.out.print(table)
        for one in (one for _, _, lacking in found for one in lacking if missing):
            click.echo(f"not seen: {', '.join(one)}")
    facts = [
        {"what": name, "bins": len(bins), "missing": [list(one) for one in lacking]}
        for name, bins, lacking in found
    ]
    report = {"simulations": len(chosen), "rows": facts}
    console.write_json(json_file, report)
    if record:
        RECORDED.write_text(json.dumps(report, indent=1) + "\n")
