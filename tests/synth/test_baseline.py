"""What the gateware costs against the figures in the repository.

A change that makes a part 5 % dearer, or a path deeper, fails here. When that is meant, take the
command that the failure ends with, and say why in the commit.
"""

from __future__ import annotations

import pytest

from hdl.config import NicConfig
from sim.synth import baseline
from sim.synth.parts import WHOLE, choose, configuration
from sim.synth.report import measure

#: In every run of the tests; all with ./rocinante synth --width 64 --small --check.
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


def check(config: NicConfig, name: str, update: str) -> None:
    (part,) = choose(config, (name,))
    found = baseline.compare(baseline.title("xcup", config), [measure(part, "xcup")])
    assert not found, f"If this is meant: ./rocinante synth {update} --update-baseline"


@pytest.mark.parametrize("name", COMPARED)
def test_component(name: str) -> None:
    check(configuration(64, small=True), name, "--width 64 --small --all-rooms")


@pytest.mark.slow
def test_whole() -> None:
    """Half an hour and more, the first time."""
    check(configuration(512, ("qps=1024",)), WHOLE, "--config qps=1024")
