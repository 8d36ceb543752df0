"""What a run of cocotb tests has left: how each of them ended."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

__all__ = ["Attempt", "CaseResult", "read_cases"]


@dataclass(frozen=True)
class CaseResult:
    """One cocotb test: simulated time in ns, real time in s, failure text (empty if passed)."""

    name: str
    passed: bool
    sim_ns: float
    wall_s: float
    message: str = ""


@dataclass(frozen=True)
class Attempt:
    """How a run ended. ``problem``: why it came to no proper end (empty: it did)."""

    problem: str
    cases: tuple[CaseResult, ...]

    @property
    def passed(self) -> bool:
        """Whether all was well."""
        return not self.problem and all(one.passed for one in self.cases)


def read_cases(results: Path) -> tuple[CaseResult, ...]:
    """Read cocotb's result file; empty when the simulation ended without one."""
    if not results.exists():
        return ()
    cases = []
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        if case.find("skipped") is not None:
            continue
        trouble = [found for tag in ("failure", "error") for found in case.findall(tag)]
        message = "; ".join(
            " ".join(
                filter(None, (one.get("error_type"), one.get("error_msg"), one.get("message")))
            )
            for one in trouble
        )
        properties = {one.get("name"): one.get("value") for one in case.iter("property")}
        cases.append(
            CaseResult(
                name=case.get("name", "?"),
                passed=not trouble,
                sim_ns=float(properties.get("sim_time_duration") or 0),
                wall_s=float(case.get("time") or 0),
                message=message,
            )
        )
    return tuple(cases)


def report(tried: Attempt, folder: Path, seed: int, label: str) -> str:
    """Say why a run in ``folder`` failed: its cases, the end of its log, how to repeat it."""
    failed = [f"  {one.name}: {one.message}" for one in tried.cases if not one.passed]
    sim_log = folder / "sim.log"
    tail = sim_log.read_text(errors="replace").splitlines()[-40:] if sim_log.exists() else []
    why = tried.problem or f"{len(failed)} of {len(tried.cases)} tests"
    lines = [f"Simulation failed: {why}", *failed, "", f"The end of {sim_log}:", *tail, ""]
    if "::" in label:
        slow = " --slow" if os.environ.get("ROCINANTE_SLOW") == "1" else ""
        lines += [f"Repeat: ./rocinante test{slow} --seed {seed} '{label}'"]
    else:
        lines += [f"Repeat with COCOTB_RANDOM_SEED={seed}"]
    return "\n".join(lines)
