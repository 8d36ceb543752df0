"""``rocinante interop``: a live Linux guest against the simulated NIC."""

from __future__ import annotations

import fnmatch
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from sim.interop.runs import Outcome, Row, Runs
from sim.interop.scenarios import SCENARIOS, Scenario
from sim.rtl import env
from sim.tools import console, outputs

__all__ = ["interop"]

#: How many s a scenario may take, unless --limit says otherwise.
LIMIT = 300


@click.command()
@console.width_option
@console.json_option
@console.impair_option
@console.timer_scale_option
@click.option("--list", "listing", is_flag=True, help="Show the scenarios and end.")
@click.option(
    "--pcap-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("interop-pcap"),
    show_default=True,
    help="Where each scenario's frames are written.",
)
@click.option(
    "--limit",
    type=console.Finite(1, 86_400),
    default=LIMIT,
    show_default=True,
    metavar="S",
    help="A scenario is stopped after so many seconds, a long one after six times as many.",
)
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]...")
def interop(
    width: int,
    json_file: Path | None,
    listing: bool,
    impair: str,
    pcap_dir: Path,
    scenarios: tuple[str, ...],
    **how: float,
) -> None:
    """Exchange RDMA traffic between a Linux guest with Soft-RoCE and the simulated NIC.

    SCENARIOs are names or patterns (send-*); without any, all but the long ones are run.
    docs/interop.md says more.
    """
    with console.stops():
        chosen = _choose(scenarios)
        if impair:
            chosen = [replace(scenario, network=impair) for scenario in chosen]
    if listing:
        for scenario in chosen:
            click.echo(f"{scenario.name:26} {scenario.what}{' (long)' if scenario.long else ''}")
        return
    with console.stops():
        outputs.require_folder(pcap_dir, [f"{scenario.name}.pcap" for scenario in chosen])
    pcap_dir.mkdir(parents=True, exist_ok=True)
    image = _prepare(width, sorted({scenario.functions for scenario in chosen}))
    runs = Runs(partial(_lab, image, width, how["timer_scale"]), pcap_dir, width, how["limit"])
    began = time.monotonic()
    with console.progress(f"Interoperability at {width} bits") as say:
        runs.play(chosen, say)
    rows = runs.rows
    facts: dict[str, Any] = {"width": width, "packages": list(image.packages)}
    facts |= {"boot_seconds": round(runs.boot_seconds, 1)}
    facts |= {"seconds": round(time.monotonic() - began, 1)}
    facts |= {"scenarios": [asdict(row) | {"verdict": row.verdict} for row in rows]}
    count = Counter(row.outcome for row in rows)
    facts |= {one.replace(" ", "_"): count[one] for one in Outcome}
    console.write_json(json_file, facts)
    if str(json_file) != "-":
        _show(facts, rows, pcap_dir)
    _end(runs, count)


def _lab(image: Any, width: int, timer_scale: float, functions: int) -> Any:
    from sim.interop.lab import Lab

    return Lab(image, width, timer_scale, functions)


def _end(runs: Runs, count: Mapping[Outcome, int]) -> None:
    """Say what has not passed, and end with the status for it."""
    for row in runs.rows:
        if row.outcome in (Outcome.FAILED, Outcome.STOPPED):
            console.err.print(f"{row.name}: {row.error}", markup=False, highlight=False)
    if runs.interrupted:
        console.err.print("Error: stopped by Ctrl-C", highlight=False)
        raise click.exceptions.Exit(130)
    if runs.trouble is not None and count[Outcome.NOT_RUN] == len(runs.rows):
        raise console.UsageStop(str(runs.trouble))
    if runs.trouble is not None:
        raise click.ClickException(str(runs.trouble))
    bad = {one: count[one] for one in Outcome if count[one] and one is not Outcome.PASSED}
    if bad:
        text = ", ".join(f"{number} {one}" for one, number in bad.items())
        raise click.ClickException(f"of {len(runs.rows)} scenarios {text}")


def _choose(names: tuple[str, ...]) -> list[Scenario]:
    """The scenarios that names and patterns mean, in their own order; ValueError for none."""
    for name in names:
        if not fnmatch.filter(SCENARIOS, name):
            raise ValueError(f"No scenario {name!r}; --list shows them")
    return [
        one
        for one in SCENARIOS.values()
        if (not names and not one.long) or any(fnmatch.fnmatch(one.name, name) for name in names)
    ]


def _prepare(width: int, functions: Sequence[int]) -> Any:
    """Build what is missing: guest, and models of cards with so many functions."""
    from hdl.config import NicConfig
    from sim.bench import testbench
    from sim.interop import guest, image

    with console.stops():
        env.require_compiler()
        with console.progress("Preparing the guest"):
            guest.require_qemu()
            made = image.build()
        try:
            with console.progress(f"Building the NIC at {width} bits"):
                for count in functions:
                    testbench.build(config=NicConfig(width=width, functions=count))
        except env.BuildError as error:
            raise click.ClickException(str(error)) from None
    return made


def _told(network: dict[str, int]) -> str:
    """What has happened to the frames of both ways, and what the two sides did about it."""
    lost, doubled, late = (
        network[f"{name}_out"] + network[f"{name}_in"] for name in ("lost", "doubled", "late")
    )
    return (
        f"{lost} frames lost, {doubled} doubled, {late} overtaken; sent again: "
        f"{network['resent_by_nic']} packets by the NIC ({network['local_ack_timeout_err']} "
        f"time-outs), {network['resent_by_guest']} by Linux"
    )


def _show(facts: dict[str, Any], rows: list[Row], pcap_dir: Path) -> None:
    table = Table(title=f"Linux and the NIC, {facts['width']} bit", title_justify="left")
    longest = max(len(row.name) for row in rows)
    table.add_column("scenario", no_wrap=True, min_width=longest)
    for heading in ("messages", "bytes verified", "packets", "s"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(
            row.name,
            f"{row.messages:,}",
            f"{row.bytes_verified:,}",
            f"{row.packets:,}",
            f"{row.seconds:.1f}",
            Text(row.verdict),
        )
    console.out.print(table)
    for row in rows:
        if row.network is not None:
            console.out.print(f"{row.name}: {_told(row.network)}", soft_wrap=True)
    kernel = next((name for name in facts["packages"] if name.startswith("linux-image")), "")
    console.out.print(
        f"Guest: {kernel}, up in {facts.get('boot_seconds', 0):.1f} s; all in "
        f"{facts['seconds']:.0f} s\n{pcap_dir}: the frames of each scenario",
        soft_wrap=True,
    )
