"""The command: what it prints and writes, how it fails, and how figures are compared."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hdl.config import NicConfig
from sim.make.synth import baseline, command
from sim.make.synth.parts import choose, components, configuration, parts
from sim.make.synth.report import Report, identity
from sim.rtl import env
from sim.rtl.env import BuildError
from sim.tools import cli, console

SMALL = ("--width", "64", "--config", "qps=64", "--room", "interrupts")


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of baselines that is not the repository's."""
    monkeypatch.setattr(baseline, "FILE", tmp_path / "synth.json")
    return baseline.FILE


def call(*arguments: str) -> tuple[int, str, str]:
    """Run the command; returns exit status, standard output and standard error."""
    result = CliRunner().invoke(cli.rocinante, ["synth", *arguments])
    return result.exit_code, result.stdout, result.stderr


def report(**changed: float) -> Report:
    resources = {"lut": 100, "lutram": 0, "ff": 200, "bram": 1.5, "uram": 0, "dsp": 0}
    levels = {
        one: {"worst": worst, "worst_pairs": worst, "above": 0, "ends": 9, "paths": []}
        for one, worst in (("register", 6), ("ram", 2), ("port", 3))
    }
    for name, value in changed.items():
        if name in resources:
            resources[name] = value
        else:
            levels[name]["worst"] = value
    cells, inside = {"LUT6": 100}, {}
    return Report("mill", "water", "xcup", resources, cells, levels, inside, "of", 1.0, Path())


def test_figures_of_one_component(tmp_path: Path) -> None:
    status, text, _ = call(*SMALL, "--json", str(tmp_path / "synth.json"))
    assert status == 0
    facts = json.loads((tmp_path / "synth.json").read_text())
    assert facts["family"] == "xcup" and facts["config"]["qps"] == 64
    assert facts["tool"].startswith("Yosys 0.")
    (part,) = facts["parts"]
    assert part["name"] == "interrupts" and part["room"] == "common"
    assert part["ff"] == sum(part["cells"].get(f"FD{kind}E", 0) for kind in "RSCP") > 0
    assert part["lut"] >= sum(part["cells"].get(f"LUT{size}", 0) for size in range(1, 7)) > 0
    assert facts["limits"]["levels"]["measured"] == part["levels"]["register"]["worst"]
    assert facts["errors"] == facts["grown"] == []
    (row,) = (line.split() for line in text.splitlines() if "interrupts" in line)
    assert row[1:3] == [str(part["lut"]), str(part["ff"])]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("--room", "engine"), "--room must be a room (all, axi, common, context,"),
        (("--config", "qps"), "--config must be KEY=VALUE with a KEY of NicConfig, not 'qps'"),
        (("--config", "width=64"), "--width sets the width, not --config 'width=64'"),
        (("--config", "qps=many"), "--config qps must be a whole number, not 'many'"),
        (("--config", "qps=100"), "qps must be a power of two, not 100"),
        (("--family", "spartan"), "'spartan' is not one of"),
    ],
)
def test_bad_values_are_one_line_and_status_2(arguments: tuple[str, ...], message: str) -> None:
    status, _, text = call(*arguments)
    assert status == 2 and message in text


def test_no_figures_is_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(part, family, say):
        raise BuildError(f"{part.name}: Yosys ended with status 0, no figures")

    monkeypatch.setattr(command, "measure", fail)
    status, text, errors = call(*SMALL, "--json", "-")
    assert status == 1 and "interrupts: Yosys ended with status 0, no figures" in errors
    assert json.loads(text)["errors"] == ["interrupts: Yosys ended with status 0, no figures"]


def test_growth_is_status_1(monkeypatch: pytest.MonkeyPatch, kept: Path) -> None:
    monkeypatch.setattr(command, "measure", lambda part, family, say: report())
    assert call(*SMALL, "--update-baseline")[0] == 0
    assert call(*SMALL, "--check")[0] == 0
    monkeypatch.setattr(command, "measure", lambda part, family, say: report(lut=106))
    status, _, errors = call(*SMALL, "--check")
    assert status == 1 and "mill: lut grew from 100 to 106" in errors


