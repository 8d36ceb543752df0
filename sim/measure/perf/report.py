"""Rows of figures, and how they are printed: as perftest prints them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sim.measure.flow import PIECES
from sim.measure.perf.figures import Latency, Packets, Rates, data_packets, quarters, rates, stages
from sim.measure.perf.plan import XRC_QUEUES, Plan

__all__ = ["STEADY", "Row", "body", "footer", "header", "make_row", "unsteady", "warnings"]

#: By how much the quarters of a steady run may differ, as a share of their mean.
STEADY = 0.05
#: Parts that are at rest for more of the time are not printed.
LEAST = 0.05
_RULE = "-" * 96
_STAGES = {
    "doorbell_to_wire": "doorbell at the card to first bit on the line",
    "wire_to_host": "last bit off the line to host write",
}


@dataclass(frozen=True)
class Row:
    """Figures of one size. ``json`` gives those that ``--json`` writes."""

    json: dict[str, Any]
    iterations: int
    peak: float
    latency: Latency
    stages: Mapping[str, Latency]


def _stages(plan: Plan, found: Mapping[str, Any]) -> dict[str, Latency]:
    """Parts of a WRITE's way; empty for anything else."""
    if not found.get("stages"):
        return {}
    packets = data_packets(found["pcap"])
    before, behind = stages(packets, found["stages"], plan.line, found["line_delay_ns"])
    return {"doorbell_to_wire": Latency.of(before), "wire_to_host": Latency.of(behind)}


def _spread(latency: Latency) -> dict[str, float]:
    return {
        "min": latency.min,
        "p50": latency.typical,
        "p99": latency.p99,
        "max": latency.max,
    }


def _both(packets: Packets, line_gbps: float) -> Rates:
    """Rates of both directions added; the time is the longer of the two."""
    parts = [rates(packets.of(int(one)), line_gbps) for one in np.unique(packets.source)]
    if not parts:
        raise ValueError("0 data packets are too few for a rate")
    average, peak, limit = (
        sum(getattr(part, name) for part in parts) for name in ("average", "peak", "limit")
    )
    return Rates(average, peak, limit, max(part.took for part in parts))


def _copied(plan: Plan, found: Mapping[str, Any]) -> Rates:
    """The rate of what was copied, against that of the host's port; each host has its own."""
    average = found["messages"] * found["size"] * 8 / found["ns"]
    return Rates(average, average, plan.port * (1 + plan.bidirectional), found["ns"])


def _each(plan: Plan, found: Mapping[str, Any], packets: Packets) -> dict[str, float]:
    """Million messages a second of one QP whose translations are known, and of one whose never are;
    on average, ``bidirectional`` in either direction."""
    missing, flows = found["missing"], plan.qps * (1 + plan.bidirectional)
    rest = np.ones(packets.time.size, np.bool_)
    for sender, qp in missing:
        rest &= (packets.source != sender + 1) | (packets.qp != qp)
    took = int(packets.time[-1] - packets.time[0])
    return {
        name: float(packets.payload[which][:-1].sum()) * 1000 / (found["size"] * took * count)
        for name, which, count in (
            ("known", rest, flows - len(missing)),
            ("missing", ~rest, len(missing)),
        )
        if count
    }


def make_row(plan: Plan, found: Mapping[str, Any]) -> Row:
    """The figures of what ``bench`` found for one size; rates come from its capture alone, those of
    copies, which no packet carries, from their completions."""
    packets = data_packets(found["pcap"])
    seen = _copied(plan, found) if plan.local else _both(packets, plan.line)
    average = seen.average
    if plan.impair:  # packets that are sent again are no gain
        average = found["messages"] * found["size"] * 8 / found["ns"]
    latency = Latency.of(found["samples"])
    size, parts = found["size"], _stages(plan, found)
    return Row(
        {
            "op": plan.op,
            "size": size,
            "mtu": plan.mtu,
            "qps": plan.qps,
            "gbps": average,
            "wire_limit_gbps": seen.limit,
            "ratio": average / seen.limit,
            "mmsg_s": average * 1000 / (8 * size),
            "quarters_gbps": [] if plan.latency else quarters(packets),
            "latency_ns": _spread(latency),
            "cycles": found["cycles"],
            "bytes_verified": found["bytes_verified"],
            "host_reads_per_msg": found["host_reads"] / found["messages"],
            "host_writes_per_msg": found["host_writes"] / found["messages"],
            "sim_cycles_per_s": (found["cycles"] - found["skipped"]) / found["seconds"],
        }
        | {f"{name}_ns": _spread(one) for name, one in parts.items()}
        | ({"mmsg_s_each": _each(plan, found, packets)} if plan.miss_qps else {})
        | ({"frames": found["frames"], "lost": found["gone"]} if plan.impair else {})
        | ({"busy": found["busy"]} if plan.busy else {}),
        found["messages"],
        seen.peak,
        latency,
        parts,
    )


