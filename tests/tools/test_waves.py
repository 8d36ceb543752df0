"""The save file beside recorded waves names signals that are recorded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hdl.config import NicConfig
from sim.bench import testbench
from sim.rtl.build import Rtl, verilog
from sim.rtl.verilog import module_ports
from sim.tools.waves import keep, signals


@pytest.mark.parametrize("width", [64, pytest.param(512, marks=pytest.mark.slow)])
def test_signals_are_ports_of_the_card(width: int) -> None:
    """Names and widths are those of the card's Verilog."""
    config = NicConfig(width=width)
    rtl = Rtl("hdl.nic:Nic", {"config": config}, "nic", checked=True)
    ports = module_ports(verilog(rtl).read_text(), "nic")
    told = {name: bits for members in signals(width).values() for name, bits in members}
    assert len(told) == 17
    assert {name: ports[name][1] for name in told} == told


def test_save_file(tmp_path: Path) -> None:
    """It names the waves by their whole path, and each signal as the testbench's top has it."""
    (tmp_path / "dump.fst").write_bytes(b"waves")
    saved = keep(tmp_path / "dump.fst", tmp_path / "x.fst", width=64, cards=2)
    assert (tmp_path / "x.fst").read_bytes() == b"waves"
    text = saved.read_text()
    assert saved.name == "x.gtkw" and f'[dumpfile] "{tmp_path / "x.fst"}"' in text
    ports = {name: ("input", bits) for one in signals(64).values() for name, bits in one}
    ports |= {"clk": ("input", 1), "rst": ("input", 1)}
    top = testbench.top_source(ports, module="nic", width=64, nics=2)
    for name in re.findall(r"^testbench\.(\w+)", text, re.MULTILINE):
        assert re.search(rf"\b{name}\b", top), name
