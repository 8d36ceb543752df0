"""``./rocinante header``: the ABI between guest and device as a C header."""

from __future__ import annotations

from pathlib import Path

import click

from hdl.abi.cheader import c_header
from hdl.ports.counter_names import COUNTERS, HIGH, LOW, PORT_COUNTERS, RDMA_CORE_NAMES
from sim.tools import console, outputs

__all__ = ["header", "text"]


def text() -> str:
    """The header, with the counters of the card by rdma-core's names."""
    names = [name for name in PORT_COUNTERS + COUNTERS if not name.endswith(HIGH)]
    counters = [(name.removesuffix(LOW), 2 if name.endswith(LOW) else 1) for name in names]
    return c_header([(RDMA_CORE_NAMES.get(name, name), words) for name, words in counters])


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
        click.echo(text(), nl=False)
    else:
        outputs.write_text(output, text())
