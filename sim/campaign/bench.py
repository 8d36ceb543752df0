"""The simulation of a campaign: each seed of the job is a cocotb test of its own."""

from __future__ import annotations

import os
import shutil
from typing import Any

import cocotb

from sim.bench.job import Job
from sim.bench.scenario.draw import draw
from sim.bench.scenario.play import play
from sim.models.platform import Wire

JOB = Job()


@cocotb.test()
@cocotb.parametrize(seed=JOB.spec["seeds"])
async def scenario(dut: Any, seed: int) -> None:
    """One scenario on two cards that have just been reset."""
    _give_up_alone()
    if capture := JOB.spec.get("capture"):
        Wire.capture(capture)
    try:
        await play(dut, draw(JOB.spec["name"], seed, JOB.spec["impair"]))
    finally:
        Wire.end_capture()
        _give_up_alone()


def _give_up_alone() -> None:
    """End here if the process that began this has been killed: another one does its seeds."""
    try:
        os.kill(JOB.spec["owner"], 0)
    except ProcessLookupError:
        shutil.rmtree(JOB.folder, ignore_errors=True)
        os._exit(1)
