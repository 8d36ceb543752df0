"""``./rocinante rtl``: the Verilog of the whole NIC, as simulations build it."""

from __future__ import annotations

from pathlib import Path

import click

from hdl.config import NicConfig
from sim.rtl import env
from sim.tools import console, outputs

__all__ = ["rtl"]


@click.command()
@console.width_option
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    callback=console.writable,
)
def rtl(width: int, output: Path | None) -> None:
    """Generate the Verilog of the whole NIC; prints the file's name.

    The file of -o holds the hand-written modules too; without -o all files are named.
    """
    from sim.rtl.verilog import Rtl, sources

    with console.stops():
        piece = Rtl("hdl.nic:Nic", {"config": NicConfig(width=width)}, name="nic")
    try:
        with console.progress(f"Generating the NIC at {width} bits"):
            paths = sources(piece)
    except env.BuildError as error:
        raise click.ClickException(str(error)) from None
    if output is not None:
        outputs.write_text(output, "\n".join(path.read_text() for path in paths))
        paths = [output]
    click.echo("\n".join(map(str, paths)))
