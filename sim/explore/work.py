"""What is measured of a card: jobs that a process of any machine can do, each cached by content."""

from __future__ import annotations

import json
import platform
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hdl.config import NicConfig
from sim.campaign.work import code
from sim.make.synth.parts import Part
from sim.make.synth.report import measure
from sim.measure.perf.command import plan_of, run_plans
from sim.measure.perf.plan import Plan
from sim.measure.perf.report import make_row
from sim.rtl import env
from sim.rtl.verilog import digest

__all__ = ["Job", "do", "plan_for", "total"]

_DEPTHS = ("levels", "ram_levels")


@dataclass(frozen=True)
class Job:
    """One measurement. Either a ``part`` is mapped to ``family``, or ``plan`` is simulated.

    code: hash of the client's code, which the machine that does it must have too.
    """

    code: str
    part: Part | None = None
    family: str = ""
    plan: Plan | None = None


def plan_for(config: NicConfig, line: str) -> Plan:
    """Return what ``perf`` does with ``line``, but between two cards of ``config``.

    Raises ValueError for a line that ``perf`` does not take, or not on such a card.
    """
    card = asdict(config)
    width, clock_hz = card.pop("width"), card.pop("clock_hz")
    return replace(plan_of(line), width=width, clock_mhz=clock_hz / 1e6, card=card)


def do(job: Job) -> dict[str, float]:
    """Return the figures of a job by metric.

    Raises RuntimeError on a machine with other code; BuildError for gateware that cannot be mapped
    or built; AssertionError and ValueError for traffic that does not end as it must.
    """
    if code() != job.code:
        raise RuntimeError(f"{platform.node()}: {env.REPO} is not the same version as the client's")
    if job.part is not None:
        return measure(job.part, job.family).figures()
    assert job.plan is not None
    return _simulated(job.plan, job.code)


def total(found: list[dict[str, float]]) -> dict[str, float]:
    """Return the cost of all parts together: resources add up, the deepest path counts."""
    each = {name: [one[name] for one in found] for name in found[0]}
    return {name: (max if name in _DEPTHS else sum)(some) for name, some in each.items()}


def _simulated(plan: Plan, version: str) -> dict[str, float]:
    from sim.bench import testbench

    sources = testbench.sources(config=plan.config)
    key = digest(sources.key, version, json.dumps(plan.to_json(), sort_keys=True))
    kept = env.build_root() / "explore" / f"{key}.json"
    if kept.exists():
        return dict(json.loads(kept.read_text()))
    with tempfile.TemporaryDirectory() as folder:
        (facts,) = run_plans([plan], [], sources.build(), Path(folder))
        row: dict[str, Any] = make_row(plan, facts).json
    found = (
        {"latency": row["latency_ns"]["p50"]}
        if plan.latency
        else {name: row[name] for name in ("gbps", "mmsg_s")}
    )
    kept.parent.mkdir(parents=True, exist_ok=True)
    temporary = kept.with_suffix(f".{platform.node()}.tmp")
    temporary.write_text(json.dumps(found))
    temporary.replace(kept)
    return found