def unsteady(row: Row) -> str:
    """A warning about a timed part that is not a steady state, or nothing."""
    parts = row.json["quarters_gbps"]
    if not parts:
        return ""
    spread = (max(parts) - min(parts)) * len(parts) / sum(parts)
    if spread <= STEADY:
        return ""
    figures = ", ".join(f"{part:.2f}" for part in parts)
    return (
        f"{row.json['size']} B: the quarters of the run differ by {100 * spread:.1f} % ({figures} "
        f"Gb/s): not a steady state, take more --iters"
    )


def warnings(plan: Plan) -> list[str]:
    """What makes the figures of a plan doubtful, before anything runs."""
    if plan.latency:
        return []
    return [
        f"--iters {plan.iters} is below the {shape.depth} messages of {shape.size} bytes that "
        f"each QP has outstanding: the timed part is shorter than one turn of the queues"
        for shape in map(plan.shape, plan.sizes)
        if plan.iters is not None and plan.iters < shape.depth
    ]


def header(plan: Plan) -> Iterator[str]:
    """Lines in front of the figures: what is measured, and the test's parameters."""
    title = plan.kind.title + (f" {plan.atomic_type}" if plan.verb == "atomic" else "")
    kind = "Latency" if plan.latency else "BW"
    both = "Bidirectional " if plan.bidirectional else ""
    yield _RULE
    yield f"{f'{title} {both}{kind} Test':^96}".rstrip()
    depths = sorted({plan.shape(size).depth for size in plan.sizes})
    rows: list[tuple[str, object]] = [
        ("Device", "two simulated NICs"),
        ("Number of qps", plan.qps),
        ("Transport type", "IB (RoCE v2)"),
        ("Connection type", plan.connection),
        ("Mtu", f"{plan.mtu}[B]"),
        ("Max inline data", f"{plan.inline}[B]"),
    ]
    if not plan.latency:
        cut = f" ({depths[0]} at the longest)" if depths[0] != plan.tx_depth else ""
        rows += [
            ("TX depth", f"{plan.tx_depth}{cut}"),
            ("CQ Moderation", plan.cq_mod),
            ("Post List", plan.post_list),
        ]
    if plan.use_srq:
        extended = plan.connection == "XRC"
        queues = f"{XRC_QUEUES} queues of a domain" if extended else "one shared receive queue"
        rows.append(("Receives", f"from {queues}"))
    if plan.dynamic:
        rows.append(("Targets", f"{plan.targets} of each initiator, in turn"))
    if plan.mp_wr:
        rows.append(("Receives", f"of {PIECES} messages each"))
    if plan.mkey:
        rows.append(("Messages", f"from indirect keys of {plan.mkey} entries"))
    if plan.sges > 1:
        rows.append(("SGEs", f"{plan.sges} a message"))
    if plan.kind.told:
        rows.append(("Outstand reads", plan.max_rd_atomic))
    limit = f"{plan.host_gbps:g}[Gb/s]" if plan.host_gbps else "the port's"
    limit += " with PCIe's headers" if plan.tlp_headers else ""
    rows += [
        ("Data path", f"{plan.width}[bit] at {plan.clock_mhz:g}[MHz]"),
        ("Host", f"{plan.host_latency_ns:g}[nsec] read latency, {limit} each way"),
        ("Line", f"{plan.line:g}[Gb/s]" + (f", {plan.impair}" if plan.impair else "")),
        ("Data ex. method", "driver's memory"),
        ("Seed", plan.seed),
    ]
    for name, value in rows:
        yield f" {name:<16}: {value}"
    yield _RULE


