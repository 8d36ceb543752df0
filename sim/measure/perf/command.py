"""The command line of ``rocinante perf``."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from sim.measure.perf.flows import MACHINE, Mixed, check, figures_of, on_one_card, parse, table
from sim.measure.perf.plan import MANY, OPTIONAL, USUAL_QPS, Plan
from sim.measure.perf.report import Row, body, footer, header, make_row, unsteady, warnings
from sim.measure.perf.verbs import ATOMIC_TYPES, CONNECTIONS, OPERATIONS, VERBS
from sim.rtl import env
from sim.tools import console, outputs

__all__ = ["measure", "measure_flows", "perf", "plan_of", "run_plans"]

#: Real time for one simulation, s; a stall in simulated time ends it much earlier.
TIMEOUT_S = 24 * 3600.0

#: Parameters that perftest has and that mean nothing here.
_PERFTEST = ("cpu_freq", "report_gbits", "duration", "rdma_cm")

Say = Callable[[str], None]


@click.command()
@click.argument("op", metavar="[OP]", required=False)
@click.option(
    "--flow",
    "flows",
    multiple=True,
    metavar="'OP [OPTION]...'",
    help="Instead of OP, repeatedly: flows of one run; --reverse starts it at the other card.",
)
@click.option("--cold", is_flag=True, help="No warm-up: the first packets meet an idle card.")
@click.option("-F", "cpu_freq", is_flag=True, help="As perftest's; means nothing here.")
@click.option("--report_gbits", is_flag=True, help="As perftest's; rates always are in Gb/s.")
@click.option("-D", "--duration", hidden=True)
@click.option("-R", "--rdma_cm", is_flag=True, hidden=True)
@click.option(
    "-s", "--size", type=int, help="Bytes of a message.  [default: 65536, latency 2, atomic 8]"
)
@click.option("-m", "--mtu", type=int, default=4096, show_default=True, help="Path MTU, bytes.")
@click.option("-q", "--qps", type=int, default=1, show_default=True, help="Queue pairs.")
@click.option(
    "-t",
    "--tx-depth",
    type=int,
    default=128,
    show_default=True,
    help="Requests outstanding on a QP.",
)
@click.option(
    "-n",
    "--iters",
    type=int,
    help="Timed messages of each QP.  [default: by size, see docs/perf.md]",
)
@click.option(
    "-I", "--inline", type=int, default=0, show_default=True, help="Messages up to this go inline."
)
@click.option("-b", "--bidirectional", is_flag=True, help="Both sides send; rates are added.")
@click.option(
    "-a", "--all", "everything", is_flag=True, help="All sizes, then all QP counts; plots."
)
@click.option(
    "-Q", "--cq-mod", type=int, default=16, show_default=True, help="Every so many a completion."
)
@click.option(
    "-l", "--post-list", type=int, default=16, show_default=True, help="Requests with a doorbell."
)
@console.width_option
@click.option(
    "--host-latency-ns", type=float, default=500, show_default=True, help="Of a host read."
)
@click.option(
    "--host-gbps",
    type=float,
    default=110,
    show_default=True,
    help="Host data each way; 0: no limit.",
)
@click.option(
    "--tlp-headers", is_flag=True, help="Headers of PCIe's packets count in --host-gbps too."
)
@click.option("--line-gbps", type=float, default=100, show_default=True, help="Rate of the line.")
@console.impair_option
@click.option(
    "-u",
    "--qp-timeout",
    type=int,
    default=14,
    show_default=True,
    help="An answer is waited for 4.096 us x 2^this; 0: for ever.",
)
@console.timer_scale_option
@click.option("--clock-mhz", type=float, default=250, show_default=True, help="Core clock.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of data and host's order.")
@click.option("--places", type=int, help="Of a message in each QP's memory.  [default: by depth]")
@click.option("--place-step", type=int, help="Bytes from one to the next.  [default: by size]")
@click.option(
    "--miss-qps",
    type=int,
    default=0,
    show_default=True,
    help="QPs whose translations are never known.",
)
@click.option(
    "-A",
    "--atomic-type",
    default=next(iter(ATOMIC_TYPES)),
    show_default=True,
    help="Or CMP_AND_SWAP.",
)
@click.option("--one-word", is_flag=True, help="All QPs change one word.")
@click.option(
    "-c", "--connection", default="RC", show_default=True, help=f"{', '.join(CONNECTIONS)}."
)
@click.option(
    "--sges",
    type=int,
    default=1,
    show_default=True,
    help="Pieces of each message in memory, an SGE each.",
)
@click.option("--use-srq", is_flag=True, help="The QPs of a node share one receive queue.")
@click.option(
    "--targets",
    type=int,
    default=1,
    show_default=True,
    help="Of each initiator of DC, in turn.",
)
@click.option(
    "--mkey",
    type=int,
    default=0,
    show_default=True,
    help="Messages come from indirect keys of so many entries.",
)
@click.option("--push", is_flag=True, help="Requests go with their doorbell, if they can.")
@click.option("--busy", is_flag=True, help="Tell how busy each part of the cards is.")
@click.option("--mp-wr", is_flag=True, help="Each receive takes several messages of a packet.")
@click.option(
    "--without",
    multiple=True,
    metavar="FEATURE",
    help=f"The driver does not ask for it: {', '.join(OPTIONAL)}.",
)
@console.json_option
@click.option(
    "--pcap",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    callback=console.writable,
    help="Keep the timed part's packets; with --all a file for each row.",
)
@click.option(
    "--plots",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    metavar="FOLDER",
    help="Where --all writes its plots.  [default: the current folder]",
)
def perf(
    op: str | None,
    flows: tuple[str, ...],
    size: int | None,
    everything: bool,
    json_file: Path | None,
    pcap: Path | None,
    plots: Path,
    **options: Any,
) -> None:
    """Measure OP between two simulated NICs, as perftest does.

    OP is one of write, send, read, atomic, flush, atomic_write, followed by _bw or _lat. A message
    of flush is a WRITE and a FLUSH behind it.
    """
    if flows:
        _run_flows(op, flows, json_file, pcap)
        return
    with console.stops():
        if op is None:
            raise ValueError("OP or --flow is missing")
        plan = _plan(op, size, everything, options)
        if everything and not plots.is_dir():
            raise ValueError(f"--plots {plots} is no folder")
        if everything:
            outputs.require_folder(plots)
        plans = [plan.sweep(), *plan.scan()] if everything else [plan]
        env.require_compiler()
    show = str(json_file) != "-"
    rows = []
    for each in plans:
        for text in warnings(each):
            _warn(text)
        found = measure(each, pcap, apart=everything)
        for text in filter(None, map(unsteady, found)):
            _warn(text)
        rows.append(found)
        if show:
            for line in (*header(each), *body(each, found), *footer(each, found)):
                click.echo(line)
    facts = [row.json for found in rows for row in found]
    console.write_json(json_file, facts if everything else facts[0])
    if everything:
        from sim.measure.perf.plots import draw

        files = draw(plan, rows[0], "size", plots)
        if len(rows) > 1:
            scan = [row for row in rows[0] if row.json["size"] == plan.sizes[0]]
            scan += [row for found in rows[1:] for row in found]
            files += draw(plan, scan, "qps", plots)
        console.err.print(*files, sep="\n", highlight=False)


def _plan(op: str, size: int | None, everything: bool, options: Mapping[str, Any]) -> Plan:
    """The plan that the command line asks for; ValueError names what is bad."""
    if op not in OPERATIONS:
        raise ValueError(f"Operation must be one of {', '.join(OPERATIONS)}, not {op!r}")
    if options["duration"] is not None:
        raise ValueError("-D: a run has a number of messages, not seconds: see --iters")
    if options["rdma_cm"]:
        raise ValueError("-R: there is no connection manager here: QPs are connected directly")
    options = {name: value for name, value in options.items() if name not in _PERFTEST}
    qps = options["qps"]
    if qps == MANY["qps"]:
        qps -= 2  # all of them: pairs 0 and 1 are not a driver's to use
    default = 2 if op.endswith("_lat") else 64 if everything else 1 << 16
    default = VERBS[op.rpartition("_")[0]].size or default
    return Plan(op=op, sizes=(default if size is None else size,), **{**options, "qps": qps})


def _run_flows(
    op: str | None, flows: tuple[str, ...], json_file: Path | None, pcap: Path | None
) -> None:
    """Measure all flows together and print their table."""
    with console.stops():
        mixed = _mixed(op, flows)
        env.require_compiler()
    facts = measure_flows(mixed, pcap)
    if str(json_file) != "-":
        for line in table(facts):
            click.echo(line)
    console.write_json(json_file, facts)


def _mixed(op: str | None, texts: tuple[str, ...]) -> list[Mixed]:
    """The flows that the command line asks for; ValueError names what is bad."""
    context = click.get_current_context()
    if op is not None:
        raise ValueError("OP and --flow exclude each other")
    allowed = (*MACHINE, *_PERFTEST, "flows", "json_file", "pcap")
    for option in perf.params:
        name = option.name or ""
        given = context.get_parameter_source(name) == ParameterSource.COMMANDLINE
        if given and name not in allowed:
            raise ValueError(f"{option.opts[-1]} stands in the text of a --flow, or with OP")
    machine = {name: context.params[name] for name in (*MACHINE, *_PERFTEST)}
    mixed = []
    for text in texts:
        own, reverse = parse(perf, text)
        try:
            plan = _plan(own.pop("op"), own.pop("size"), False, machine | own)
        except ValueError as error:
            raise ValueError(f"--flow {text!r}: {error}") from None
        mixed.append(Mixed(plan, text, reverse))
    mixed = on_one_card(mixed)
    check(mixed)
    return mixed


def plan_of(line: str) -> Plan:
    """The plan of a command line, without its ``rocinante perf``; ValueError for a bad one."""
    try:
        found = perf.make_context("perf", shlex.split(line)).params
    except click.ClickException as error:
        raise ValueError(f"{line}: {error.message}") from None
    for name in ("json_file", "pcap", "plots", "flows"):
        found.pop(name)
    return _plan(found.pop("op"), found.pop("size"), found.pop("everything"), found)


def _warn(text: str) -> None:
    console.err.print(f"Warning: {text}", style="yellow", markup=False, highlight=False)


def measure(plan: Plan, pcap: Path | None = None, *, apart: bool = False) -> list[Row]:
    """Build two NICs, run the plan in one simulation; a row of figures for each size.

    pcap: where the capture is kept; with ``apart`` each row has its own, with size and QPs in its
    name. Raises click.ClickException for a stall, an error or a wrong byte.
    """
    from sim.bench import testbench

    try:
        with console.progress(f"Building two NICs at {plan.width} bits"):
            model = testbench.build(config=plan.config, fast=True if plan.qps > USUAL_QPS else None)
        with console.progress("Running") as say, tempfile.TemporaryDirectory() as name:
            found = run_plans([plan], [], model, Path(name), say)
            if pcap is not None:
                for facts in found:
                    part = f"-{facts['size']}-{plan.qps}" if apart else ""
                    shutil.copyfile(facts["pcap"], pcap.with_stem(pcap.stem + part))
            return [make_row(plan, facts) for facts in found]
    except ValueError as error:  # a timed part shorter than what was on its way
        raise click.ClickException(f"{error}: more --iters are needed") from None
    except (env.BuildError, AssertionError) as error:
        raise click.ClickException(str(error)) from None


def measure_flows(mixed: list[Mixed], pcap: Path | None = None) -> list[dict[str, Any]]:
    """Run all flows in one simulation; the figures of each. pcap: where all frames are kept.

    Raises click.ClickException for a stall, an error or a wrong byte.
    """
    from sim.bench import testbench

    plans, reverse = [flow.plan for flow in mixed], [flow.reverse for flow in mixed]
    try:
        with console.progress(f"Building two NICs at {plans[0].width} bits"):
            model = testbench.build(config=plans[0].config)
        with console.progress("Running") as say, tempfile.TemporaryDirectory() as name:
            found = run_plans(plans, reverse, model, Path(name), say)
            if pcap is not None:
                (frames,) = Path(name).glob("*.pcap")
                shutil.copyfile(frames, pcap)
            return [figures_of(*one) for one in zip(mixed, found, strict=True)]
    except (env.BuildError, AssertionError) as error:
        raise click.ClickException(str(error)) from None


def run_plans(
    flows: list[Plan],
    reverse: list[bool],
    model: Any,
    folder: Path,
    say: Say = lambda text: None,
) -> list[dict[str, Any]]:
    """Run flows in one simulation of ``model``; what ``sim.measure.perf.bench`` found of each.

    folder: for their captures. Raises AssertionError for a stall, an error or a wrong byte.
    """
    from sim.bench.job import run_job

    spec = {"flows": [flow.to_json() for flow in flows], "reverse": reverse, "folder": str(folder)}
    facts, _ = run_job(model, "sim.measure.perf.bench", spec, say, TIMEOUT_S, seed=flows[0].seed)
    found: list[dict[str, Any]] = facts["found"]
    return found
