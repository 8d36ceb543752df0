"""Code coverage of whole cards: that the counters are where the branches are, in every room."""

from __future__ import annotations

import pytest

from hdl.config import NicConfig
from sim.bench import testbench
from sim.measure.branches import entered, rows
from sim.rtl import reached
from sim.rtl.build import run


@pytest.mark.slow
def test_one_bench_enters_branches_of_each_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(reached.SETTING, "1")
    done = run(
        testbench.build(config=NicConfig(width=64)),
        test_module="tests.nic.bench_nic",
        testcase="every_operation_at_the_edges",
        extra_env={"ROCINANTE_WIDTH": "64"},
        timeout_s=900,
    )
    found = rows(entered([done.folder / reached.FILE]))
    rooms = reached.rooms(found)
    assert {"host", "ingress", "egress", "memory", "queues", "transport"} <= rooms.keys()
    for room, files in rooms.items():
        whole = sum(row["bins"] for row in files)
        missing = sum(len(row["missing"]) for row in files)
        assert missing < whole, room
    # A message without an error leaves what only errors enter.
    assert any(row["missing"] for row in rooms["transport"])
