"""Placing and routing: what is read from nextpnr's report, how failures end."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hdl.config import NicConfig
from sim.env import BuildError, ToolError
from sim.synth import place
from sim.synth.parts import Part

USED = {cell: {"used": number, "available": 100} for number, cell in enumerate(place._COUNTED)}
STEP = {"delay": 0.5, "type": "routing", "net": "x[3]", "to": {"cell": "c", "port": "D"}}
REPORT = {
    "fmax": {"clk": {"achieved": 123.456, "constraint": 125}},
    "utilization": USED,
    "critical_paths": [
        {"from": "<async>", "to": "posedge clk", "path": []},
        {"from": "posedge clk", "to": "posedge clk", "path": [STEP]},
    ],
}


def test_figures_of_a_report() -> None:
    placed = place._read("mill", REPORT)
    assert placed.fmax_mhz == 123.5
    assert placed.used == {"lut": (0, 100), "ff": (1, 100), "ebr": (2, 100), "dsp": (3, 100)}
    assert placed.critical == ["0.50 ns routing x[3]"]


def test_report_without_a_clock_is_no_figure() -> None:
    with pytest.raises(BuildError, match="0 clocks, not 1: no figures"):
        place._read("mill", {**REPORT, "fmax": {}})


def test_nextpnr_that_cannot_be_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCINANTE_BUILD_DIR", str(tmp_path))
    failed = subprocess.CompletedProcess([], 1, "", "first line\nERROR: no network\n")
    monkeypatch.setattr(subprocess, "run", lambda *args, **more: failed)
    with pytest.raises(ToolError, match="nextpnr cannot be installed: ERROR: no network"):
        place._installed(lambda text: None)


@pytest.mark.slow
def test_one_component_placed_and_routed() -> None:
    """Installs nextpnr when it is not there yet."""
    placed = place.place(Part("interrupts", "common", NicConfig(width=64)))
    assert 50 < placed.fmax_mhz < 1000
    assert 0 < placed.used["ff"][0] < 100
    assert any("clk-to-q" in step for step in placed.critical)
