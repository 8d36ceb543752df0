"""The demonstration, inside the simulation: ``command`` starts it and shows what it found.

It is asked for ``config`` (fields of ``NicConfig``), ``pcap`` (where to), ``impair`` (the network
between two cards), ``timer_scale``, ``longest`` (bytes of a message) and ``captures`` (list of
files to replay).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import cocotb

from hdl.config import NicConfig
from sim.bench.job import Job
from sim.bench.system import QpOptions, System
from sim.measure.demo import crowd, rows
from sim.measure.demo.rows import OPERATIONS, SERVICES, Row, sizes_of
from sim.measure.demo.scope import Scope, lacking
from sim.models.impairments import Impairments
from sim.models.platform import Wire
from sim.replay.bench import play_run
from sim.replay.plan import Plan

#: Message size in bytes -> messages, for a recording of all signals.
RECORDED = {1: 1, 64: 4, 5000: 2}
#: A simulation of the whole demonstration ends after so many cycles, whatever it waits for: the
#: slowest card takes a tenth of them.
DEADLINE_CYCLES = 200_000_000


class Demo(Job):
    """One run."""

    def __init__(self) -> None:
        super().__init__()
        self.config = NicConfig(**self.spec["config"])
        self.scope = Scope(self.config)
        self.impair = Impairments.parse(self.spec["impair"])
        # Of a QP: 262 us on a bad network, which is longer than anything takes here.
        self.timeout = 6 if self.spec["impair"] else QpOptions.timeout

    async def start(self, dut: Any) -> System:
        """Both cards, up, with as much memory as they have addresses; the firmware has stopped."""
        system = await System.start(
            dut,
            self.config,
            deadline_cycles=DEADLINE_CYCLES,
            timer_scale=self.spec["timer_scale"],
            memory=self.scope.memory,
        )
        system.stop_firmware()
        return system

    async def rows(self, system: System, groups: list[list[Row]]) -> list[dict[str, Any]]:
        """What the table shows of the rows; those of a group have the same queue pairs."""
        return await rows.play(groups, system, self.timeout, self.scope, self.say)


def _operations(sizes: dict[int, int]) -> list[Row]:
    """SEND, WRITE and READ in ``sizes`` (bytes -> messages)."""
    return [
        Row(name, size, opcode, count=count)
        for name, opcode in OPERATIONS.items()
        for size, count in sizes.items()
    ]


@cocotb.test()
async def traffic(dut: Any) -> None:
    """Every operation and size between two cards, compared byte for byte."""
    demo = Demo()
    Wire.capture(demo.spec["pcap"])
    started = time.monotonic()
    system = await demo.start(dut)
    wires, scope = system.testbench.wires, demo.scope
    for wire in wires:
        wire.impair(demo.impair)
    groups = [_operations(sizes_of(scope, demo.spec["longest"]))]
    if not demo.spec["impair"]:  # UC and UD do not send again what is lost
        groups += [[row] for row in SERVICES if not row.lacks(scope)]
    demo.keep(rows=await demo.rows(system, groups), rows_left_out=rows.left_out(scope))
    demo.keep(many=await crowd.play(system, demo.timeout, scope, demo.say))
    Wire.end_capture()
    demo.keep(
        frames=sum(wire.outward.frames for wire in wires),
        lost=sum(wire.outward.gone for wire in wires),
    )
    cycles = system.nodes[0].host.now() * demo.config.clock_hz // 10**9
    skipped = system.testbench.clock.skipped
    demo.keep(cycles=cycles, skipped=skipped, seconds=time.monotonic() - started)


@cocotb.test()
async def recording(dut: Any) -> None:
    """A little of everything, short enough to be recorded with all its signals."""
    demo = Demo()
    system = await demo.start(dut)
    await demo.rows(system, [_operations(RECORDED)])


@cocotb.test()
async def replays(dut: Any) -> None:
    """Recorded Linux traffic into one card, from either side."""
    demo = Demo()
    reports, nothing = [], []
    why = lacking(demo.config)
    for path in [] if why else map(Path, demo.spec["captures"]):
        plan = Plan(path)
        runs = {letter: plan.runs(letter, demo.scope.card)[0] for letter in "AB"}
        if not any(runs.values()):
            nothing.append(path.name)
        for letter in "AB":
            for run in runs[letter]:
                demo.say(f"replaying {path.name} as side {letter}")
                report = await play_run(dut, demo.config, path.name, run)
                reports.append(report.facts())
    demo.keep(replays=reports, left_out=nothing, replays_left_out=why)
