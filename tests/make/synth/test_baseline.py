"""What the gateware costs against the figures in the repository.

A change that makes a part 5 % dearer, or a path deeper, fails here. When that is meant, take the
command that the failure ends with, and say why in the commit. A part whose Verilog and tools are
those that its figures come from is not mapped again.
"""

from __future__ import annotations

import pytest

from sim.make.synth import baseline
from sim.make.synth.parts import choose, configuration
from sim.make.synth.report import measure

#: The larger components whose mapping takes seconds: SendFetch alone takes minutes.
COMPARED = (
    "ingress",
    "egress",
    "gather",
    "scatter",
    "scheduler",
    "requester",
    "replier",
    "reads",
    "writes",
)


@pytest.mark.parametrize("name", COMPARED)
def test_component(name: str) -> None:
    config = configuration(64, size="small")
    (part,) = choose(config, (name,))
    title = baseline.title("xcup", config)
    if baseline.unchanged(title, part, "xcup"):
        return
    found = baseline.compare(title, [measure(part, "xcup")])
    assert not found, (
        f"If this is meant: ./rocinante synth --width 64 --small --room {name} --update-baseline"
    )
