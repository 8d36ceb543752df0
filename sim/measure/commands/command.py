"""The command line of ``rocinante commands``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.table import Table

from hdl.config import NicConfig
from sim.rtl import env
from sim.tools import console

__all__ = ["commands", "measure"]

#: Real time for the simulation, s.
TIMEOUT_S = 3600.0
#: Connections whose bring-up is told, from the time of one.
MANY = 10_000
#: QPs that a driver has of the card that is measured: pairs 0 and 1 are not its to use.
MOST_QPS = NicConfig().qps - 2


@click.command()
@click.option(
    "-q",
    "--qps",
    type=click.IntRange(1, MOST_QPS),
    default=100,
    show_default=True,
    help="Queue pairs.",
)
@click.option(
    "-t",
    "--depth",
    type=click.IntRange(1, 64),
    default=16,
    show_default=True,
    help="Commands that the driver has outstanding.",
)
@click.option(
    "--mmio-ns",
    type=console.Finite(0, 1_000_000),
    default=0,
    show_default=True,
    help="From the firmware to the registers, one way; 0: a processor on the card.",
)
@click.option(
    "--poll-ns",
    type=click.IntRange(1, 1_000_000),
    default=20,
    show_default=True,
    help="How often the firmware looks.",
)
@console.width_option
@console.json_option
def commands(json_file: Path | None, **spec: Any) -> None:
    """Measure control commands: simulated time and register accesses of each."""
    with console.stops():
        env.require_compiler()
    rows = measure(spec)
    console.write_json(json_file, rows)
    if str(json_file) == "-":
        return
    table = Table(title=f"Control commands, {spec['depth']} outstanding", title_justify="left")
    table.add_column("command")
    for name in ("us", "a second", "register reads", "writes"):
        table.add_column(name, justify="right")
    for row in rows:
        figures = (f"{row['us']:.2f}", f"{row['rate']:,.0f}", f"{row['reads']:.1f}")
        table.add_row(row["what"], *figures, f"{row['writes']:.1f}")
    console.out.print(table)
    one = rows[-1]["us"]
    console.out.print(
        f"{MANY:,} connections at this rate: {one * MANY / 1e6:.2f} s of simulated time "
        f"(from {rows[-1]['count']} that were made)"
    )


def measure(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Run one simulation; a row for each kind of command, the last one for a whole connection.

    A row has ``what``, ``count``, simulated ``us`` of one, ``rate`` a second, and ``reads`` and
    ``writes`` of registers by one card's firmware. Raises click.ClickException when it fails.
    """
    from sim.bench import testbench
    from sim.bench.job import run_job

    try:
        with console.progress(f"Building two NICs at {spec['width']} bits"):
            model = testbench.build(config=NicConfig(width=spec["width"]))
        with console.progress("Running") as say:
            facts, _ = run_job(model, "sim.measure.commands.bench", spec, say, TIMEOUT_S)
    except (env.BuildError, AssertionError) as error:
        raise click.ClickException(str(error)) from None
    found: list[dict[str, Any]] = facts["rows"]
    return [row | {"rate": 1e6 / row["us"]} for row in found]
