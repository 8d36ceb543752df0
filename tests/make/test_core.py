"""``./rocinante verilog``: what a file may say, the outer module, the whole core through lint."""

import gc
import os
import re
import subprocess
import warnings
from dataclasses import fields

import pytest
from amaranth.hdl import UnusedElaboratable
from click.testing import CliRunner

from hdl.config import NicConfig
from sim.make.core import wrapper
from sim.make.core.command import verilog
from sim.make.core.settings import CoreSettings, read_settings
from sim.rtl import env, runner
from sim.rtl.verilog import module_ports

#: Stands for that of the checkout, which changes: a core is generated once for all commits.
COMMIT = 0x5CA1AB1E
SMALL = """
width = {width}
qps = 8
cqs = 4
mrs = 16
read_tags = 32
outstanding = 16
read_resources = 16
translation_lines = 16
recv_lines = 32
read_sinks = 16
queue_size = 64

[core]
mac_clock_hz = 322_265_625
interrupts = 4
interrupt_window = 0xFEE0_0000
write_bursts = 8
"""


def said(tmp_path, text):
    file = tmp_path / "core.toml"
    file.write_text(text)
    return file


def test_settings(tmp_path):
    settings = read_settings(said(tmp_path, SMALL.format(width=128)))
    assert settings.config.width == 128 and settings.config.qps == 8
    assert settings.interrupt_window == 0xFEE00000 and settings.write_bursts == 8
    assert settings.clocks() == {
        "sync": 250_000_000,
        "mac_tx": 322_265_625,
        "mac_rx": 322_265_625,
    }
    assert settings.parameters()["mac_clocks"] is True
    assert read_settings(said(tmp_path, "")) == CoreSettings(config=NicConfig())


def test_what_is_made_to_be_looked_at_is_not_complained_of(tmp_path, monkeypatch):
    """A core is made to check its settings; Amaranth's complaints about that help nobody."""
    # Amaranth begins to complain when something has been elaborated, as it has later on.
    monkeypatch.setattr(UnusedElaboratable, "_MustUse__silence", False)
    file = said(tmp_path, SMALL.format(width=64))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        done = CliRunner().invoke(verilog, ["--config", str(file), "-o", str(file / "core")])
        gc.collect()
    assert done.exit_code == 2 and done.output.count("\n") == 1
    assert not [one for one in seen if one.category is UnusedElaboratable]


