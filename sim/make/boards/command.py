"""``./rocinante build``: writes what a vendor's tool needs to make a bitstream for a board."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import click
from amaranth.hdl import UnusedElaboratable

from sim.make.boards import ecpix5, quartus, vivado
from sim.make.boards.vendor import write_board
from sim.rtl.env import BuildError, build_root
from sim.tools import console, outputs
from sim.tools.checkout import commit

__all__ = ["BOARDS", "build"]

#: Boards whose bitstream a vendor's tool makes.
_VENDORS = vivado.BOARDS | quartus.BOARDS
BOARDS = (*_VENDORS, ecpix5.NAME)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("board", type=click.Choice(BOARDS))
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    metavar="DIR",
    help="Where the files go; default .build/boards/BOARD.",
)
@click.option(
    "--bitstream",
    "complete",
    is_flag=True,
    help="Of ecpix5 also the bitstream, by Yosys and nextpnr: an hour or more.",
)
def build(board: str, output: Path | None, complete: bool) -> None:
    """Write Verilog, constraints and the vendor tool's script for a board.

    docs/boards.md says how a bitstream comes of them, and what is unverified. With --bitstream the
    status is 1 when a clock is not met; the bitstream is there all the same.
    """
    by_vendor = _VENDORS.get(board)
    if complete and by_vendor:
        raise click.UsageError(f"--bitstream is for {ecpix5.NAME}: {board} needs the vendor's tool")
    # Boards make their cores for the names of the ports; another process elaborates them.
    warnings.simplefilter("ignore", UnusedElaboratable)
    folder = output or build_root() / "boards" / board
    with console.stops():
        outputs.require_folder(folder)
    met, built_from = True, commit()
    try:
        with console.progress(f"Generating {board}") as show:
            show("elaborating the gateware, which takes one to three minutes")
            if by_vendor:
                paths = write_board(by_vendor, folder, commit=built_from)
            else:
                paths = ecpix5.write_board(folder, commit=built_from)
            if complete:
                ecpix5.netlist(folder, show)
                paths.append(ecpix5.route(folder, show, commit=built_from))
    except BuildError as error:
        raise click.ClickException(str(error)) from None
    click.echo("\n".join(map(str, paths)))
    click.echo("Unverified:")
    unverified = by_vendor.warnings if by_vendor else ecpix5.UNVERIFIED
    click.echo("\n".join(f"  {line}" for line in unverified))
    if complete:
        lines, met = ecpix5.summary(json.loads((folder / "report.json").read_text()))
        click.echo("\n".join(lines))
    if not met:
        raise click.ClickException("Timing is not met")
