"""``rocinante interop``: a live Linux guest against the simulated NIC."""

from __future__ import annotations

import fnmatch
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from sim.rtl import env
from sim.tools import console, outputs
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
    #: Frames that the network has lost or doubled, and request packets that each side has sent
    #: again; None where the network was good.
    network: dict[str, int] | None = None

    @property
    def verdict(self) -> str:
        """pass or FAIL."""
        return "FAIL" if self.error else "pass"


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
@click.argument("scenarios", nargs=-1, metavar="[SCENARIO]...")
def interop(
    width: int,
    json_file: Path | None,
    listing: bool,
    impair: str,
    timer_scale: float,
    pcap_dir: Path,
    scenarios: tuple[str, ...],
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
    image = _prepare(width)
    with console.progress(f"Interoperability at {width} bits") as say:
        facts, rows = _run(image, width, timer_scale, chosen, pcap_dir, say)
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
        if (not names and not one.long) or any(fnmatch.fnmatch(one.name, name) for name in names)
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
    image: Any,
    width: int,
    timer_scale: float,
    chosen: list[Scenario],
    pcap_dir: Path,
    say: Any,
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
                lab = Lab(image, width, timer_scale)
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
    before = lab.nic_counters()
    after: dict[str, int] = {}
    with lab.network(scenario.network), lab.relay.capture(pcap) as frames:
        try:
            scenario.run(lab.parties, tally)
            if scenario.network:
                after = lab.nic_counters()
        except (AssertionError, OSError, RuntimeError) as found:
            error = f"{found}\n{lab.report()}"
    seconds = time.monotonic() - began
    seen = [frame for _, frame in frames]
    card = bytes.fromhex(lab.parties[0].mac.replace(":", ""))
    faults = icrc_faults(seen) + (tshark_faults(pcap) or [])
    # The MSN is counted from requests that have all come, once each.
    if not (scenario.network or scenario.resends):
        faults += msn_faults(seen, card)
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
        _network(before, after, tally, seen, lab.parties[1].mac) if after else None,
    )


def _network(
    before: dict[str, int], after: dict[str, int], tally: Any, frames: list[bytes], guest: str
) -> dict[str, int]:
    """What the network has done, and how many request packets each side has sent again for it.

    The NIC counts its own. Of the guest all are in the capture, since they are lost behind it.
    """
    from sim.tools.interop.frames import requests

    found = {
        f"{name}_{way}": after[f"wire_{counter}_{way}"]
        for name, counter in (("lost", "gone"), ("doubled", "duplicated"), ("late", "overtaken"))
        for way in ("out", "in")
    }
    sent = after["requests_sent"] - before["requests_sent"]
    found["resent_by_nic"] = sent - tally.requests[0]
    own = bytes.fromhex(guest.replace(":", ""))
    found["resent_by_guest"] = requests(frames, own) - tally.requests[1]
    for counter in ("local_ack_timeout_err", "packet_seq_err", "implied_nak_seq_err"):
        found[counter] = after[counter] - before[counter]
    return found


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
    for row in rows:
        if row.network is not None:
            console.out.print(f"{row.name}: {_told(row.network)}", soft_wrap=True)
    kernel = next((name for name in facts["packages"] if name.startswith("linux-image")), "")
    console.out.print(
        f"Guest: {kernel}, up in {facts.get('boot_seconds', 0):.1f} s; all in "
        f"{facts['seconds']:.0f} s\n{pcap_dir}: the frames of each scenario",
        soft_wrap=True,
    )
