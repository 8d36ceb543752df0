"""Several flows in one run of ``perf``: what is refused, and a mixed run."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from sim.measure.perf.command import measure_flows, perf
from sim.measure.perf.flows import Mixed
from sim.measure.perf.plan import Plan


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "OP or --flow is missing"),
        (["write_bw", "--flow", "read_lat"], "OP and --flow exclude each other"),
        (["-s", "64", "--flow", "read_lat"], "--size stands in the text of a --flow"),
        (["--flow", "read_lat --width 64"], "--width is no option of a flow"),
        (["--flow", "-s 64"], "OP is missing"),
        (["--flow", "write_bw -q 100", "--flow", "send_bw -q 100"], "200 QPs need another card"),
        (["--flow", "write_bw -s 8388608"] * 8, "256 MiB are needed, at most 224"),
        (["write_bw", "-D", "5"], "-D: a run has a number of messages"),
        (["write_bw", "-R"], "-R: there is no connection manager"),
    ],
)
def test_bad_flows_are_one_line(words: list[str], message: str) -> None:
    found = CliRunner().invoke(perf, words)
    assert found.exit_code == 2 and message in found.output


def test_no_warm_up() -> None:
    for op in ("write_bw", "read_lat"):
        assert Plan(op=op, sizes=(64,), cold=True).shape(64).warm == 0


def test_two_flows_together() -> None:
    """Latency one way while messages go the other: both are verified and have percentiles."""
    few = {"sizes": (64,), "width": 64}
    read = Plan(op="read_lat", iters=10, **few)  # type: ignore[arg-type]
    write = Plan(op="write_bw", qps=2, tx_depth=16, iters=40, **few)  # type: ignore[arg-type]
    facts = measure_flows([Mixed(read, "read", False), Mixed(write, "write", True)])
    assert [one["direction"] for one in facts] == ["a to b", "b to a"]
    assert facts[0]["messages"] == 10 and facts[1]["messages"] >= 80
    for one in facts:
        took = one["latency_ns"]
        assert 0 < took["min"] <= took["p50"] <= took["p99"] <= took["p99.9"] <= took["max"]
        assert one["bytes_verified"] >= one["messages"] * 64
