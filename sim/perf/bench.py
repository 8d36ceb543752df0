"""A run of ``perf``, inside the simulation: ``sim.perf.command`` starts it and shows the figures.

ROCINANTE_PERF names a JSON file: ``plan``, ``folder`` (for captures), ``result`` and ``progress``
(files to write).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import cocotb

from sim.perf.bandwidth import bandwidth
from sim.perf.latency import latency
from sim.perf.plan import MEMORY, Plan
from sim.perf.traffic import Ends
from sim.system import System

#: A limit for the whole run, in cycles, behind that for each completion.
DEADLINE_CYCLES = 10**9


@cocotb.test()
async def measure(dut: Any) -> None:
    """Every size of the plan, one after the other on the same QPs."""
    spec = json.loads(Path(os.environ["ROCINANTE_PERF"]).read_text())
    plan = Plan.from_json(spec["plan"])

    def say(text: str) -> None:
        with open(spec["progress"], "a") as file:
            file.write(text + "\n")

    system = await System.start(dut, plan.config, deadline_cycles=DEADLINE_CYCLES, memory=MEMORY)
    ends = Ends(system, plan)
    await ends.set_up(say)
    work = latency if plan.latency else bandwidth
    found = []
    for size in plan.sizes:
        say(f"{plan.op} of {size} bytes")
        found.append(await work(ends, size, Path(spec["folder"]) / f"{size}.pcap"))
        Path(spec["result"]).write_text(json.dumps(found))
