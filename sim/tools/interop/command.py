"""``rocinante interop``: a live Linux guest against the simulated NIC."""

from __future__ import annotations

import fnmatch
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from sim.rtl import env
from sim.tools import console
from sim.tools.interop.scenarios import SCENARIOS, Scenario

__all__ = ["interop"]

#: No scenario is begun after so many seconds of wall time.
TIME_LIMIT = 480.0


@dataclass
class Row:
    """One scenario's result; ``error`` is empty when it passed."""

    name: str
    messages: int
    bytes_verified: int
    packets: int
    seconds: float
    error: str
    pcap: str

    @property
    def verdict(self) -> str:
        """pass or FAIL."""
        return "FAIL" if self.error else "pass"


@click.command()
@console.width_option
@console.json_option
@click.option("--list", "listing", is_flag=True, help="Show the scenarios and end.")
@click.option(
    "--pcap-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("interop-pcap"),
    show_default=True,
    help="Where each scenario's frames are written.",
)
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]...")
def interop(
    width: int,
    json_file: Path | None,
    listing: bool,
    pcap_dir: Path,
    scenarios: tuple[str, ...],
) -> None:
    """Exchange RDMA traffic between a Linux guest with Soft-RoCE and the simulated NIC.

    SCENARIOs are names or patterns (send-*); without any, all are run. docs/interop.md says more.
    """
    with console.stops():
        chosen = _choose(scenarios)
    if listing:
        for scenario in chosen:
            click.echo(f"{scenario.name:26} {scenario.what}")
        return
    try:
        pcap_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise console.UsageStop(f"--pcap-dir {pcap_dir}: {error.strerror}") from None
    image = _prepare(width)
    with console.progress(f"Interoperability at {width} bits") as say:
        facts, rows = _run(image, width, chosen, pcap_dir, say)
    failed = [row for row in rows if row.error]
    facts |= {"scenarios": [asdict(row) | {"verdict": row.verdict} for row in rows]}
    facts |= {"passed": len(rows) - len(failed), "failed": len(failed)}
    console.write_json(json_file, facts)
    if str(json_file) != "-":
        _show(facts, rows, pcap_dir)
    for row in failed:
        console.err.print(f"{row.name}: {row.error}", markup=False, highlight=False)
    if failed:
        raise click.ClickException(f"{len(failed)} of {len(rows)} scenarios failed")


def _choose(names: tuple[str, ...]) -> list[Scenario]:
    """The scenarios that names and patterns mean, in their own order; ValueError for none."""
    for name in names:
        if not fnmatch.filter(SCENARIOS, name):
            raise ValueError(f"No scenario {name!r}; --list shows them")
    return [
        one
        for one in SCENARIOS.values()
        if not names or any(fnmatch.fnmatch(one.name, name) for name in names)
    ]


def _prepare(width: int) -> Any:
    """Build what is missing: model and guest."""
    from hdl.config import NicConfig
    from sim.bench import testbench
    from sim.tools.interop import guest, image

    with console.stops():
        env.require_compiler()
        with console.progress("Preparing the guest"):
            guest.require_qemu()
            made = image.build()
        try:
            with console.progress(f"Building the NIC at {width} bits"):
                testbench.build(config=NicConfig(width=width))
        except env.BuildError as error:
            raise click.ClickException(str(error)) from None
    return made


def _run(
    image: Any, width: int, chosen: list[Scenario], pcap_dir: Path, say: Any
) -> tuple[dict[str, Any], list[Row]]:
    """Run scenarios one after the other; one that fails leaves nothing to the next."""
    from sim.tools.interop.guest import GuestError
    from sim.tools.interop.lab import Lab

    began = time.monotonic()
    facts: dict[str, Any] = {"width": width, "packages": list(image.packages)}
    rows: list[Row] = []
    lab: Lab | None = None
    try:
        for scenario in chosen:
            pcap = pcap_dir / f"{scenario.name}-{width}.pcap"
            if time.monotonic() - began > TIME_LIMIT:
                error = f"not begun: {TIME_LIMIT:.0f} s have passed"
                rows.append(Row(scenario.name, 0, 0, 0, 0.0, error, ""))
                continue
            if lab is None:
                say("starting guest and NIC")
                lab = Lab(image, width)
                facts.setdefault("boot_seconds", round(lab.boot_seconds, 1))
            say(scenario.name)
            rows.append(_try(lab, scenario, pcap))
            if rows[-1].error:
                lab.close()
                lab = None
    except GuestError as error:
        raise console.UsageStop(str(error)) from None
    except (RuntimeError, OSError) as error:  # the endpoint has not come up
        raise click.ClickException(str(error)) from None
    finally:
        if lab is not None:
            lab.close()
    facts["seconds"] = round(time.monotonic() - began, 1)
    return facts, rows


def _try(lab: Any, scenario: Scenario, pcap: Path) -> Row:
    """One scenario, then its capture."""
    from sim.tools.interop.frames import icrc_faults, is_roce, msn_faults, tshark_faults
    from sim.tools.interop.traffic import Tally

    tally, error = Tally(), ""
    began = time.monotonic()
    with lab.relay.capture(pcap) as frames:
        try:
            scenario.run(lab.parties, tally)
        except (AssertionError, OSError, RuntimeError) as found:
            error = f"{found}\n{lab.report()}"
    seconds = time.monotonic() - began
    seen = [frame for _, frame in frames]
    card = bytes.fromhex(lab.parties[0].mac.replace(":", ""))
    faults = icrc_faults(seen) + msn_faults(seen, card) + (tshark_faults(pcap) or [])
    if faults and not error:
        error = f"{len(faults)} faulty frames in {pcap}: {'; '.join(faults[:3])}"
    packets = sum(map(is_roce, seen))
    if not packets and not error:
        error = "no RoCE packet has passed"
    return Row(
        scenario.name,
        tally.messages,
        tally.bytes_verified,
        packets,
        round(seconds, 1),
        error,
        str(pcap),
    )


def _show(facts: dict[str, Any], rows: list[Row], pcap_dir: Path) -> None:
    table = Table(title=f"Linux and the NIC, {facts['width']} bit", title_justify="left")
    table.add_column("scenario", no_wrap=True)
    for heading in ("messages", "bytes verified", "packets", "s"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in rows:
        table.add_row(
            row.name,
            f"{row.messages:,}",
            f"{row.bytes_verified:,}",
            f"{row.packets:,}",
            f"{row.seconds:.1f}",
            row.verdict,
        )
    console.out.print(table)
    kernel = next((name for name in facts["packages"] if name.startswith("linux-image")), "")
    console.out.print(
        f"Guest: {kernel}, up in {facts.get('boot_seconds', 0):.1f} s; all in "
        f"{facts['seconds']:.0f} s\n{pcap_dir}: the frames of each scenario",
        soft_wrap=True,
    )
