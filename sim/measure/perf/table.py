"""The command line of ``rocinante figures``: the recorded table, measured again."""

from __future__ import annotations

import fnmatch
import sys

import click

from sim.measure.perf.command import measure, plan_of
from sim.measure.perf.recorded import FILE, PAGE, load, page, save, verdict
from sim.measure.perf.recorded import figures as with_figures
from sim.rtl import env
from sim.tools import console, outputs

__all__ = ["figures"]


@click.command()
@click.argument("patterns", metavar="[ROW]...", nargs=-1)
@click.option("--quick", is_flag=True, help="Only the rows that the test suite measures too.")
@click.option("--record", is_flag=True, help="Write the table and its page anew.")
@click.option("--page", "page_only", is_flag=True, help="Write the page only, measure nothing.")
def figures(patterns: tuple[str, ...], quick: bool, record: bool, page_only: bool) -> None:
    """Measure the recorded figures again and compare.

    ROW is a command in quotes, as tests/data/perf.json has it; * and ? stand for any characters.
    The status is 1 when a figure is more than its tolerance worse than what was recorded.
    """
    with console.stops():
        rows = load()
        wanted = [
            row
            for row in rows
            if (row.quick or not quick)
            and (not patterns or any(fnmatch.fnmatch(row.command, one) for one in patterns))
        ]
        if not wanted:
            raise ValueError(f"No row of the table is {' or '.join(patterns)}")
        for file in (FILE, PAGE) if record else (PAGE,) * page_only:
            outputs.require_file(file)
        env.require_compiler()
    lost = False
    for row in () if page_only else wanted:
        (found,) = measure(plan_of(row.command))
        new = with_figures(row, found.json)
        gain, line = verdict(row, new)
        lost |= gain < -row.tolerance
        click.echo(line)
        if record:
            rows[rows.index(row)] = new
            save(rows)
    if record or page_only:
        PAGE.write_text(page([row for row in rows if row.figures], PAGE.read_text()))
    sys.exit(1 if lost and not record else 0)
