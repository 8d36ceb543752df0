"""A run of ``perf``, inside the simulation: ``sim.measure.perf.command`` starts it.

Its job: ``plan``, and ``folder`` for captures; it keeps ``found``, an entry for each size.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cocotb

from sim.bench.job import Job
from sim.bench.system import System
from sim.guest.driver.device import DriverOptions
from sim.measure.perf.bandwidth import bandwidth
from sim.measure.perf.latency import latency
from sim.measure.perf.plan import MEMORY, Plan
from sim.measure.perf.traffic import Ends

#: A limit for the whole run, in cycles, behind that for each completion.
DEADLINE_CYCLES = 10**9
#: How often the firmware looks, ns: when a bring-up ends decides the phases of what follows, and by
#: them rows of small messages differ by some percent (docs/perf.md).
POLL_NS = 500


@cocotb.test()
async def measure(dut: Any) -> None:
    """Every size of the plan, one after the other on the same QPs."""
    job = Job()
    plan = Plan.from_json(job.spec["plan"])
    system = await System.start(
        dut,
        plan.config,
        deadline_cycles=DEADLINE_CYCLES,
        memory=MEMORY,
        timer_scale=plan.timer_scale,
        poll_ns=POLL_NS,
        options=DriverOptions(features=plan.features),
    )
    ends = Ends(system, plan)
    await ends.set_up(job.say)
    work = latency if plan.latency else bandwidth
    found = []
    for size in plan.sizes:
        job.say(f"{plan.op} of {size} bytes")
        found.append(await work(ends, size, Path(job.spec["folder"]) / f"{size}.pcap"))
        job.keep(found=found)