@pytest.mark.parametrize(
    "text,wrong",
    [
        ("qpz = 4", "There is no field 'qpz'; did you mean qps?"),
        ("colour = 4", "There is no field 'colour'; there are width, clock_hz, qps"),
        ("width = 65", "width must be one of"),
        ('qps = "many"', "qps must be a whole number, not 'many'"),
        ("[core]\ninterupts = 1", "no field 'interupts' in [core]; did you mean interrupts?"),
        ("[core]\ninterrupts = -1", "interrupts must be a whole number from 0 on, not -1"),
        ("core = 1", "core must be a table"),
        ("width 64", "Expected '=' after a key"),
        ("[core]\ninterrupts = 5000", "Interrupt wires must be 0 to 1024, not 5000"),
        ("[core]\ninterrupts = 1\ninterrupt_window = 12", "must be at a page's address, not 12"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, wrong):
    file = said(tmp_path, text)
    result = CliRunner().invoke(verilog, ["--config", str(file), "-o", str(tmp_path / "out")])
    assert result.exit_code == 2 and wrong in result.output and str(file) in result.output
    assert len(result.output.splitlines()) == 1 and not (tmp_path / "out").exists()


def test_other_wrong_arguments(tmp_path):
    missing = CliRunner().invoke(verilog, ["--config", str(tmp_path / "no"), "-o", str(tmp_path)])
    assert missing.exit_code == 2 and "No such file" in missing.output
    file = said(tmp_path, "")
    options = ["--config", str(file), "-o", str(tmp_path), "--name", "a-b"]
    named = CliRunner().invoke(verilog, options)
    assert named.exit_code == 2 and "'a-b' is no name of a Verilog module" in named.output


PORTS = {
    "clk": ("input", 1),
    "link_up": ("input", 1),
    "m_axi__awaddr": ("output", 64),
    "m_axi__awburst": ("output", 2),
    "m_axis_tx__tdata": ("output", 8),
    "mac_tx_clk": ("input", 1),
    "mac_tx_rst": ("input", 1),
    "rst": ("input", 1),
    "s_axis_rx__tready": ("output", 1),
}


def test_wrapper():
    ports = wrapper.core_ports(PORTS)
    clocks = {"sync": 1_000_000, "mac_tx": 2_000_000}
    assert [port.name for port in ports[:4]] == ["clk", "rst", "mac_tx_clk", "mac_tx_rst"]
    text = wrapper.source("top", ports, clocks, "core text")
    assert "output wire [63:0] m_axi_awaddr" in text and ".m_axi__awaddr(m_axi_awaddr)" in text
    assert "aximm:1.0 m_axi AWBURST" in text and text.count("signal:reset") == 2
    assert "ASSOCIATED_BUSIF m_axis_tx, ASSOCIATED_RESET mac_tx_rst, FREQ_HZ 2000000" in text
    page = wrapper.port_list("top", ports, clocks)
    assert "| `m_axis_tx_tdata` | out | 8 | `mac_tx_clk` | " in page
    assert "| `link_up` | in | 1 | `mac_rx_clk` | the MAC has a link |" in page
    assert "`clk` 1 MHz, `mac_tx_clk` 2 MHz" in page


@pytest.mark.parametrize(
    "width", [128, *(pytest.param(width, marks=pytest.mark.slow) for width in (64, 256, 512))]
)
def test_core(tmp_path, width, monkeypatch):
    """Lint finds nothing; template and page have all ports; constraints name what is there. The
    registers say the commit.

    The only whole card of 128 bits, and the only one without all that may be left out.
    """
    monkeypatch.setattr("sim.make.core.command.commit", lambda: COMMIT)
    left_out = [field.name for field in fields(NicConfig) if field.default is True]
    text = "".join(f"{name} = {str(width != 128).lower()}\n" for name in left_out)
    text += SMALL.format(width=width)
    file, out = said(tmp_path, text), tmp_path / "out"
    result = CliRunner().invoke(verilog, ["--config", str(file), "-o", str(out), "--name", "card"])
    assert result.exit_code == 0, result.output
    names = ["card.sv", "card_template.sv", "ports.md", "card.xdc", "card.sdc", "package.tcl"]
    assert result.stdout.split() == [str(out / name) for name in names]
    assert "elaborating" in result.stderr  # it takes a while: what it does is said

    template = (out / "card_template.sv").read_text()
    user = out / "user.sv"  # a design that instantiates the core as the template says
    user.write_text("/* verilator lint_off UNDRIVEN */\n/* verilator lint_off UNUSEDSIGNAL */\n"
                    f"module user;\n{template}endmodule\n")  # fmt: skip
    with runner.wheel(env.work_root()) as tools:
        command = [*env.verilator_command(tools.verilator), *runner.CHECK]
        command += ["-Mdir", str(tmp_path / "obj"), "--top-module", "user"]
        command += [str(user), str(out / "card.sv")]
        environment = {**os.environ, **env.make_environment(tools.verilator)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"lint finds: {done.stderr[-3000:]}"

    text = (out / "card.sv").read_text()
    assert f"32'd{COMMIT}" in text or f"32'h{COMMIT:08x}" in text
    core = module_ports(text, "card_core")
    outer = {name.replace("__", "_") for name in core}
    page = (out / "ports.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \| (?:in|out) ", page, re.M)) == outer
    assert set(re.findall(r"\.(\w+)\(\1\)", template)) == outer
    assert core["m_axi__wdata"] == ("output", width) and core["irq"] == ("output", 4)
    places = re.findall(r"NAME =~ \*([\w/]+?)_reg\*}", (out / "card.xdc").read_text())
    assert len(set(places)) > 6
    for place in places:
        module, register = place.split("/")[-2:]
        inside = re.search(
            rf"^module \\card_core\.[\w.]*\b{module} .*?^endmodule", text, re.M | re.S
        )
        assert inside and re.search(rf"\breg (\[\d+:0\] )?{register.rstrip('*')}", inside[0]), place
