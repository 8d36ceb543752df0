"""The U55C's files: names and values in script and constraints, ports of blocks, the whole."""

import csv
import json

import pytest
from click.testing import CliRunner

from boards.u55c.blocks import (
    BUFG,
    CMAC,
    CMAC_TIES,
    GT_BUFFER,
    IN_BUFFER,
    PCIE,
    PCIE_TIES,
    PROBES,
)
from boards.u55c.script import IPS, pcie_properties
from boards.u55c.top import CONFIG, CORE, PARAMETERS, U55cTop
from boards.vivado import port_balls
from hdl.common.constraints import PathKind, clock_paths
from hdl.config import NicConfig
from hdl.pcie_nic import PcieNic
from sim.rtl import env
from sim.rtl.verilog import Rtl, module_ports, verilog
from sim.tools.build.command import build
from sim.tools.build.vivado import BOARDS, write_shell
from tests.boards.vivado import Bench, needs_tclsh
from tests.common.clock_lint import crossings

MADE = (PCIE, CMAC, PROBES)
BUFFERS = (GT_BUFFER, IN_BUFFER, BUFG)
BLOCKS = (CORE, *MADE, *BUFFERS)
#: Lane n of PCI Express begins at the top of quad 227, lane n of the cage is channel n of quad 130.
USES = {
    **{f"pcie_{way}_{pole}\\[{n}\\]": f"MGTY{way}{pole}{3 - n % 4}_{227 - n // 4}".upper()
       for way in ("rx", "tx") for pole in "pn" for n in range(16)},
    **{f"qsfp_{way}_{pole}\\[{n}\\]": f"MGTY{way}{pole}{n}_130".upper()
       for way in ("rx", "tx") for pole in "pn" for n in range(4)},
    **{f"pcie_refclk_{pole}": f"MGTREFCLK0{pole.upper()}_225" for pole in "pn"},
    **{f"qsfp_refclk_{pole}": f"MGTREFCLK0{pole.upper()}_130" for pole in "pn"},
    **{f"sysclk_{pole}": f"SYSCLK3_{pole.upper()} LVDS" for pole in "pn"},
    "pcie_perst_n": "PERST LVCMOS18",
    "hbm_cattrip": "HBM_CATTRIP LVCMOS18",
    "led_running": "QSFP0_ACTIVITY_LED LVCMOS18",
    "led_link": "QSFP0_LINK_LEDG LVCMOS18",
    "led_no_link": "QSFP0_LINK_LEDY LVCMOS18",
}  # fmt: skip
BENCH = Bench(BOARDS["u55c"], USES, BLOCKS)


@pytest.fixture(scope="module")
def files():
    return write_shell(BENCH.board)


@needs_tclsh
def test_script_names_what_is_there(files, tmp_path):
    done = BENCH.script(files, tmp_path)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert {f"made {block.name}.xci" for block in MADE} == set(done.stdout.splitlines())


