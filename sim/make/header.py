"""``./rocinante header``: the ABI between guest and device as a C header."""

from __future__ import annotations

from pathlib import Path

import click

from hdl.abi.cheader import c_header
from sim.tools import console, outputs

__all__ = ["header"]


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default="-",
    metavar="FILE",
    callback=console.writable,
    help="Where to write it; default: standard output.",
)
def header(output: Path) -> None:
    """Write virtio_rdma.h: structures and numbers that a driver and the device share."""
    if str(output) == "-":
        click.echo(c_header(), nl=False)
    else:
        outputs.write_text(output, c_header())
