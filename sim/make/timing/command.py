"""The command line of ``rocinante timing``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sim.make.timing import report
from sim.make.timing.cards import CARDS
from sim.tools import console, outputs

__all__ = ["timing"]


@click.command()
@click.argument("board", type=click.Choice([*CARDS]))
@click.option(
    "--netlist",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Of the board's configuration, mapped earlier (below .build/synth).",
)
@click.option("--update", is_flag=True, help="Record the figures, and write docs/timing.md.")
@click.option("--recorded", is_flag=True, help="Show what is recorded; nothing is mapped.")
@console.json_option
def timing(
    board: str, netlist: Path | None, update: bool, recorded: bool, json_file: Path | None
) -> None:
    """Estimate the clock of a board's NIC by published delays, and list its slowest paths.

    Ends with status 1 when there is no netlist.
    """
    if recorded:
        if netlist or update:
            raise console.UsageStop("--recorded shows what is there: no --netlist, no --update")
        sys.exit(report.show(board, json_file))
    with console.stops():
        for file in (report.FILE, report.PAGE) * update:
            outputs.require_file(file)
    sys.exit(report.run(board, json_file, earlier=netlist, record=update))
