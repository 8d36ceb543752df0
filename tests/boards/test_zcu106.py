"""The ZCU106's files: names in script and constraints, ports of blocks, pulses of interrupts.

No tool of the vendor is needed: ``vivado.tcl`` has stand-ins for its commands, and lint reads the
top with empty modules in place of the vendor's blocks and of the core.
"""

import csv
import os
import re
import shutil
import subprocess

import pytest
from amaranth.sim import Simulator
from click.testing import CliRunner

from boards.zcu106.blocks import FRAME_FIFO, MAC, PROCESSOR
from boards.zcu106.platform import Zcu106Platform
from boards.zcu106.top import CORE, PARAMETERS, PulseStretcher
from hdl.axi_nic import AxiNic
from sim.rtl import env, runner
from sim.rtl.build import WAIVERS
from sim.rtl.verilog import Rtl, module_ports, verilog
from sim.tools.build.command import build, write_shell

HERE = env.REPO / "tests" / "boards"
BLOCKS = (CORE, PROCESSOR, MAC, FRAME_FIFO)
needs_tclsh = pytest.mark.skipif(shutil.which("tclsh") is None, reason="tclsh is not installed")


@pytest.fixture(scope="module")
def files():
    return write_shell()


def registers(text):
    """Paths of all registers, as Vivado names them: instances, then the register and _reg."""
    modules = {
        found[1].strip("\\ "): found[0]
        for found in re.finditer(r"^module (\S+) ?\(.*?^endmodule", text, re.M | re.S)
    }

    def below(module, place):
        body = modules[module]
        for name in re.findall(r"^  reg (?:\[\d+:\d+\] )?(\w+)", body, re.M):
            yield f"{place}{name}_reg[0]"
        for kind, name in re.findall(r"^  (\\?[\w.]+) +(\w+) \($", body, re.M):
            if kind.strip("\\") in modules:
                yield from below(kind.strip("\\"), f"{place}{name}/")

    return list(below("zcu106", "/"))


def run(files, folder):
    """Write the files and run the script with the stand-ins; returns what tclsh says."""
    for name, text in files.items():
        (folder / name).write_text(text)
    with (env.REPO / "boards/zcu106/pins.csv").open() as table:
        balls = {row["ball"]: row["function"] for row in csv.DictReader(table)}
    top = files.get("zcu106.sv", "")
    facts = [
        f"set part {Zcu106Platform.device}-{Zcu106Platform.package}-{Zcu106Platform.speed}",
        f"set ports {{{' '.join(module_ports(top, 'zcu106')) if top else ''}}}",
        f"set modules {{{' '.join(re.findall(r'^module ([a-z0-9]+) ?[(]', top, re.M))}}}",
        "array set ball {" + " ".join(f"{ball} {{{use}}}" for ball, use in balls.items()) + "}",
        "set cells {" + " ".join(f"{{{cell}}}" for cell in (registers(top) if top else ())) + "}",
    ]
    (folder / "facts.tcl").write_text("\n".join(facts))
    command = ["tclsh", str(HERE / "vivado.tcl"), "facts.tcl", "build.tcl"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@needs_tclsh
def test_script_names_what_is_there(files, tmp_path):
    done = run(files, tmp_path)
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
    ("zcu106.xdc", "IOSTANDARD", "IOSTANDART", "no property IOSTANDART"),
    ("build.tcl", "here zcu106.sv", "here zcu107.sv", "no file"),
    ("build.tcl", "xczu7ev", "xczu9eg", "part xczu9eg"),
    ("build.tcl", "ps/pl_clk1]", "ps/pl_clock]", "no pin of ps pl_clock"),
    ("build.tcl", "ps/S_AXI_HP0_FPD", "ps/S_AXI_HP9_FPD", "no bus of ps S_AXI_HP9_FPD"),
    ("build.tcl", "[get_bd_ports irq]", "[get_bd_ports iqr]", "no port of the block design iqr"),
    ("build.tcl", "CONFIG.LANE1_GT_LOC", "CONFIG.LANE_LOC", "no property of xxv_ethernet LANE_LOC"),
    ("build.tcl", "[get_ips mac]", "[get_ips mack]", "no IP mack"),
    ("build.tcl", "top zcu106", "top zcu107", "no module zcu107"),
]


@needs_tclsh
@pytest.mark.parametrize("file,right,broken,said", BROKEN)
def test_what_is_broken_is_found(files, tmp_path, file, right, broken, said):
    assert right in files[file]
    done = run(files | {file: files[file].replace(right, broken, 1)}, tmp_path)
    assert done.returncode == 1 and f"WRONG: {said}" in done.stderr, done.stderr


@needs_tclsh
@pytest.mark.parametrize("missing", ["zcu106.sv", "zcu106.xdc"])
def test_a_missing_file_is_found(files, tmp_path, missing):
    done = run({name: text for name, text in files.items() if name != missing}, tmp_path)
    assert done.returncode == 1 and "WRONG: no file" in done.stderr


def lint(folder, text, blocks):
    """Lint the top with stubs of ``blocks``; returns what Verilator says."""
    off = "".join(f"/* verilator lint_off {rule} */\n" for rule in WAIVERS)
    stubs = "/* verilator lint_off UNDRIVEN */\n" + "".join(block.stub() for block in blocks)
    (folder / "top.sv").write_text(off + "/* verilator lint_off SYNCASYNCNET */\n" + text)
    (folder / "stubs.sv").write_text(off + stubs)
    with runner.wheel(env.work_root()) as tools:
        command = [*env.verilator_command(tools.verilator), "--lint-only", *runner.LINT]
        command += ["-Wwarn-WIDTH", "--top-module", "zcu106", "top.sv", "stubs.sv"]
        environment = {**os.environ, **env.make_environment(tools.verilator)}
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )


def test_lint_with_stubs(files, tmp_path):
    done = lint(tmp_path, files["zcu106.sv"], BLOCKS)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_lint_finds_a_missing_port(files, tmp_path, block):
    port = list(block.ports)[-1]
    less = type(block)(block.name, {n: p for n, p in block.ports.items() if n != port}, "")
    done = lint(tmp_path, files["zcu106.sv"], [less if one is block else one for one in BLOCKS])
    assert done.returncode and f"'{port}'" in done.stderr, done.stderr


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
    done = lint(tmp_path, text, [PROCESSOR, MAC, FRAME_FIFO])
    assert done.returncode == 0, done.stderr[-3000:]
    done = run({path.name: path.read_text() for path in tmp_path.glob("[zb]*.*")}, tmp_path)
    assert done.returncode == 0, done.stderr