BROKEN = [
    ("u55c.xdc", "PACKAGE_PIN AL2 ", "PACKAGE_PIN AL99 ", "no ball AL99"),
    ("u55c.xdc", "PACKAGE_PIN AL2 ", "PACKAGE_PIN AM4 ", "ball AM4 is MGTYRXP2_227"),
    ("u55c.xdc", "PACKAGE_PIN AD51 ", "PACKAGE_PIN AA53 ", "ball AA53 is MGTYRXP0_131"),
    ("u55c.xdc", "PACKAGE_PIN AR15 ", "PACKAGE_PIN AP13 ", "ball AP13 is MGTREFCLK1P_225"),
    ("u55c.xdc", "PACKAGE_PIN BL13 ", "PACKAGE_PIN BK11 ", "ball BK11 is QSFP0_LINK_LEDG"),
    ("u55c.xdc", "{pcie_rx_p[15]}", "{pcie_rx_p[16]}", "no port pcie_rx_p[16]"),
    ("u55c.xdc", "[get_ports hbm_cattrip]", "[get_ports hbm_trip]", "no port hbm_trip"),
    ("u55c.xdc", "LVCMOS18", "LVCMOS81", "IOSTANDARD of pin cannot be LVCMOS81"),
    (
        "u55c.xdc",
        "SPI_BUSWIDTH 4",
        "SPI_BUSWIDTH 5",
        "BITSTREAM.CONFIG.SPI_BUSWIDTH of design cannot",
    ),
    ("u55c.xdc", "UNUSEDPIN", "UNUSEDPINS", "no property of design BITSTREAM.CONFIG.UNUSEDPINS"),
    ("u55c.xdc", "from_mac/fifo/produce_w_gry", "from_mac/fifo/produce_w_gray", "no cell"),
    ("u55c.xdc", "tx_drop_count/gray", "tx_drop_count/grey", "no cell"),
    ("u55c.xdc", "runs_mac", "rans_mac", "no pin"),
    ("build.tcl", "here u55c.sv", "here u50.sv", "no file"),
    ("build.tcl", "xcu55c", "xcu55n", "part xcu55n"),
    ("build.tcl", "-name cmac_usplus", "-name cmac_us", "no IP cmac_us"),
    ("build.tcl", "[get_ips pcie]", "[get_ips pci]", "no IP pci"),
    ("build.tcl", "axisten_if_width", "axisten_width", "no property of pcie4c_uscale_plus"),
    ("build.tcl", "{8.0_GT/s}", "{8_GT/s}", "PL_LINK_CAP_MAX_LINK_SPEED of pcie4c_uscale_plus"),
    ("build.tcl", "{X0Y24~X0Y27}", "{X0Y28~X0Y31}", "GT_GROUP_SELECT of cmac_usplus cannot be"),
    ("build.tcl", "PF1_MSIX_CAP_TABLE_BIR {BAR_0}", "PF1_MSIX_CAP_TABLE_BIR {0}", "PF1_MSIX_CAP"),
    ("build.tcl", "C_PROBE_IN9_WIDTH", "C_PROBE_IN10_WIDTH", "no property of vio"),
    ("build.tcl", "top u55c", "top u50", "no module u50"),
    ("build.tcl", "-delay_type", "-delay", "-delay_type is missing"),
]


@needs_tclsh
@pytest.mark.parametrize("file,right,broken,said", BROKEN)
def test_what_is_broken_is_found(files, tmp_path, file, right, broken, said):
    assert right in files[file]
    done = BENCH.script(files | {file: files[file].replace(right, broken, 1)}, tmp_path)
    assert done.returncode == 1 and f"WRONG: {said}" in done.stderr, done.stderr


@needs_tclsh
@pytest.mark.parametrize("missing", ["u55c.sv", "u55c.xdc"])
def test_a_missing_file_is_found(files, tmp_path, missing):
    done = BENCH.script({n: text for n, text in files.items() if n != missing}, tmp_path)
    assert done.returncode == 1 and "WRONG: no file" in done.stderr


@needs_tclsh
@pytest.mark.parametrize(
    "fact,said",
    [
        ("set slack -0.01", "Timing is not met (max): slack -0.01 ns"),
        ("set progress 35%", "synth_1 has failed"),
    ],
)
def test_a_run_that_fails_ends_the_script(files, tmp_path, fact, said):
    done = BENCH.script(files, tmp_path, [fact])
    assert done.returncode == 2 and f"ENDS: {said}" in done.stderr, done.stderr


def test_each_ball_of_a_port_is_known_from_two_sources():
    with (env.REPO / "boards/u55c/pins.csv").open() as table:
        known = {row["ball"]: row["source"].split() for row in csv.DictReader(table)}
    balls = port_balls(BENCH.board.platform())
    assert len(balls) == len(set(balls.values())) == 4 * 16 + 4 * 4 + 2 * 3 + 5
    assert all(len(known[ball]) == 2 for ball in balls.values())


