"""What ``timing`` says of a board: the facts, the page, the command."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from sim.make.sta import timing
from sim.make.sta.netlist import Netlist
from sim.make.timing import cards, estimate
from sim.make.timing import report as timing_report
from sim.rtl.env import BuildError
from sim.tools import cli
from tests.make.sta.designs import ff, lut, netlist
from tests.make.sta.test_timing import DECIMAL


def test_estimate_compares_with_the_clock() -> None:
    late = [
        ff("x", "0", 1), lut("a", [1], 2), ff("$flatten\\box.late.$1", 2, 3), ff("z", 1, 4),
    ]  # fmt: skip
    whole = netlist(*late, names={1: "x", 3: "y", 4: "z"})
    slowest = 10 * (1 + 10_100 + 1000 + 10_000 + 3 + 0.5)
    facts = estimate.estimate(whole, "xcup", DECIMAL, int(1e12 / (slowest - 1)))
    assert facts["fmax_mhz"]["usual"] == round(1e6 / slowest)
    assert facts["ends"] == 2
    assert facts["missed"] == {"near": 0, "narrow": 0, "usual": 1, "far": 2}
    assert [(row["component"], row["usual"], row["end"]) for row in facts["first"]] == [
        ("box.late", 1, "y")
    ]
    assert facts["levels"]["register"] == {"0": 1, "1": 1}
    relaxed = estimate.estimate(whole, "xcup", DECIMAL, 1000)
    assert relaxed["missed"] == dict.fromkeys(timing.CORNERS, 0) and relaxed["first"] == []


def test_page_shows_what_is_recorded() -> None:
    """To put it right: ``./rocinante timing BOARD --update``."""
    recorded = timing_report.load()
    assert recorded.keys() <= cards.CARDS.keys()
    assert timing_report.generated(recorded) in timing_report.PAGE.read_text()


def test_recorded_configurations_are_the_boards() -> None:
    for name, facts in timing_report.load().items():
        config = dataclasses.asdict(cards.CARDS[name].config)
        assert facts["config"] == json.loads(json.dumps(config)), name
        assert facts["clock_mhz"] == config["clock_hz"] / 1e6


def test_board_that_is_not_recorded_is_not_measured() -> None:
    text = timing_report.generated({})
    assert text.count("| not measured | not measured |") == 3 * len(cards.CARDS)


def call(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli.rocinante, ["timing", *arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Netlist:
    """A design in the place of the NIC, and files that are not the repository's."""
    whole = netlist(ff("x", "0", 1), lut("a", [1], 2), ff("y", 2, 3), names={1: "x", 3: "y"})
    monkeypatch.setattr(timing_report, "mapped", lambda part, family, say: (tmp_path / "nic", 0.0))
    monkeypatch.setattr(timing_report, "netlist_of", lambda folder, top: whole)
    monkeypatch.setattr(timing_report, "FILE", tmp_path / "timing.json")
    monkeypatch.setattr(timing_report, "PAGE", tmp_path / "timing.md")
    begin, end = timing_report.BEGIN, timing_report.END
    (tmp_path / "timing.md").write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    return whole


def test_command(small: Netlist, tmp_path: Path) -> None:
    status, text, _ = call("zcu106", "--json", "-")
    assert status == 0
    facts = json.loads(text)
    usual = 77 + 208 + 92 + 208 + 25 + 35
    assert facts["clock_mhz"] == 200 and facts["fmax_mhz"]["usual"] == round(1e6 / usual)
    assert not (tmp_path / "timing.json").exists()
    status, text, _ = call("zcu106", "--update")
    assert (
        status == 0
        and f"| `x` | `y` | 1 | 0.37 | {usual / 1000:.2f} | {usual / 1000:.2f} |" in text
    )
    page = (tmp_path / "timing.md").read_text()
    assert page.startswith("before\n") and page.endswith("\nafter\n") and "old" not in page
    assert timing_report.generated({"zcu106": facts}) in page


def test_what_is_recorded_is_shown(small: Netlist, tmp_path: Path) -> None:
    """Without a netlist; of a board that nobody has measured there is nothing to show."""
    status, _, errors = call("zcu106", "--recorded")
    assert status == 1 and "Nothing is recorded of zcu106" in errors
    _, measured, _ = call("zcu106", "--update")
    assert call("zcu106", "--recorded") == (0, measured, "")
    assert call("zcu106", "--recorded", "--json", "-")[1].startswith("{")
    assert call("zcu106", "--recorded", "--update")[0] == 2


def test_command_without_figures(small: Netlist, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(part, family, say):
        raise BuildError("nic: Yosys ended with status 1, no figures")

    monkeypatch.setattr(timing_report, "mapped", fail)
    status, _, errors = call("u55c")
    assert status == 1 and "nic: Yosys ended with status 1, no figures" in errors
    assert call("u200")[0] == 2


def test_netlist_that_was_mapped_earlier(tmp_path: Path, small: Netlist) -> None:
    status, text, _ = call("u55c", "--netlist", str(tmp_path))
    assert status == 0 and f"Netlist: {tmp_path.name}. It was mapped earlier" in " ".join(
        text.split()
    )


def test_folder_without_a_netlist(tmp_path: Path) -> None:
    status, _, errors = call("u55c", "--netlist", str(tmp_path))
    assert status == 1 and "no netlist.json.gz in" in errors
