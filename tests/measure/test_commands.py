"""``commands`` on two whole NICs: how fast control commands are, what they cost the firmware."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from sim.measure.commands.command import MOST_QPS, commands

#: Register reads of each, by the firmware on a bus without latency; polls of busy windows differ a
#: little with what else the card does.
READS = {
    "CREATE_QP": 34,
    "MODIFY_QP, RESET to INIT": 34,
    "MODIFY_QP, INIT to RTR": 31,
    "MODIFY_QP, RTR to RTS": 52,
    "MODIFY_QP, RTS to RTS": 32,
    "QUERY_QP": 45,
    "MODIFY_QP, RTS to ERR": 33,
    "MODIFY_QP, ERR to RESET": 90,
    "DESTROY_QP": 95,
    "connection": 145,
}
#: MODIFY_QP a second that the card must do.
LEAST = 100_000


def test_rates_and_accesses() -> None:
    result = CliRunner().invoke(commands, ["--width", "64", "-q", "3", "--json", "-"])
    assert result.exit_code == 0, result.output
    rows = {row["what"]: row for row in json.loads(result.stdout)}
    assert list(rows) == list(READS)
    for name, row in rows.items():
        assert row["count"] == 3 and row["rate"] == pytest.approx(1e6 / row["us"])
        assert 8 <= row["reads"] <= READS[name], name
        if name.startswith("MODIFY_QP"):
            assert row["rate"] > LEAST, name


@pytest.mark.parametrize(
    "arguments", [["-q", str(MOST_QPS + 1)], ["--mmio-ns", "-1"], ["--poll-ns", "0"], ["-t", "0"]]
)
def test_bad_options(arguments: list[str]) -> None:
    result = CliRunner().invoke(commands, arguments)
    assert result.exit_code == 2
