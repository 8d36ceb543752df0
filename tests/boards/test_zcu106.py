"""The ZCU106's own: ports of the block design, pulses of interrupts."""

import re

import pytest
from amaranth.sim import Simulator

from boards.zcu106.blocks import PROCESSOR
from boards.zcu106.top import PulseStretcher
from sim.make.boards.vendor import write_shell
from tests.boards.bench import needs_tclsh
from tests.boards.cases import CASES


@needs_tclsh
def test_ports_of_the_block_design(tmp_path):
    bench = CASES["zcu106"].bench
    said = set(bench.script(write_shell(bench.board), tmp_path).stdout.splitlines())
    for name, (way, width) in PROCESSOR.ports.items():
        bus = name.partition("_")[0]
        if bus in ("memory", "registers"):
            assert f"bus {bus} {'Slave' if bus == 'memory' else 'Master'}" in said
        else:
            assert f"port {name} {way.upper()} {width}" in said


@pytest.mark.parametrize("gaps", [(3,), (1, 2, 40), (5, 5, 5, 5, 5, 5, 5, 100, 1)])
def test_each_pulse_is_followed_by_an_edge(gaps):
    dut, edges, pulses, highs = PulseStretcher(width=2, cycles=4), [], [], []

    async def bench(ctx):
        times, now, before = set(), 1, 0
        for gap in gaps:
            now += gap
            times.add(now)
        for cycle in range(now + 40):
            ctx.set(dut.i, 2 if cycle in times else 0)
            value = ctx.get(dut.o)
            assert not value & 1
            highs.append(value >> 1)
            if value and not before:
                edges.append(cycle)
            before = value
            await ctx.tick()
        pulses.extend(sorted(times))

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert all(any(edge > pulse for edge in edges) for pulse in pulses)
    assert len(edges) <= len(pulses) and not highs[-1]
    runs = re.findall("1+|0+", "".join(map(str, highs)))
    assert all(len(one) >= 4 for one in runs[1:])
