"""The replay, inside the simulation: ``sim.replay.command`` starts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cocotb

from hdl.config import NicConfig
from sim.bench.job import Job
from sim.bench.testbench import Testbench
from sim.replay.compare import Report
from sim.replay.facts import Facts
from sim.replay.plan import Plan, Run
from sim.replay.play import memory_of, play
from sim.replay.waits import Waits

__all__ = ["play_run"]

#: Cycles after which a replay counts as stuck whatever it waits for: fixed, and for each packet.
CYCLES, CYCLES_EACH = 3_000_000, 100_000


async def play_run(
    dut: Any, config: NicConfig, name: str, run: Run, facts: Facts | None = None
) -> Report:
    """Reset the card and play one run on it."""
    facts = facts or Facts()
    memory = memory_of(run, facts)
    testbench = Testbench(dut, config=config, connect=False, memory=memory, jump=True, cards=1)
    await testbench.start()
    packets = sum(len(place.connection.packets) for place in run.places)
    waits = int(Waits(run, config).all_ns * 1000 / testbench.period_ps)
    deadline = testbench.deadline(CYCLES + CYCLES_EACH * packets + waits)
    report = await play(testbench, name, run, facts)
    deadline.cancel()
    testbench.stop()
    return report


@cocotb.test()
async def replay(dut: Any) -> None:
    """All runs of a capture."""
    job = Job()
    facts = Facts.load(job.spec["facts"]) if job.spec["facts"] else Facts()
    plan = Plan(job.spec["trace"], facts, lambda at, of: job.say(f"reading, {100 * at // of} %"))
    config = plan.config(job.spec["width"])
    reports = []
    for letter in job.spec["sides"]:
        runs, _ = plan.runs(letter, config)
        for run in runs:
            job.say(f"side {letter}, {run.places[0].end.address}")
            name = Path(job.spec["trace"]).name
            reports.append((await play_run(dut, config, name, run, facts)).facts())
    job.keep(replays=reports)
