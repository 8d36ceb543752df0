"""A run of ``perf``, inside the simulation: ``sim.measure.perf.command`` starts it.

Its job: ``flows``, the plans; ``reverse``, for each of several flows whether it starts at the other
card, or nothing if there is one plan and its sizes; ``folder`` for captures. It keeps ``found``, an
entry for each flow or size.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cocotb
from cocotb.triggers import gather

from sim.bench.job import Job
from sim.bench.system import System
from sim.guest.driver.device import DriverOptions
from sim.measure.perf.bandwidth import Gate, bandwidth
from sim.measure.perf.latency import latency
from sim.measure.perf.plan import MEMORY, Plan
from sim.measure.perf.traffic import Ends
from sim.models.platform import Wire

#: A limit for the whole run, in cycles, behind that for each completion.
DEADLINE_CYCLES = 10**9
#: What the others leave to a flow may be so much slower than what it has alone.
LEFT = 10
#: How often the firmware looks, ns: when a bring-up ends decides the phases of what follows, and by
#: them rows of small messages differ by some percent (docs/perf.md).
POLL_NS = 500


async def together(
    system: System, flows: list[Plan], reverse: list[bool], folder: Path, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """All flows at once, each on objects of its own; what each one found."""
    sets = [
        Ends(system, one, reverse=back, number=number)
        for number, (one, back) in enumerate(zip(flows, reverse, strict=True))
    ]
    for ends in sets:
        ends.patience_us = LEFT * sum(one.patience_us for one in flows)
        await ends.make(say)
    if not any(ends.plan.dynamic for ends in sets):
        system.stop_firmware()
    for ends in sets:
        ends.begin()
    say(f"{len(flows)} flows together")
    gate = Gate(len(flows))
    Wire.capture(str(folder / "all.pcap"))
    found = await gather(
        *(
            (latency if ends.plan.latency else bandwidth)(ends, ends.plan.sizes[0], None, gate)
            for ends in sets
        )
    )
    Wire.end_capture()
    return list(found)


@cocotb.test()
async def measure(dut: Any) -> None:
    """All flows together, or every size of the one plan, one after the other on the same QPs."""
    job = Job()
    flows = [Plan.from_json(one) for one in job.spec["flows"]]
    plan = flows[0]
    system = await System.start(
        dut,
        plan.config,
        deadline_cycles=DEADLINE_CYCLES,
        memory=MEMORY,
        timer_scale=plan.timer_scale,
        poll_ns=POLL_NS,
        options=DriverOptions(features=plan.features),
    )
    folder = Path(job.spec["folder"])
    if job.spec["reverse"]:
        job.keep(found=await together(system, flows, job.spec["reverse"], folder, job.say))
        return
    ends = Ends(system, plan)
    await ends.set_up(job.say)
    work = latency if plan.latency else bandwidth
    found = []
    for size in plan.sizes:
        job.say(f"{plan.op} of {size} bytes")
        found.append(await work(ends, size, folder / f"{size}.pcap"))
        job.keep(found=found)
