"""Code coverage of gateware: from a branch in Python to its line in the table, all the way."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from sim.measure.branches import entered, rows
from sim.rtl import reached
from sim.rtl.build import Results, Rtl, bench, verilog
from sim.rtl.env import REPO
from sim.tools import cli
from tests.sim.branches import Branches

FILE = "tests/sim/branches.py"
COUNTED = Rtl(Branches)
#: Conditions of branches that the bench enters; each stands once in the component. Of two in one
#: line the last one counts.
ENTERED = ["m.If(self.go)", "m.State('WORK')", "m.Case(0, 1)", "m.Case(2)"]
NOT_ENTERED = ["m.If(self.kind == 3)", "m.State('BROKEN')", "m.Default()"]


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(reached.SETTING, "1")


def simulated() -> Results:
    return bench(COUNTED, test_module="tests.sim.bench_branches")


def test_the_lines_that_are_not_entered_are_named(counting: None) -> None:
    found = entered([simulated().folder / reached.FILE], "tests")
    assert list(found) == [FILE]
    (row,) = rows(found)
    assert row["bins"] == len(ENTERED + NOT_ENTERED)
    assert [name for _, name in row["missing"]] == [f"Part.elaborate: {one}" for one in NOT_ENTERED]
    lines = (REPO / FILE).read_text().splitlines()
    for line, name in row["missing"]:
        written = lines[int(line) - 1].replace('"', "'")
        assert f"{name.partition(': ')[2]}:" in written


def test_of_several_simulations_and_instances_one_is_enough(tmp_path: Path) -> None:
    point = "C '\x01f\x02hdl/nic.py\x01l\x02{}\x01n\x0200\x01h\x02top.{}' {}"
    records = []
    for number, counts in enumerate([(0, 2, 0), (0, 0, 3)]):
        lines = [point.format(7, "a", counts[0]), point.format(7, "b", 0)]
        lines += [point.format(8, "a", counts[1]), point.format(9, "b", counts[2])]
        lines += [point.format(8, "a", 1).replace("hdl/", "/tmp/nic.sv/")]
        records.append(tmp_path / f"{number}.dat")
        records[-1].write_text("\n".join(["# SystemC::Coverage-3", *lines, ""]))
    assert entered(records) == {"hdl/nic.py": {7: 0, 8: 2, 9: 3}}
    (tmp_path / "0.dat").write_text("something else\n")
    with pytest.raises(ValueError, match="0.dat is no record"):
        entered(records)


def test_a_record_of_another_revision_is_refused() -> None:
    with pytest.raises(ValueError, match="no line 9999"):
        rows({"hdl/nic.py": {9999: 0}})


def test_the_same_condition_again_has_a_number() -> None:
    path = "hdl/transport/receive/commit.py"
    text = (REPO / path).read_text().splitlines()
    lines = [number for number, line in enumerate(text, 1) if re.search(r"with m\.(If|Case)", line)]
    (row,) = rows({path: dict.fromkeys(lines, 0)})
    names = [name for _, name in row["missing"]]
    assert len(names) == len(set(names)) == len(lines)


def test_a_model_that_does_not_count_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = verilog(Rtl(Branches, checked=True))
    assert "cover" not in usual.read_text()
    monkeypatch.setenv(reached.SETTING, "1")
    counted = verilog(Rtl(Branches, checked=True))
    assert "cover" in counted.read_text() and counted != usual
    # What is made for a card is never a model that counts.
    assert "cover" not in verilog(COUNTED).read_text()


def test_command_shows_rooms_and_names_lines(tmp_path: Path) -> None:
    record = tmp_path / "coverage.dat"
    points = [("hdl/nic.py", 1, 4), ("hdl/mac/merge.py", 2, 0), ("hdl/mac/gmii.py", 3, 1)]
    lines = [f"C '\x01f\x02{file}\x01l\x02{line}\x01n\x020' {n}" for file, line, n in points]
    record.write_text("\n".join(["# SystemC::Coverage-3", *lines]))
    report = tmp_path / "report.json"
    command = ["coverage", "--code", "--missing", str(record), "--json", str(report)]
    done = CliRunner().invoke(cli.rocinante, command)
    assert done.exit_code == 0, done.output
    assert re.search(r"mac +│ +1 │ +2 │ +50", done.output)
    assert "not seen: hdl/mac/merge.py:2: " in done.output
    assert [row["what"] for row in json.loads(report.read_text())["rows"]] == sorted(
        file for file, *_ in points
    )
    done = CliRunner().invoke(cli.rocinante, ["coverage", "--code", str(report)])
    assert done.exit_code == 1 and "is no record" in done.output