def test_every_path_between_clocks_is_constrained():
    """The netlist's paths are those that get a constraint; what the blocks do inside is theirs."""
    named = {
        (path.kind is PathKind.RESET, path.launch * (path.kind is not PathKind.RESET), path.capture)
        for path in clock_paths(U55cTop())
    }
    found = set()
    for path in crossings(U55cTop(), inputs={}):
        capture = path.capture.rstrip("0123456789") if path.reset else path.capture
        found.add((path.reset, "" if path.reset else path.launch, capture))
    # The requests for reset come from a block and from a pin, which have no clock here.
    runs = {(True, "", f"resets.runs_{name}.stage") for name in ("sync", "mac")}
    runs |= {(True, "", f"start.{phase}_init.stage") for phase in ("runs", "release")}
    assert found == named - runs


def test_the_functions_are_those_of_the_card():
    """What the block shows of each function is what docs/pcie.md says."""
    said = pcie_properties(NicConfig(qps=16, functions=2))
    assert said["TL_PF_ENABLE_REG"] == 4
    for function, ids in {0: "1AF4:1041", 1: "1AF4:106A", 2: "1AF4:106A", 3: "1234:524F"}.items():
        vendor = said["vendor_id" if not function else f"pf{function}_vendor_id"]
        assert f"{vendor}:{said[f'PF{function}_DEVICE_ID']}" == ids
    assert said["pf1_msix_enabled"] == said["pf2_msix_enabled"] == "true"
    assert said["pf3_msix_enabled"] == "false"
    sizes = {name: said[f"{name}_size"] for name in ("pf1_bar0", "pf1_bar2", "pf3_bar0")}
    assert sizes == {"pf1_bar0": 64, "pf1_bar2": 4, "pf3_bar0": 1}
    assert (said["PF1_MSIX_CAP_TABLE_OFFSET"], said["PF1_MSIX_CAP_PBA_OFFSET"]) == (
        "00008000", "00004000")  # fmt: skip
    assert int(said["PF1_MSIX_CAP_TABLE_SIZE"], 16) + 1 == CONFIG.vectors


def test_each_block_of_the_vendor_is_made():
    assert {ip.module for ip in IPS} == {block.name for block in MADE}
    for block, ties in ((PCIE, PCIE_TIES), (CMAC, CMAC_TIES)):
        assert all(block.ports[name] == ("i", width) for name, (_, width) in ties.items())


def test_lint_with_stubs(files, tmp_path):
    done = BENCH.lint(tmp_path, files["u55c.sv"], BLOCKS)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_lint_finds_a_missing_port(files, tmp_path, block):
    assert BENCH.finds_a_missing_port(tmp_path, files["u55c.sv"], block)


def assert_figures_fit(resources):
    """The recorded figures of the pieces together are less than the part has."""
    recorded = [figures for figures in resources["pieces"].values() if figures]
    assert recorded and set(resources["pieces"]) == {"nic", "pcie_host", "cmac_crossing"}
    for kind, most in resources["part"].items():
        assert sum(figures[kind] for figures in recorded) < most, kind


def test_figures_of_the_manifest():
    assert_figures_fit(BENCH.board.use())


@pytest.mark.slow  # the core of 512 bits is generated and read
def test_build(tmp_path):
    """The whole: one file with top and core, whose ports are those that the top expects."""
    result = CliRunner().invoke(build, ["u55c", "-o", str(tmp_path)])
    assert result.exit_code == 0 and "Unverified:" in result.output, result.output
    assert {path.name for path in tmp_path.iterdir()} == {
        "u55c.sv", "u55c.xdc", "build.tcl", "manifest.json"}  # fmt: skip
    text = (tmp_path / "u55c.sv").read_text()
    assert text.count("\nmodule rocinante(") + text.count("\nmodule rocinante (") == 1
    core = module_ports(verilog(Rtl(PcieNic, PARAMETERS, name="rocinante")).read_text(),
                        "rocinante")  # fmt: skip
    assert {name: (way[0], width) for name, (way, width) in core.items()} == {
        name: tuple(port) for name, port in CORE.ports.items()
    }
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["part"] == "xcu55c-fsvh2892-2L-e"
    assert_figures_fit(manifest["resources"])
    done = BENCH.lint(tmp_path, text, [*MADE, *BUFFERS])
    assert done.returncode == 0, done.stderr[-3000:]
    done = BENCH.script({path.name: path.read_text() for path in tmp_path.glob("[ub]*.*")},
                        tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