def body(plan: Plan, rows: Iterable[Row]) -> Iterator[str]:
    """The columns of perftest, then the limit and the share of it that was reached."""
    limit = "port limit[Gb/sec]" if plan.local else "wire limit[Gb/sec]"
    if plan.latency:
        yield (
            " #bytes   #iterations  t_min[usec]  t_max[usec]  t_typical[usec]  t_avg[usec]  "
            "t_stdev[usec]  99%[usec]  99.9%[usec]  wire limit[Gb/sec]  share[%]"
        )
    else:
        yield (
            " #bytes   #iterations  BW peak[Gb/sec]  BW average[Gb/sec]  MsgRate[Mpps]  "
            f"{limit}  share[%]"
        )
    for row in rows:
        facts = row.json
        lead = f" {facts['size']:<8} {row.iterations:<12}"
        share = f"{facts['wire_limit_gbps']:<19.3f} {100 * facts['ratio']:.2f}"
        if plan.latency:
            took = row.latency
            us = [value / 1000 for value in asdict(took).values()]
            low, high, typical, average, deviation, p99, p999 = us
            yield (
                f"{lead} {low:<12.3f} {high:<12.3f} {typical:<16.3f} {average:<12.3f} "
                f"{deviation:<14.3f} {p99:<10.3f} {p999:<12.3f} {share}"
            )
        else:
            yield (
                f"{lead} {row.peak:<16.3f} {facts['gbps']:<19.3f} {facts['mmsg_s']:<14.6f} {share}"
            )


def footer(plan: Plan, rows: Iterable[Row]) -> Iterator[str]:
    """What has no column in perftest."""
    yield _RULE
    for row in rows:
        facts = row.json
        for name, part in row.stages.items():
            cycles = part.typical * plan.clock_mhz / 1000
            yield (
                f" {facts['size']} B, {_STAGES[name]}: {part.typical:.0f} ns, {cycles:.0f} cycles "
                f"({part.min:.0f} to {part.max:.0f} ns)"
            )
        if "lost" in facts:
            yield (
                f" {facts['size']} B: {facts['lost']:,} of {facts['frames']:,} frames were lost; "
                f"the average counts each message once"
            )
        if plan.targets > 1:
            each = 1 / facts["mmsg_s"]
            yield f" {facts['size']} B: a connection to the next target takes {each:.1f} us"
        for name, each in facts.get("mmsg_s_each", {}).items():
            yield f" {facts['size']} B, a QP whose translations are {name}: {each:.4f} million/s"
        yield (
            f" {facts['size']} B, {facts['qps']} QPs: {facts['bytes_verified']:,} bytes verified; "
            f"host reads {facts['host_reads_per_msg']:.2f}, "
            f"writes {facts['host_writes_per_msg']:.2f} a message; "
            f"{facts['cycles']:,} cycles timed, {facts['sim_cycles_per_s']:,.0f} a second"
        )
        if "busy" in facts:
            yield from _busiest(facts["busy"])


def _busiest(found: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each part that is not at rest most of the time, the busiest first."""
    rows = sorted(
        ((busy, one, text) for one in found for busy, text in _told(one)),
        key=lambda row: (row[1]["card"], -row[0]),
    )
    yield " card  busy  part"
    for busy, one, text in rows:
        if busy >= LEAST:
            yield f" {one['card']:4} {busy:5.0%}  {one['part']}: {text}"


def _told(one: Mapping[str, Any]) -> Iterator[tuple[float, str]]:
    """How busy a machine or a stream is, and what there is to tell of it; nothing of a level."""
    if "machine" in one:
        states = {name: share for name, share in one["states"].items() if name != one["rest"]}
        shares = ", ".join(f"{name} {share:.0%}" for name, share in states.items())
        yield sum(states.values()), f"{one['machine']}: {shares}"
    elif "stream" in one and one["waits"] >= LEAST:
        yield one["moves"] + one["waits"], f"{one['stream']} waits {one['waits']:.0%}"
