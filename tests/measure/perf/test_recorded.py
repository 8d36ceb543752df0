"""The recorded table of figures: its file, how it is compared, and the page that shows it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from sim.measure.perf import recorded
from sim.measure.perf.command import plan_of
from sim.measure.perf.recorded import FILE, PAGE, Recorded, figures, load, page, save, verdict
from sim.measure.perf.report import warnings
from sim.tools import cli

RATE = Recorded("write_bw -s 64", "rates", figures={"gbps": 10.0, "mmsg_s": 19.5, "ratio": 0.3})
TIME = Recorded("read_lat", "times", figures={"min": 3600.0, "p50": 4000.0, "max": 5000.0})


def test_table_is_whole() -> None:
    rows = load()
    assert len(rows) >= 20 and len({row.command for row in rows}) == len(rows)
    assert sum(row.quick for row in rows) >= 6
    for row in rows:
        plan = plan_of(row.command)
        assert row.figures or not row.quick, "record it"
        assert warnings(plan) == [] and plan.latency == row.latency


def test_file_is_as_save_writes_it(tmp_path: Path) -> None:
    save(load(), tmp_path / "x.json")
    assert (tmp_path / "x.json").read_text() == FILE.read_text()


def test_page_is_current() -> None:
    assert PAGE.read_text() == page(load(), PAGE.read_text())


def test_bad_command_of_a_row() -> None:
    with pytest.raises(ValueError, match="write_bw --nothing: No such option"):
        plan_of("write_bw --nothing")
    with pytest.raises(ValueError, match="--size must be 1 to"):
        plan_of("write_bw -s 0")


@pytest.mark.parametrize(
    ("old", "factor", "text"),
    [
        (RATE, 0.98, "LOSS of 2.0 %: write_bw -s 64: recorded 10.00 Gb/s, measured 9.80 Gb/s"),
        (RATE, 0.995, "as recorded: write_bw -s 64: recorded 10.00 Gb/s, measured 9.95 Gb/s"),
        (RATE, 1.1, "gain of 10.0 %: write_bw -s 64: recorded 10.00 Gb/s, measured 11.00"),
        (TIME, 1.25, "LOSS of 20.0 %: read_lat: recorded 4000.00 ns, measured 5000.00 ns"),
        (TIME, 0.8, "gain of 25.0 %: read_lat: recorded 4000.00 ns, measured 3200.00 ns: record"),
    ],
)
def test_verdict(old: Recorded, factor: float, text: str) -> None:
    new = replace(old, figures={name: factor * value for name, value in old.figures.items()})
    gain, line = verdict(old, new)
    assert line.startswith(text)
    assert (gain < -old.tolerance) == line.startswith("LOSS")


def test_what_a_loss_costs() -> None:
    """Of a hundred packets one is lost: the 31 of a round trip go out for the 99 that count."""
    row = Recorded("write_bw --impair loss=1%,seed=2", "x", figures={"gbps": 50.0, "ratio": 0.5})
    assert row.optimum == pytest.approx(100 * 99 / (99 + 31))
    assert RATE.optimum is None


def test_goodput_on_a_bad_network_is_near_what_go_back_n_can_reach() -> None:
    lossy = [row for row in load() if row.figures and row.optimum]
    assert len(lossy) >= 3
    for row in lossy:
        assert row.figures["gbps"] >= 0.9 * row.optimum, row


def test_first_recording() -> None:
    facts = {"gbps": 1.23456, "mmsg_s": 2.0, "ratio": 0.5, "cycles": 7}
    row = figures(replace(RATE, figures={}), facts)
    assert row.figures == {"gbps": 1.2346, "mmsg_s": 2.0, "ratio": 0.5}
    assert verdict(replace(RATE, figures={}), row)[1].endswith("never recorded: record it")


def test_page_of_other_rows() -> None:
    text = "a\n" + recorded._BEGIN.format("rates") + "\nold\n" + recorded._END + "\nb\n"
    written = page([RATE], text)
    assert "| `write_bw -s 64` | 10.00 | 19.50 | 30.0 % |  |" in written and "old" not in written
    assert written.startswith("a\n") and written.endswith("\nb\n")
    assert page([RATE], written) == written
    with pytest.raises(ValueError, match="no place for the table 'times'"):
        page([RATE, TIME], text)


def test_unknown_row_is_one_line() -> None:
    result = CliRunner().invoke(cli.rocinante, ["figures", "nothing"])
    assert result.exit_code == 2 and "No row of the table is nothing" in result.output
