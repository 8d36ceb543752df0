"""Yosys fails, dies or leaves nothing: that is never a figure."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path

import pytest

from sim.make.sta.levels import Walk
from sim.make.sta.netlist import read
from sim.make.synth import tool
from sim.make.synth.report import count
from sim.rtl.env import BuildError, ToolError
from tests.make.sta import designs


def test_broken_verilog_ends_with_its_message(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"(?s)no figures.*syntax error"):
        designs.synthesised("module broken(input clk;", "broken", "xcup", tmp_path)


def test_missing_top(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="no figures"):
        designs.synthesised(designs.ADDER, "subtractor", "xcup", tmp_path)


def test_yosys_that_ends_well_without_a_netlist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "_PROGRAM", "print('all is well')")
    with pytest.raises(BuildError, match=r"(?s)status 0, no figures.*all is well"):
        designs.synthesised(designs.ADDER, "adder", "xcup", tmp_path)


def test_module_that_is_left_out(tmp_path: Path) -> None:
    """Its cells are gone, those around it stay; its connections are ports."""
    source = tmp_path / "in" / "around.sv"
    source.parent.mkdir()
    source.write_text(designs.AROUND)
    cuts = tool.Cuts(without=("around.inside",))
    netlist = tool.synthesise([source], "around", "ecp5", tmp_path, cuts=cuts)
    found = read(netlist.read_bytes(), "around")
    assert [cell.type for cell in found.cells] == ["TRELLIS_FF"] * 8
    assert set(found.inputs) == {"clk", "i", "inside.b"}
    assert set(found.outputs) == {"o", "inside.a", "inside.clk"}


def test_modules_that_are_mapped_apart(tmp_path: Path) -> None:
    """Neither what nobody uses nor what a constant makes useless is left; paths are whole."""
    source = tmp_path / "in" / "apart.sv"
    source.parent.mkdir()
    source.write_text(designs.APART)
    cuts = tool.Cuts(apart=("apart.first", "apart.second"))
    netlist = tool.synthesise([source], "apart", "xcup", tmp_path, cuts=cuts)
    found = read(netlist.read_bytes(), "apart")
    assert sum(cell.type.startswith("FD") for cell in found.cells) == 6 + 5 + 1
    assert not any(cell.type == "CARRY4" for cell in found.cells)
    assert Walk(found, "xcup").levels("register").worst == 2
    counted = count(found, "xcup", tmp_path, apart=True)
    assert {name: some["ff"] for name, some in counted["inside"].items()} == {
        "first": 6,
        "second": 6,
    }
    assert counted["resources"]["ff"] == 6 + 5 + 1


def test_mapper_that_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = tool._PROGRAM.replace("import sys, pyosys", "import sys, pyosys; sys._pyosys_abc = 'no'")
    monkeypatch.setattr(tool, "_PROGRAM", dead)
    with pytest.raises(BuildError, match=r"(?s)no figures.*ABC"):
        designs.synthesised(designs.ADDER, "adder", "xcup", tmp_path)


def test_missing_yosys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolError, match="pyosys is missing"):
        designs.synthesised(designs.ADDER, "adder", "xcup", tmp_path)


@pytest.mark.parametrize(
    "text", ["", "{}", '{"modules": {}}', '{"modules": {"other": {"cells": {}}}}', "[1]"]
)
def test_netlist_without_the_module(text: str) -> None:
    with pytest.raises(BuildError, match="top: no netlist .*no figures"):
        read(text.encode(), "top")


def test_netlist_without_cells() -> None:
    text = b'{"modules": {"top": {"ports": {}, "cells": {}, "netnames": {}}}}'
    with pytest.raises(BuildError, match="top: the netlist has no cells, no figures"):
        read(text, "top")


def test_black_box_is_refused() -> None:
    text = b'{"modules": {"top": {"ports": {}, "netnames": {}, "cells": {"u": {"type": "mystery",'
    text += b' "connections": {"a": [2]}}}}}}'
    with pytest.raises(BuildError, match=r"Cell u \(mystery\) is a black box"):
        read(text, "top")


def test_elements_of_arrays_keep_apart(tmp_path: Path) -> None:
    """A net named like a bit of another one, and both in use."""
    netlist = designs.synthesised(designs.ARRAY, "array", "xcup", tmp_path)
    names = {netlist.names[net] for cell in netlist.cells for net in cell.outputs.get("Q", ())}
    assert names == {f"rows.{row}[{bit}]" for row in range(2) for bit in range(2)}


def test_single_port_memory_gets_a_cell_that_exists(tmp_path: Path) -> None:
    netlist = designs.synthesised(designs.SINGLE_PORT, "single_port", "xcup", tmp_path)
    assert {cell.type for cell in netlist.cells if cell.type.startswith("RAM")} == {"RAM512X1S"}


def test_deep_memory_is_a_column(tmp_path: Path) -> None:
    """Four UltraRAMs, each with an address of its own, and nothing behind them."""
    netlist = designs.synthesised(designs.DEEP, "deep", "xcup", tmp_path)
    assert {cell.type for cell in netlist.cells} == {"URAM288"}
    blocks = sorted(netlist.cells, key=lambda cell: str(cell.parameters["SELF_ADDR_B"]))
    assert [int(str(cell.parameters["SELF_ADDR_B"]), 2) for cell in blocks] == [0, 1, 2, 3]
    orders = [cell.parameters["CASCADE_ORDER_B"] for cell in blocks]
    assert orders == ["FIRST", "MIDDLE", "MIDDLE", "LAST"]
    assert {int(str(cell.parameters["SELF_MASK_B"]), 2) for cell in blocks} == {0x7FC}
    for below, above in itertools.pairwise(blocks):
        assert below.outputs["CAS_OUT_DOUT_B"] == above.inputs["CAS_IN_DOUT_B"]
        assert below.outputs["CAS_OUT_ADDR_B"] == above.inputs["CAS_IN_ADDR_B"]
    assert netlist.outputs["row"] == blocks[-1].outputs["DOUT_B"]
    assert netlist.inputs["index"] == blocks[0].inputs["ADDR_B"][:14]


def test_memory_as_deep_as_an_ultraram_is_one(tmp_path: Path) -> None:
    netlist = designs.synthesised(designs.ALONE, "alone", "xcup", tmp_path)
    (block,) = netlist.cells
    assert block.type == "URAM288"
    assert {block.parameters[f"CASCADE_ORDER_{port}"] for port in "AB"} == {"NONE"}
    # Every address is its own, and what it reads is what leaves.
    assert {int(str(block.parameters[f"SELF_MASK_{port}"]), 2) for port in "AB"} == {0x7FF}
    assert netlist.outputs["row"] == block.outputs["DOUT_B"]
    assert netlist.inputs["index"] == block.inputs["ADDR_B"][:12]
    assert netlist.inputs["to"] == block.inputs["ADDR_A"][:12]


def test_narrow_memory_is_memories_alone(tmp_path: Path) -> None:
    """Several rows in one of an UltraRAM would need look-up tables in front of it and behind."""
    netlist = designs.synthesised(designs.NARROW, "narrow", "xcup", tmp_path)
    assert {cell.type for cell in netlist.cells} == {"RAMB36E2"}


def test_names_of_cuts() -> None:
    """A number behind a module's name is the generator's; a module that is missing is an error."""
    names = ("top", "\\top.a$12", "\\top.a.b", "\\top.c")
    text = "".join(f"module {name} (clk);\n" for name in names)
    found = tool.named(tool.Cuts(without=("top.c",), apart=("top.a",)), [text])
    assert found == tool.Cuts(without=("top.c",), apart=("top.a$12",))
    with pytest.raises(BuildError, match=r"No module top\.b in the Verilog"):
        tool.named(tool.Cuts(apart=("top.b",)), [text])
