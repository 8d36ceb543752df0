"""Placing and routing: what is read from nextpnr's report, how failures end."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hdl.config import NicConfig
from sim.make.synth import place, tool
from sim.make.synth.parts import Part
from sim.rtl.env import BuildError, ToolError

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


#: In nextpnr's place: with some seeds the router goes on for ever, with others it ends.
ROUTER = """
import json, sys, time
seed = sys.argv[sys.argv.index("--seed") + 1]
for n in range(40):
    print(f"Info:     iter={n} wires=9 overused={(n - 9) ** 2 + 101} archfail=NA", flush=True)
if seed in SEEDS:
    json.dump({"seed": seed}, open(sys.argv[sys.argv.index("--report") + 1], "w"))
else:
    time.sleep(100)
"""


@pytest.mark.parametrize("good", [[1], []])
def test_placements_that_cannot_be_routed(
    good: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one is tried; when all have been, that is the error."""
    router = ROUTER.replace("SEEDS", repr([str(n) for n in good]))
    program = [sys.executable, "-c", router]
    monkeypatch.setattr(place, "_LOOK_S", 0.1)
    (tmp_path / f"{tool.NETLIST}.gz").write_bytes(gzip.compress(b"{}"))
    said: list[str] = []
    report = tmp_path / "placed.json"
    if good:
        place._run((tmp_path, "mill"), program, dict(os.environ), report, said.append)
        assert json.loads(report.read_text()) == {"seed": "1"}
    else:
        with pytest.raises(BuildError, match="mill: the router gets nowhere with seeds 7, 1, 3"):
            place._run((tmp_path, "mill"), program, dict(os.environ), report, said.append)
    tried = place._SEEDS[: place._SEEDS.index(1) + 1] if good else place._SEEDS
    assert said == [f"placing and routing, seed {seed}" for seed in tried]


def test_a_router_that_gets_on_is_left_alone() -> None:
    """Now and then more wires than before are used twice."""
    rounds = [1000 - 10 * n + 60 * (n % 7 == 6) for n in range(90)]
    log = "".join(f"Info: iter={n} wires=1 overused={one} x\n" for n, one in enumerate(rounds))
    assert not place._hopeless(log)
    assert place._hopeless(log + place._ROUNDS * "Info: iter=1 wires=1 overused=400 x\n")


def log(*rows: tuple[int, float]) -> str:
    """What the router of one wire after the other writes: wires that are left, and seconds."""
    return "".join(
        f"Info:     53800 |   97000  441000 |  421  579 |{left:>10}|     3.63 {seconds:8.2f}|\n"
        for left, seconds in rows
    )


def test_the_router_of_one_wire_after_the_other() -> None:
    """A run that ended well once stood still for 43 s; one that did not, as in the second log."""

    well = [(300_000, 40), (20_000, 700), (7_700, 1000), *((7_900, 1000 + n) for n in range(43))]
    assert not place._hopeless(log(*well))
    assert not place._hopeless(log(*well, (7_500, 1890)))
    assert place._hopeless(log(*well, (7_850, 1910)))
    stuck = [(216_274, 178), (215_860, 189), (215_629, 221), (216_063, 467)]
    assert not place._hopeless(log(*stuck))
    assert place._hopeless(log(*stuck, (215_754, 1138)))


def test_a_slow_machine_has_more_time() -> None:
    """The lines of a run that went well, as a machine of a fifth of the speed writes them."""
    for times in (1, 5):
        assert not place._hopeless(log(*((100_000 - 40 * n, 3 * n * times) for n in range(300))))


def test_a_native_tool_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where it is asked for: recorded figures are those of the pinned package."""
    program = tmp_path / "nextpnr-ecp5"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(place, "_installed", lambda say: tmp_path / "package")
    said: list[str] = []
    assert place.run_tool("nextpnr_ecp5", said.append, native=True)[0] == [str(program)]
    for command, _ in (
        place.run_tool("nextpnr_ecp5", said.append),
        place.run_tool("ecppack", said.append, native=True),  # there is no native one
    ):
        assert command[0] == sys.executable


@pytest.mark.slow
def test_one_component_placed_and_routed() -> None:
    """Installs nextpnr when it is not there yet."""
    placed = place.place(Part("interrupts", "common", NicConfig(width=64)))
    assert 50 < placed.fmax_mhz < 1000
    assert 0 < placed.used["ff"][0] < 100
    assert any("clk-to-q" in step for step in placed.critical)
