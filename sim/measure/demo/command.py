"""``rocinante demo``: two simulated cards against each other, then recorded Linux traffic."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any, Literal

import click
from rich.table import Table

from hdl.config import NicConfig
from sim.rtl import env
from sim.tools import console, outputs

__all__ = ["demo", "play", "show"]

LINE_GBPS = 100.0
#: Bytes of the longest message.
LONGEST = 1 << 20
#: Seconds after which a simulation is stopped. A card with the trace takes long, as it never sleeps
#: (docs/simulation.md).
TIMEOUT_S = 3600
CAPTURES = env.FILES / "tests" / "data" / "golden"


@click.command()
@console.card_options
@console.json_option
@console.waves_option
@console.impair_option
@console.timer_scale_option
@click.option(
    "--pcap",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("demo.pcap"),
    show_default=True,
    callback=console.writable,
    help="Where the packets between the two cards are written.",
)
def demo(
    profile: str | None,
    config: NicConfig,
    json_file: Path | None,
    waves: bool,
    impair: str,
    timer_scale: float,
    pcap: Path,
) -> None:
    """Generate the NIC, build it, run two of them against each other, show the result."""
    with console.stops():
        env.require_compiler()
        if waves:
            env.require_waves()
            outputs.require_file(pcap.with_suffix(".fst"))
    try:
        facts = play(config, pcap, impair=impair, timer_scale=timer_scale, waves=waves)
    except (env.BuildError, AssertionError) as error:
        raise click.ClickException(str(error)) from None
    facts["profile"] = profile
    console.write_json(json_file, facts)
    if str(json_file) != "-":
        show(facts, pcap)
    if not all(report["good"] for report in facts["replays"]):
        raise click.ClickException("the card did not do what the recorded machine did")


def play(
    config: NicConfig,
    pcap: Path,
    *,
    impair: str = "",
    timer_scale: float = 1.0,
    waves: bool = False,
    longest: int = LONGEST,
) -> dict[str, Any]:
    """Play the demonstration on two cards; what ``--json`` writes, but for the profile's name.

    longest: bytes of a message of the table. Raises BuildError, and AssertionError when a message
    is wrong or missing; a replay that is not as recorded is in the result.
    """
    from sim.bench import testbench

    began = time.monotonic()
    with console.progress(f"Building two NICs at {config.width} bits"):
        model = testbench.build(config=config)
    built = time.monotonic() - began
    spec: dict[str, Any] = {"config": dataclasses.asdict(config), "pcap": str(pcap.resolve())}
    spec |= {"impair": impair, "timer_scale": timer_scale, "longest": longest}
    with console.progress("Running") as say:
        facts, _ = _run(model, spec, say, ["traffic", "replays"])
    if waves:
        with console.progress("Building the same to record every signal"):
            model = testbench.build(config=config, waves=True)
        with console.progress("Recording a few messages of each operation") as say:
            _, recorded = _run(model, spec, say, ["recording"])
        from sim.tools.waves import keep

        kept = pcap.with_suffix(".fst")
        keep(recorded, kept, width=config.width, cards=2)
        facts["waves"] = str(kept)
    facts["build_seconds"] = built
    facts["impair"] = impair
    _figures(facts, pcap)
    return facts


def _run(
    model: Any, spec: dict[str, Any], say: Any, benches: list[str]
) -> tuple[dict[str, Any], Any]:
    """Run the benches: what they found, and the waves. Progress goes to ``say``."""
    from sim.bench.job import run_job

    captures = [str(path) for path in sorted(CAPTURES.glob("*.pcap"))]
    spec = spec | {"captures": captures}
    facts, results = run_job(
        model, "sim.measure.demo.bench", spec, say, timeout_s=TIMEOUT_S, testcase=benches
    )
    config = spec["config"]
    return {"width": config["width"], "configuration": config} | facts, results.waves


def _figures(facts: dict[str, Any], pcap: Path) -> None:
    """Goodput from the time stamps of the capture: payload over the time it took on the wire."""
    from sim.measure.perf.figures import data_packets, rates
    from sim.wire.packets import dissect
    from sim.wire.pcap import read_pcap

    good = [dissect(frame).icrc_good for _, frame in read_pcap(pcap)]
    facts["packets"] = len(good)
    facts["bad_icrc"] = good.count(False)
    carrying = data_packets(pcap)
    for row in facts["rows"]:
        sender = carrying.of(row.pop("sender") + 1)
        found = rates(sender.between(row["begin_ns"], row["end_ns"]), LINE_GBPS)
        row["gbps"] = found.average
        if facts["impair"]:  # what is sent again is no gain
            row["gbps"] = 8 * row["bytes_verified"] / (row["end_ns"] - row["begin_ns"])
        row["wire_limit_gbps"] = found.limit
        row["ratio"] = row["gbps"] / found.limit


def _speed(facts: dict[str, Any]) -> float:
    """Cycles simulated for each second; those that were left out do not count."""
    return float((facts["cycles"] - facts["skipped"]) / facts["seconds"])


def _time(ns: int) -> str:
    return f"{ns:,} ns" if ns < 100_000 else f"{ns / 1000:,.0f} us"


def show(facts: dict[str, Any], pcap: Path) -> None:
    """Print what ``play`` has found, and what was left out. ``pcap``: the file that is named."""
    which = f" of the profile {facts['profile']}" if facts["profile"] else ""
    table = Table(
        title=f"Two NICs{which}, {facts['width']} bit, 100 Gb/s between them",
        title_justify="left",
    )
    headings = ("operation", "size", "messages", "bytes verified", "Gb/s", "of wire", "latency")
    for heading in headings:
        side: Literal["left", "right"] = "left" if heading == "operation" else "right"
        table.add_column(heading, justify=side, no_wrap=True)
    for row in facts["rows"]:
        table.add_row(
            row["op"],
            console.octets(row["size"]),
            str(row["messages"]),
            f"{row['bytes_verified']:,}",
            f"{row['gbps']:.2f}",
            f"{100 * row['ratio']:.1f} %",
            _time(row["latency_ns"]),
        )
    console.out.print(table)
    many = facts["many"]
    took = many["end_ns"] - many["begin_ns"]
    console.out.print(
        f"{many['qps']} QPs on {many['cqs']} CQs, host completions out of order: "
        f"{many['messages']} messages, {many['bytes_verified']:,} bytes verified in {took:,} ns"
    )
    if facts["impair"]:
        console.out.print(
            f"Network: {facts['impair']}; {facts['lost']:,} of {facts['frames']:,} frames were lost"
        )
    _show_left_out(facts)
    _show_replays(facts)
    if "waves" in facts:
        saved = Path(facts["waves"]).with_suffix(".gtkw")
        console.out.print(f"{facts['waves']}: waves; gtkwave {saved}")
    console.out.print(
        f"{pcap}: {facts['packets']} packets, {facts['bad_icrc']} with a wrong ICRC\n"
        f"{facts['cycles']:,} cycles in {facts['seconds']:.0f} s, {_speed(facts):,.0f} a second; "
        f"build {facts['build_seconds']:.0f} s"
    )


def _show_left_out(facts: dict[str, Any]) -> None:
    """What these cards cannot do, by the reason."""
    reasons: dict[str, list[str]] = {}
    for one in facts["rows_left_out"]:
        reasons.setdefault(one["why"], []).append(f"{one['op']} of {console.octets(one['size'])}")
    for why, names in reasons.items():
        console.out.print(f"Left out ({why}): {'; '.join(names)}")


def _show_replays(facts: dict[str, Any]) -> None:
    """What became of the recorded traffic."""
    if why := facts["replays_left_out"]:
        console.out.print(f"Left out ({why}): recorded Linux traffic")
        return
    replays = facts["replays"]
    agreed, packets, good = (sum(r[key] for r in replays) for key in ("agreed", "packets", "good"))
    nothing = len(facts["left_out"])
    rest = f"; {nothing} captures hold nothing that is replayed" if nothing else ""
    console.out.print(
        f"Recorded Linux traffic: {agreed} of {packets} packets agree, {good} of {len(replays)} "
        f"replays{rest}"
    )
    for report in facts["replays"]:
        if not report["good"]:
            first = report["error"] or (report["differences"] or ["packets are missing"])[0]
            console.out.print(f"  {report['trace']} as side {report['side']}: {first}")
