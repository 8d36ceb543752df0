"""``./rocinante header``: the ABI between guest and device as a C header."""

from __future__ import annotations

from typing import TextIO

import click

from hdl.abi.cheader import c_header

__all__ = ["header"]


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.File("w"),
    default="-",
    metavar="FILE",
    help="Where to write it; default: standard output.",
)
def header(output: TextIO) -> None:
    """Write virtio_rdma.h: structures and numbers that a driver and the device share."""
    output.write(c_header())