def test_limits_of_the_whole() -> None:
    whole = dataclasses.replace(report(lut=90_001, ff=95_000, register=8, ram=4), name="nic")
    found = {figure: entry["met"] for figure, entry in command.limits([report(), whole]).items()}
    assert found == {"lut": False, "ff": True, "levels": True, "ram_levels": False}
    assert set(command.limits([report()])) == {"levels", "ram_levels"}
    most = [dataclasses.replace(whole, resources={**whole.resources, "lut": 94_502, "ff": 99_750})]
    found = command.limits([whole], most)
    assert (found["lut_growth"]["measured"], found["lut_growth"]["met"]) == (5.0, True)
    assert (found["ff_growth"]["measured"], found["ff_growth"]["met"]) == (5.0, True)
    most[0].resources["ff"] = 99_850
    assert not command.limits([whole], most)["ff_growth"]["met"]
    assert command.limits([]) == {}
    assert command.limits([dataclasses.replace(whole, family="ecp5")], most) == {}


def test_components_of_the_whole_are_rows() -> None:
    most = {**report().resources, "lut": 70, "bram": 1.5}
    inside = {"": {**most, "lut": 30, "bram": 0}, "wheel": most}
    with console.out.capture() as shown:
        command.show("set", [dataclasses.replace(report(), inside=inside)], 0)
    rows = [line.split() for line in shown.get().splitlines()]
    assert ["wheel", "70", "200", "1.5", "0", "0"] in rows
    assert rows.index(["wheel", "70", "200", "1.5", "0", "0"]) + 1 == rows.index(
        ["(between)", "30", "200", "0", "0", "0"]
    )


def test_growth_of_a_component() -> None:
    """A list of QPs is longer with more of them: RAM, and addresses with a few bits more."""
    status, text, _ = call("--width", "64", "--small", "--room", "pokes", "--growth")
    assert status == 0
    (line,) = [line for line in text.splitlines() if line.startswith("  pokes") and "+" in line]
    lut, more, *_rest = line.split()[1:]
    assert 0 < int(more.removeprefix("+")) < int(lut) / 2, line
    assert "all of these" in text


def test_baseline_tolerates_five_per_cent(kept: Path) -> None:
    assert baseline.compare("set", [report()]) == ["mill: no baseline for set"]
    baseline.update("set", [report()])
    baseline.update("other", [report(lut=5)])
    assert baseline.compare("set", [report(lut=105, ff=210)]) == []
    assert baseline.compare("set", [report(lut=90, register=5)]) == []
    assert baseline.compare("set", [report(lut=105.5, register=7, uram=1)]) == [
        "mill: lut grew from 100 to 105.5",
        "mill: uram grew from 0 to 1",
        "mill: levels grew from 6 to 7",
    ]
    assert baseline.compare("other", [report()]) == ["mill: lut grew from 5 to 100"]


def test_figures_of_a_part_that_is_the_same_are_known(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (part,) = choose(configuration(64, size="small"), ("pokes",))
    now = identity(part, "xcup")
    assert now == identity(part, "xcup") != identity(part, "ecp5")
    assert not baseline.unchanged("set", part, "xcup")
    baseline.update("set", [dataclasses.replace(report(), name="pokes", of=now)])
    assert baseline.unchanged("set", part, "xcup") and not baseline.unchanged("set", part, "ecp5")
    (other,) = choose(configuration(64, ("qps=128",), size="small"), ("pokes",))
    assert not baseline.unchanged("set", other, "xcup")
    monkeypatch.setattr(env, "package_version", lambda name: "another")
    assert not baseline.unchanged("set", part, "xcup")


def test_baseline_forgets_parts_that_are_gone(kept: Path) -> None:
    baseline.update("set", [report(), dataclasses.replace(report(), name="gone")])
    baseline.update("set", [report(lut=90)])
    assert set(baseline.load()["set"]) == {"mill", "gone"}
    baseline.update("set", [dataclasses.replace(report(), name="nic")])
    baseline.update("set", [report(lut=90)], complete=True)
    assert set(baseline.load()["set"]) == {"mill", "nic"}
    assert baseline.load()["set"]["mill"]["lut"] == 90


def test_titles_say_what_differs() -> None:
    assert baseline.title("xcup", NicConfig()) == "xcup width=512"
    config = configuration(64, ("qps=1024", "cqs=32"))
    assert baseline.title("ecp5", config) == "ecp5 width=64 qps=1024"
    config = configuration(64, ("cqs=16",), size="small")
    assert baseline.title("xcup", config) == "xcup width=64 small cqs=16"
    config = configuration(64, size="tiny")
    assert baseline.title("ecp5", config) == "ecp5 width=64 tiny"
    assert config.qps < configuration(64, size="small").qps < configuration(64).qps


def test_every_component_of_the_nic_is_a_part() -> None:
    config = NicConfig(width=64)
    found = {part.name: part.room for part in parts(config)}
    assert set(found) == set(components(config))
    assert found["egress"] == "egress" and found["qp_context"] == "context"
