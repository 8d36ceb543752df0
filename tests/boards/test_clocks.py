"""Paths between the clocks of a board's top: each one in the netlist is constrained."""

import pytest

from boards.de10_agilex.top import De10AgilexTop
from boards.u55c.top import U55cTop
from hdl.common.constraints import PathKind, clock_paths
from tests.common.clock_lint import crossings


@pytest.mark.parametrize("top", [U55cTop, De10AgilexTop])
def test_every_path_between_clocks_is_constrained(top):
    """The netlist's paths are those that get a constraint; what the blocks do inside is theirs."""
    named = {
        (path.kind is PathKind.RESET, path.launch * (path.kind is not PathKind.RESET), path.capture)
        for path in clock_paths(top())
    }
    found = set()
    for path in crossings(top(), inputs={}):
        capture = path.capture.rstrip("0123456789") if path.reset else path.capture
        found.add((path.reset, "" if path.reset else path.launch, capture))
    # The requests for reset come from a block and from a pin, which have no clock here.
    runs = {(True, "", f"resets.runs_{name}.stage") for name in ("sync", "mac")}
    for one in ("start.{}_init", "tune.{}_tune"):
        runs |= {(True, "", f"{one.format(phase)}.stage") for phase in ("runs", "release")}
    assert found == named - runs
