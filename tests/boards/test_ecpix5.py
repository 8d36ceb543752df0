"""The ECPIX-5's files: balls, clocks of the PLL, and a bitstream of its shell."""

import json
import re

import pytest
from click.testing import CliRunner

from boards.ecpix5.card import BAUD, CONFIG
from boards.ecpix5.platform import Ecpix5Platform
from boards.ecpix5.top import MAC_HZ, Ecpix5Top
from sim.make.boards import ecpix5
from sim.make.boards.command import build
from sim.rtl.env import REPO, BuildError
from tests.boards.echo import Echo


@pytest.fixture(scope="module")
def files():
    return ecpix5.shell(Ecpix5Top(Echo()))


def test_each_pin_has_its_ball(files):
    """Of all ports of the top, and none twice."""
    placed = dict(re.findall(r'LOCATE COMP "(\S+)" SITE "(\w+)"', files["ecpix5.lpf"]))
    top = re.search(r"^module ecpix5\((.*?)\);", files["ecpix5.v"], re.M | re.S)
    assert top is not None
    ports = {name.strip().strip("\\") for name in top[1].split(",")}
    assert ports == {re.sub(r"\[\d\]$", "", name) for name in placed}
    assert len(set(placed.values())) == len(placed) == 19
    assert placed["eth_rgmii_0__rx_data__io[3]"] == "A9" and placed["uart_0__tx__io"] == "R24"


def test_files_do_not_tell_where_they_were_made(files):
    """Else nobody gets the same ones, and the tools' results are compared with others' in vain."""
    assert not [name for name, text in files.items() if str(REPO) in text]


def test_the_clocks_are_those_of_the_configuration(files):
    """What the PLL makes of 100 MHz, within the limits of TN1263; TXC is a quarter behind."""
    found = re.search(r"EHXPLLL #\((.*?)\) (?:\S+) \(", files["ecpix5.v"], re.S)
    assert found is not None
    words = dict(re.findall(r"\.(\w+)\((?:\d+'[sd]\w*?)?(\d+|\"\w+\")\)", found[1]))
    values = {name: int(value, 10) for name, value in words.items() if value.isdecimal()}
    hexes = dict(re.findall(r"\.(\w+)\(32'(?:s)?h([0-9a-f]+)\)", found[1]))
    values |= {name: int(value, 16) for name, value in hexes.items()}
    phase = 100e6 / values["CLKI_DIV"]
    vco = phase * values["CLKFB_DIV"] * values["CLKOP_DIV"]
    assert 10e6 <= phase <= 400e6 and 400e6 <= vco <= 800e6
    assert vco / values["CLKOP_DIV"] == vco / values["CLKOS_DIV"] == MAC_HZ
    assert vco / values["CLKOS2_DIV"] == CONFIG.clock_hz
    later = values["CLKOS_CPHASE"] - values["CLKOP_CPHASE"]
    assert later / vco == pytest.approx(1 / MAC_HZ / 4)
    assert CONFIG.clock_hz % BAUD == 0 and 12_000_000 % BAUD == 0
    clocks = dict(
        re.findall(r'FREQUENCY PORT "(\w+?)_0__(?:rx_clk__)?io" (\S+)', files["ecpix5.lpf"])
    )
    assert clocks == {"clk100": "100000000.0", "eth_rgmii": "125000000.0"}
    assert Ecpix5Platform.device == "LFE5UM5G-85F"


def test_parts_are_mapped_by_themselves_and_joined():
    """The parts of the card and of the NIC's boxes, and neither what holds them nor their parts."""
    kept = ["mac", "nic.tables.gids$506", "nic.transport.receive"]
    others = ["nic", "nic.tables", "nic.transport.receive.intake", "mac.store"]
    modules = ["ecpix5", "ecpix5.card", *(f"ecpix5.card.{name}" for name in kept + others)]
    written = ecpix5.scripts("".join(f"module \\{name} (clk);\n" for name in modules))
    first, second = (text.splitlines() for text in written.values())
    names = " ".join(f"=ecpix5.card.{name}" for name in kept)
    assert "flatten" in first[first.index(f"setattr -mod -set keep_hierarchy 1 {names}") :]
    parted = second.index(f"setattr -mod -unset keep_hierarchy {names}")
    mapped = next(n for n, line in enumerate(second) if "map_ram:map_luts" in line)
    logic = next(n for n, line in enumerate(second) if line.endswith("-run map_luts:"))
    assert mapped < parted < second.index("flatten") < logic


def test_a_report_tells_what_is_met():
    cells = {name: {"used": 3, "available": 4} for name in ("TRELLIS_COMB", "TRELLIS_FF", "DP16KD")}
    clocks = {"$glbnet$card.bridge.clk": {"achieved": 60.0, "constraint": 50.0}}
    lines, met = ecpix5.summary({"fmax": clocks, "utilization": cells})
    assert met and "clk: 60.0 MHz of 50.0: met" in lines[0] and "3 of 4, 75 %" in lines[1]
    # Of the router's report: it does not know this clock's frequency.
    clocks["$glbnet$card.mac.mac_tx_clk"] = {"achieved": 100.0, "constraint": 50.0}
    lines, met = ecpix5.summary({"fmax": clocks, "utilization": cells})
    assert not met and "clk: 100.0 MHz of 125.0: NOT met" in lines[1]


def test_only_open_tools_make_a_bitstream():
    result = CliRunner().invoke(build, ["zcu106", "--bitstream"])
    assert result.exit_code == 2 and "zcu106 needs the vendor's tool" in result.output


@pytest.fixture(scope="module")
def netlist(files, tmp_path_factory):
    """A folder with the files and the netlist of the top without the core."""
    folder = tmp_path_factory.mktemp("ecpix5")
    for name, text in files.items():
        (folder / name).write_text(text)
    ecpix5.netlist(folder, lambda text: None)
    return folder


@pytest.mark.slow
def test_a_bitstream_of_the_shell(netlist):
    """MAC, pins, clocks and resets without the core: all clocks are met. The commit is in it."""
    bits = ecpix5.route(netlist, lambda text: None, commit=0x12345678).read_bytes()
    assert len(bits) > 10_000
    assert re.search(rb"\xc2[\x00\x80]\0\0\x12\x34\x56\x78", bits)  # sets the USERCODE
    lines, met = ecpix5.summary(json.loads((netlist / "report.json").read_text()))
    assert met, lines


BROKEN = [
    ('SITE "A9"', 'SITE "A99"', "A99"),
    ('LOCATE COMP "uart_0__tx__io"', 'LOCATE COMP "uart_0__txd__io"', "uart_0__tx__io"),
    ('SITE "R24"', 'SITE "R26"', "R26|uart_0"),
]


@pytest.mark.slow
@pytest.mark.parametrize("right,wrong,said", BROKEN)
def test_nextpnr_refuses_a_broken_pin(files, netlist, right, wrong, said):
    """A ball that the part lacks, a port without one, and a ball that two ports have."""
    name = f"{ecpix5.NAME}.lpf"
    assert files[name].count(right) == 1
    (netlist / name).write_text(files[name].replace(right, wrong))
    with pytest.raises(BuildError, match=r"nextpnr ended with status"):
        ecpix5.route(netlist, lambda text: None)
    assert re.search(said, (netlist / "placing.log").read_text())


@pytest.mark.slow
def test_yosys_refuses_a_missing_file(files, tmp_path):
    (tmp_path / f"{ecpix5.NAME}.ys").write_text(files[f"{ecpix5.NAME}.ys"])
    with pytest.raises(BuildError, match="Yosys ended with status"):
        ecpix5.netlist(tmp_path, lambda text: None)
