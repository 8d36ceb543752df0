"""Several flows in one run of ``perf``: their command lines, their figures and their table."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click
from click.core import ParameterSource

from sim.measure.perf.figures import Latency
from sim.measure.perf.plan import LARGEST_REGION, USUAL_QPS, Plan

__all__ = ["MACHINE", "Mixed", "check", "figures_of", "on_one_card", "parse", "table"]

#: What a flow's text may say, as the command's parameters are named; beside it ``--reverse``.
OF_A_FLOW = (
    *("op", "size", "qps", "tx_depth", "iters", "mtu", "post_list", "cq_mod", "inline"),
    *("connection", "atomic_type", "sges"),
)
#: What stands on the main command line only, for all flows alike.
MACHINE = (
    *("width", "clock_mhz", "host_latency_ns", "host_gbps", "line_gbps", "tlp_headers", "impair"),
    *("qp_timeout", "timer_scale", "seed", "without", "cold"),
)


@dataclass(frozen=True)
class Mixed:
    """A flow of a mixed run: its plan, its text, and whether it starts at the second card."""

    plan: Plan
    text: str
    reverse: bool


def parse(command: click.Command, text: str) -> tuple[dict[str, Any], bool]:
    """Options of a flow, and whether it is reversed; ValueError names what is bad."""
    try:
        words = shlex.split(text)
        context = command.make_context("flow", [word for word in words if word != "--reverse"])
    except click.ClickException as error:
        raise ValueError(f"--flow {text!r}: {error.message}") from None
    except ValueError as error:
        raise ValueError(f"--flow {text!r}: {error}") from None
    for option in command.params:
        name = option.name or ""
        given = context.get_parameter_source(name) == ParameterSource.COMMANDLINE
        if given and name not in OF_A_FLOW:
            raise ValueError(f"--flow {text!r}: {option.opts[-1]} is no option of a flow")
    if context.params["op"] is None:
        raise ValueError(f"--flow {text!r}: OP is missing")
    return {name: context.params[name] for name in OF_A_FLOW}, "--reverse" in words


def on_one_card(flows: Sequence[Mixed]) -> list[Mixed]:
    """The flows on a card that has what any of them needs."""
    needed = {name: on for flow in flows for name, on in flow.plan.kind.card.items()}
    if not needed:
        return list(flows)
    return [
        replace(flow, plan=replace(flow.plan, card={**flow.plan.card, **needed})) for flow in flows
    ]


def check(flows: Sequence[Mixed]) -> None:
    """ValueError when the flows do not fit on one pair of cards."""
    first = flows[0].plan
    qps = sum(flow.plan.qps for flow in flows)
    if qps > USUAL_QPS or any(flow.plan.config != first.config for flow in flows):
        raise ValueError(f"--flow: {qps} QPs need another card; all flows have up to {USUAL_QPS}")
    if (cqs := sum(flow.plan.cqs for flow in flows)) > first.config.cqs:
        raise ValueError(f"--flow: {cqs} CQs are needed, the card has {first.config.cqs}")
    reads = sum(flow.plan.qps * flow.plan.max_rd_atomic for flow in flows)
    if reads > first.config.read_resources:
        raise ValueError(
            f"--flow: the QPs need {reads} READ resources, the card has "
            f"{first.config.read_resources}"
        )
    need = sum(flow.plan.region(flow.plan.sizes[0]) for flow in flows)
    if need > LARGEST_REGION:
        raise ValueError(f"--flow: {need >> 20} MiB are needed, at most {LARGEST_REGION >> 20}")


def figures_of(flow: Mixed, found: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of a flow's timed part, for ``--json``; rates by its completions."""
    plan, samples = flow.plan, Latency.of(found["samples"])
    messages = found["messages"]
    return {
        "flow": flow.text,
        "direction": "b to a" if flow.reverse else "a to b",
        "op": plan.op,
        "size": plan.sizes[0],
        "qps": plan.qps,
        "messages": messages,
        "gbps": messages * found["size"] * 8 / found["ns"],
        "mmsg_s": messages * 1000 / found["ns"],
        "latency_ns": {
            "min": samples.min,
            "p50": samples.typical,
            "p99": samples.p99,
            "p99.9": samples.p999,
            "max": samples.max,
        },
        "cycles": found["cycles"],
        "bytes_verified": found["bytes_verified"],
    }


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each flow; latencies in us."""
    wide = max(4, *(len(row["flow"]) for row in rows))
    names = ("QPs", "messages", "Gb/s", "Mmsg/s", "min", "p50", "p99", "p99.9", "max [us]")
    yield f"{'flow':<{wide}}  direction " + "".join(f"{name:>10}" for name in names)
    for row in rows:
        took = "".join(f"{value / 1000:>10.3f}" for value in row["latency_ns"].values())
        yield (
            f"{row['flow']:<{wide}}  {row['direction']:<10}{row['qps']:>10}{row['messages']:>10}"
            f"{row['gbps']:>10.3f}{row['mmsg_s']:>10.4f}{took}"
        )
