"""The ZCU106's files: names in script and constraints, ports of blocks, pulses of interrupts."""

import re

import pytest
from amaranth.sim import Simulator
from click.testing import CliRunner

from boards.zcu106.blocks import FRAME_FIFO, MAC, PROCESSOR
from boards.zcu106.top import CORE, PARAMETERS, PulseStretcher
from hdl.axi_nic import AxiNic
from sim.rtl.verilog import Rtl, module_ports, verilog
from sim.tools.build.command import build
from sim.tools.build.vivado import BOARDS, write_shell
from tests.boards.vivado import Bench, needs_tclsh

BLOCKS = (CORE, PROCESSOR, MAC, FRAME_FIFO)
USES = {
    **{f"sfp_{way}_{pole}": f"MGTH{way.upper()}{pole.upper()}2_225"
       for way in ("rx", "tx") for pole in "pn"},
    **{f"mgt_refclk_{pole}": f"MGTREFCLK1{pole.upper()}_226" for pole in "pn"},
    "*": "IO LVCMOS12",
}  # fmt: skip
BENCH = Bench(BOARDS["zcu106"], USES, BLOCKS)


@pytest.fixture(scope="module")
def files():
    return write_shell(BENCH.board)


@needs_tclsh
def test_script_names_what_is_there(files, tmp_path):
    done = BENCH.script(files, tmp_path)
    assert done.returncode == 0 and not done.stderr, done.stderr
    said = set(done.stdout.splitlines())
    for name, (way, width) in PROCESSOR.ports.items():
        bus = name.partition("_")[0]
        if bus in ("memory", "registers"):
            assert f"bus {bus} {'Slave' if bus == 'memory' else 'Master'}" in said
        else:
            assert f"port {name} {way.upper()} {width}" in said
    assert {"made processor.bd", "made mac.xci", "made frame_fifo.xci"} <= said


BROKEN = [
    ("zcu106.xdc", "PACKAGE_PIN AA2 ", "PACKAGE_PIN AA99 ", "no ball AA99"),
    ("zcu106.xdc", "PACKAGE_PIN AA2 ", "PACKAGE_PIN W2 ", "ball W2 is MGTHRXP3_225"),
    ("zcu106.xdc", "PACKAGE_PIN AE22 ", "PACKAGE_PIN AL11 ", "ball AL11 twice"),
    ("zcu106.xdc", "[get_ports sfp_tx_p]", "[get_ports sfp_tx]", "no port sfp_tx"),
    ("zcu106.xdc", "runs_sync", "rans_sync", "no pin"),
    ("zcu106.xdc", "IOSTANDARD", "IOSTANDART", "no property of pin IOSTANDART"),
    ("build.tcl", "here zcu106.sv", "here zcu107.sv", "no file"),
    ("build.tcl", "xczu7ev", "xczu9eg", "part xczu9eg"),
    ("build.tcl", "ps/pl_clk1]", "ps/pl_clock]", "no pin of ps pl_clock"),
    ("build.tcl", "ps/S_AXI_HP0_FPD", "ps/S_AXI_HP9_FPD", "no bus of ps S_AXI_HP9_FPD"),
    ("build.tcl", "[get_bd_ports irq]", "[get_bd_ports iqr]", "no port of the block design iqr"),
    ("build.tcl", "CONFIG.LANE1_GT_LOC", "CONFIG.LANE_LOC", "no property of xxv_ethernet LANE_LOC"),
    ("build.tcl", "[get_ips mac]", "[get_ips mack]", "no IP mack"),
    ("build.tcl", "CONFIG.LINE_RATE {10}", "CONFIG.LINE_RATE {100}", "LINE_RATE of xxv_ethernet"),
    ("build.tcl", "top zcu106", "top zcu107", "no module zcu107"),
]


@needs_tclsh
@pytest.mark.parametrize("file,right,broken,said", BROKEN)
def test_what_is_broken_is_found(files, tmp_path, file, right, broken, said):
    assert right in files[file]
    done = BENCH.script(files | {file: files[file].replace(right, broken, 1)}, tmp_path)
    assert done.returncode == 1 and f"WRONG: {said}" in done.stderr, done.stderr


@needs_tclsh
@pytest.mark.parametrize("missing", ["zcu106.sv", "zcu106.xdc"])
def test_a_missing_file_is_found(files, tmp_path, missing):
    done = BENCH.script({name: text for name, text in files.items() if name != missing}, tmp_path)
    assert done.returncode == 1 and "WRONG: no file" in done.stderr


def test_lint_with_stubs(files, tmp_path):
    done = BENCH.lint(tmp_path, files["zcu106.sv"], BLOCKS)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_lint_finds_a_missing_port(files, tmp_path, block):
    assert BENCH.finds_a_missing_port(tmp_path, files["zcu106.sv"], block)


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


@pytest.mark.slow
def test_build(tmp_path):
    """The whole: one file with top and core, whose ports are those that the top expects."""
    result = CliRunner().invoke(build, ["zcu106", "-o", str(tmp_path)])
    assert result.exit_code == 0 and "Unverified:" in result.output, result.output
    assert {path.name for path in tmp_path.iterdir()} == {
        "zcu106.sv", "zcu106.xdc", "build.tcl", "manifest.json"}  # fmt: skip
    text = (tmp_path / "zcu106.sv").read_text()
    assert text.count("\nmodule rocinante (") == 1
    core = module_ports(verilog(Rtl(AxiNic, PARAMETERS, name="rocinante_core")).read_text(),
                        "rocinante_core")  # fmt: skip
    assert {name.replace("__", "_"): (way[0], width) for name, (way, width) in core.items()} == {
        name: tuple(port) for name, port in CORE.ports.items()
    }
    done = BENCH.lint(tmp_path, text, [PROCESSOR, MAC, FRAME_FIFO])
    assert done.returncode == 0, done.stderr[-3000:]
    done = BENCH.script(
        {path.name: path.read_text() for path in tmp_path.glob("[zb]*.*")}, tmp_path
    )
    assert done.returncode == 0, done.stderr
