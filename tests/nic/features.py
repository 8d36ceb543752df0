"""Runs benches on the card with every feature, of which there is one model for each width."""

from dataclasses import replace

import pytest

from sim.bench import testbench
from sim.bench.cards import EVERYTHING
from sim.rtl.build import run

#: 64 bits simulate soonest; at 512 bits all of a bench is for the slow runs.
WIDTHS = pytest.mark.parametrize("width", [64, pytest.param(512, marks=pytest.mark.slow)])


def play(bench: str, width: int, *, timeout_s: int = 900) -> None:
    """Run a bench beside this file."""
    run(
        testbench.build(config=replace(EVERYTHING, width=width)),
        test_module=f"tests.nic.bench_{bench}",
        extra_env={"ROCINANTE_WIDTH": str(width)},
        timeout_s=timeout_s,
    )
