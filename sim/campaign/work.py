"""What a worker of a campaign does: builds the model once on its machine, simulates seeds."""

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import WorkerPlugin, get_worker

from sim.bench.job import job_settings
from sim.bench.scenario.draw import draw
from sim.campaign.store import Result
from sim.rtl import env
from sim.rtl.build import BuiltModel, Call, CaseResult, ModelSources, attempt
from sim.rtl.verilog import digest

__all__ = ["Batch", "Shipment", "code", "simulate", "simulate_batch", "version"]

BENCH = "sim.campaign.bench"
#: Real time for a simulation to begin, and for each of its seeds, s. Simulated time ends sooner.
BEGIN_S, SEED_S = 60, 300
#: Characters of a failure, or of a log, that are kept.
KEPT = 20_000


def code() -> str:
    """Return a hash of the Python files that a worker runs: they must be those of the client."""
    paths = (
        path
        for part in ("hdl", "firmware", "sim")
        for path in (env.REPO / part).rglob("*.py")
        if env.CHECKOUT or env.FILES not in path.parents
    )
    named = sorted((path.relative_to(env.REPO).as_posix(), path.read_bytes()) for path in paths)
    return digest(*(part for pair in named for part in pair))


def version(sources: ModelSources, impair: str = "") -> str:
    """Return a hash of all that a result depends on but its seed."""
    return digest(sources.key, code(), *([impair] if impair else []))


class Shipment(WorkerPlugin):
    """Brings a model's sources to each worker, to those that join later too."""

    def __init__(self, sources: ModelSources):
        self.sources = sources
        self.name = f"rocinante-model-{sources.key}"


@dataclass(frozen=True)
class Batch:
    """Seeds for one simulation. ``model``: the name of the ``Shipment``; ``code``: see there;
    ``impair``: see ``draw``."""

    name: str
    seeds: tuple[int, ...]
    model: str
    code: str
    version: str
    impair: str = ""


def simulate_batch(batch: Batch) -> list[Result]:
    """Run a batch on this worker, whose machine builds the model if no other worker there has.

    Raises RuntimeError when the worker runs other code than the client, BuildError, ToolError.
    """
    if code() != batch.code:
        raise RuntimeError(f"{platform.node()}: {env.REPO} is not the same version as the client's")
    shipment = get_worker().plugins[batch.model]
    assert isinstance(shipment, Shipment)
    model = shipment.sources.build()
    return simulate(model, batch.name, batch.seeds, batch.version, impair=batch.impair)


def simulate(
    model: BuiltModel,
    name: str,
    seeds: Sequence[int],
    version: str,
    keep: Path | None = None,
    impair: str = "",
) -> list[Result]:
    """Run seeds in one simulation. Seeds that it did not come to are run again, each alone.

    impair: see ``draw``.
    keep: a folder for the waves, if the model records them, and the packets of the only seed.
    """
    problem, cases = _attempt(model, {"name": name, "seeds": list(seeds), "impair": impair}, keep)
    found = {
        int(match[1]): case for case in cases if (match := re.search(r"seed=(\d+)", case.name))
    }
    results: list[Result] = []
    for seed in seeds:
        case = found.get(seed)
        if case is None and len(seeds) > 1:
            results += simulate(model, name, [seed], version, impair=impair)
            continue
        if case is None:
            case = CaseResult(name="", passed=False, sim_ns=0, wall_s=0, message=problem)
        results.append(
            Result(
                name=name,
                seed=seed,
                version=version,
                outcome="passed" if case.passed else "failed",
                failure=case.message[:KEPT],
                simulated_ns=case.sim_ns,
                wall_seconds=case.wall_s,
                host=platform.node(),
                scenario=draw(name, seed, impair).text(),
            )
        )
    return results


def _attempt(
    model: BuiltModel, spec: dict[str, Any], keep: Path | None
) -> tuple[str, tuple[CaseResult, ...]]:
    """Run one simulation; returns what was wrong with it as a whole, and its cases.

    spec: ``name``, ``seeds``, ``impair``.
    """
    name, seeds = spec["name"], spec["seeds"]
    with tempfile.TemporaryDirectory(prefix="rocinante-campaign-") as temporary:
        folder = Path(temporary)
        spec = {**spec, "owner": os.getpid()}
        if keep is not None:
            spec["capture"] = str((keep / f"{name}-{seeds[0]}.pcap").resolve())
        call = Call(
            test_module=BENCH,
            testcase=None,
            extra_env=job_settings(folder, spec),
            waves=model.waves,
            seed=1,
            timeout_s=BEGIN_S + SEED_S * len(seeds),
            plusargs=tuple(os.environ.get("ROCINANTE_PLUSARGS", "").split()),
        )
        tried = attempt(model, call, folder)
        waves = folder / "dump.fst"  # not there if the simulation did not begin
        if keep is not None and waves.exists():
            shutil.move(waves, keep / f"{name}-{seeds[0]}.fst")
        problem = tried.problem
        if problem:
            log = (folder / "sim.log").read_text(errors="replace")
            problem = f"{problem}\n{log[-KEPT // 2 :]}"
        return problem, tried.cases
