"""``rocinante replay``: one card takes the place of a machine of a capture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hdl.wire.opcodes import Transport
from sim.replay.facts import Facts
from sim.replay.plan import Plan, Run
from sim.rtl import env
from sim.tools import console, outputs

__all__ = ["replay"]

#: Real time for bringing a card up and for a packet, s.
_EACH_RUN, _EACH_PACKET = 120, 2
#: Bytes of a capture that takes so long to read that this is shown.
_LARGE = 16 << 20
#: In the line that says why there is nothing to replay.
_MOST_REASONS = 8


@click.command()
@click.argument("trace", type=click.Path(path_type=Path), metavar="TRACE")
@click.option(
    "--side",
    type=click.Choice(["A", "B"]),
    help="Whose place the card takes: A is the machine that sends first. Default: one, then the "
    "other.",
)
@click.option(
    "--facts",
    "facts_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What the packets do not say (docs/replay.md). Default: TRACE with .json, if any.",
)
@click.option("-q", "--quiet", is_flag=True, help="Show only packets that differ.")
@console.width_option
@console.json_option
@console.waves_option
def replay(
    trace: Path,
    side: str | None,
    facts_file: Path | None,
    quiet: bool,
    width: int,
    json_file: Path | None,
    waves: bool,
) -> None:
    """Feed a card the recorded packets of one side of TRACE (pcap, pcapng) and compare what it
    sends with what the other side sent.

    Exit status: 0 when all that was replayed agrees, 1 when something differs, 2 when there is
    nothing to replay.
    """
    sides = [side] if side else ["A", "B"]
    with console.stops():
        facts_file, facts = _facts(trace, facts_file, json_file)
        plan = _plan(trace, facts)
        config = plan.config(width)
        planned = {letter: plan.runs(letter, config) for letter in sides}
        if not any(runs for runs, _ in planned.values()):
            raise ValueError(_nothing(plan, planned))
        env.require_compiler()
        if waves:
            env.require_waves()
            outputs.require_file(_waves_file(trace))
    found = describe(plan, planned) | {"width": width}
    spec = {
        "trace": str(trace.resolve()),
        "facts": str(facts_file.resolve()) if facts_file else None,
        "width": width,
        "sides": sides,
    }
    count = sum(len(runs) for runs, _ in planned.values())
    packets = count * sum(len(one.packets) for one in plan.suitable)
    limit = _EACH_RUN * count + _EACH_PACKET * packets
    found |= _simulate(config, spec, waves, trace, limit)
    found["good"] = all(report["good"] for report in found["replays"])
    console.write_json(json_file, found)
    if str(json_file) != "-":
        _show(found, quiet)
    if not found["good"]:
        raise click.exceptions.Exit(1)


def _facts(trace: Path, file: Path | None, json_file: Path | None) -> tuple[Path | None, Facts]:
    """The side file and what it says."""
    beside = trace.with_suffix(".json")
    chosen = file or (beside if beside.is_file() else None)
    if json_file is not None and json_file.resolve() in (beside.resolve(), trace.resolve()):
        raise ValueError(f"--json {json_file} is the place of the capture's own side file")
    try:
        return chosen, Facts.load(chosen) if chosen else Facts()
    except OSError as error:
        raise ValueError(f"{chosen}: {error.strerror}") from None


def _plan(trace: Path, facts: Facts) -> Plan:
    if trace.exists() and not (trace.is_file() or trace.is_dir()):
        raise ValueError(f"{trace}: no file that can be read twice")
    try:
        size = trace.stat().st_size
        if size < _LARGE:
            return Plan(trace, facts)
        total, told = size >> 20, 0
        with console.bar(f"Reading {trace.name}, MiB", total) as step:

            def say(place: int, _size: int) -> None:
                nonlocal told
                step((place >> 20) - told, 0)
                told = place >> 20

            return Plan(trace, facts, say)
    except OSError as error:
        raise ValueError(f"{trace}: {error.strerror}") from None


def _nothing(plan: Plan, planned: dict[str, tuple[list[Run], dict[int, str]]]) -> str:
    """One line that says why nothing can be replayed."""
    reasons = [f"{one}: {one.reason}" for one in plan.connections if one.reason]
    for letter, (_, refused) in planned.items():
        reasons += [f"side {letter}: connection {n}: {why}" for n, why in refused.items()]
    reasons += [str(one) for one in plan.left_out]
    if len(reasons) > _MOST_REASONS:
        reasons[_MOST_REASONS:] = [f"and {len(reasons) - _MOST_REASONS} more reasons"]
    if not plan.roce:
        reasons = reasons or ["no packet at all"]
        return f"{plan.path}: no packet of RoCE v2 of RC, UC or UD; {'; '.join(reasons)}"
    return f"{plan.path}: nothing can be replayed; {'; '.join(reasons)}"


def describe(plan: Plan, planned: dict[str, tuple[list[Run], dict[int, str]]]) -> dict[str, Any]:
    """What a capture holds, what is replayed and what is left out, as plain values."""
    connections = []
    for one in plan.connections:
        connections.append(
            {
                "number": one.number,
                "service": one.service.name,
                "ends": [{"ip": end.address, "qpn": end.qpn} for end in one.ends],
                "packets": len(one.packets),
                "mtu": None if one.reason or one.service is Transport.UD else one.mtu,
                "left_out": one.reason,
                "notes": [str(note) for note in one.notes],
                "remarks": one.remarks,
                "refused": {
                    letter: refused[one.number]
                    for letter, (_, refused) in planned.items()
                    if one.number in refused
                },
            }
        )
    return {
        "trace": str(plan.path),
        "connections": connections,
        "left_out": [str(one) for one in plan.left_out],
    }


def _simulate(
    config: Any, spec: dict[str, Any], waves: bool, trace: Path, limit: float
) -> dict[str, Any]:
    from sim.bench import testbench
    from sim.bench.job import run_job

    try:
        with console.progress(f"Building a NIC at {config.width} bits"):
            model = testbench.build(config=config, waves=waves)
        with console.progress(f"Replaying {trace.name}") as say:
            facts, results = run_job(model, "sim.replay.bench", spec, say, limit)
    except env.BuildError as error:
        raise console.UsageStop(str(error)) from None
    except AssertionError as error:  # the card has broken a rule of the host's or the link's model
        raise click.ClickException(str(error)) from None
    if results.waves is not None:
        from sim.tools.waves import keep

        facts["waves"] = str(_waves_file(trace))
        keep(results.waves, _waves_file(trace), width=config.width)
    return facts


def _waves_file(trace: Path) -> Path:
    """In the present folder: a capture may lie where nobody may write."""
    return Path(f"{trace.stem}.fst")


def _print(text: str) -> None:
    console.out.print(text, markup=False, highlight=False, soft_wrap=True)


def _show(found: dict[str, Any], quiet: bool) -> None:
    for one in found["connections"]:
        ends = " - ".join(
            f"{end['ip']} QP {hex(end['qpn']) if end['qpn'] else 'unknown'}" for end in one["ends"]
        )
        mtu = f"{one['service']}, MTU {one['mtu']}" if one["mtu"] else one["service"]
        state = f"left out: {one['left_out']}" if one["left_out"] else mtu
        _print(f"Connection {one['number']}: {ends}: {state}")
        for remark in one["remarks"]:
            _print(f"  {remark}")
        for note in one["notes"]:
            _print(f"  left out: {note}")
        for letter, why in one["refused"].items():
            _print(f"  left out as side {letter}: {why}")
    for text in found["left_out"]:
        _print(f"Left out: {text}")
    for report in found["replays"]:
        _show_run(report, quiet)
    clauses = {
        name: o["clause"] for report in found["replays"] for name, o in report["free"].items()
    }
    if clauses:
        _print("Free differences:")
    for name, clause in clauses.items():
        _print(f"  {name}: {clause}")
    if "waves" in found:
        saved = Path(found["waves"]).with_suffix(".gtkw")
        _print(f"{found['waves']}: waves; gtkwave {saved}")
    agreed, packets = (sum(r[key] for r in found["replays"]) for key in ("agreed", "packets"))
    verdict = "all agree" if found["good"] else "NOT as recorded"
    _print(f"{found['trace']}: {agreed} of {packets} packets agree: {verdict}")


def _show_run(report: dict[str, Any], quiet: bool) -> None:
    numbers = ", ".join(str(number) for number in report["connections"])
    _print(f"\nSide {report['side']}: the card is {report['machine']}, connections {numbers}")
    for one in sorted(report["verdicts"], key=lambda one: one["packet"]):
        if quiet and one["result"] in ("equal", "free"):
            continue
        what = {"free": ", ".join(one["free"]), "different": "; ".join(one["differences"])}
        text = f"{one['result']}: {what[one['result']]}" if one["result"] in what else one["result"]
        _print(
            f"{one['packet']:>7} {one['time'] / 1e9:>12.6f}  {one['connection']:>3} "
            f"{one['name']:<16} PSN {one['psn']:#08x}  {text}"
        )
    for text in report["differences"]:
        _print(f"  DIFFERENT: {text}")
    if report["error"]:
        _print(f"  STUCK: {report['error']}")
    if report["stall"]:
        _print(report["stall"])
    free = ", ".join(f"{name} {one['count']}" for name, one in report["free"].items()) or "none"
    _print(
        f"{report['fed']} packets fed, {report['agreed']} of {report['packets']} agree; "
        f"free differences: {free}"
    )
    if report["memory"]:
        memory = ", ".join(f"{k.replace('_', ' ')} {v:,}" for k, v in report["memory"].items())
        _print(f"compared at the end: {memory}")
