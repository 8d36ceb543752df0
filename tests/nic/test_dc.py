"""The whole NIC with DC: scenarios of two cards; each bench has the name of its scenario.
``tests/firmware/test_dc.py`` has those of the commands."""

import pytest

from hdl.config import NicConfig
from sim.bench import testbench
from sim.rtl.build import run


@pytest.mark.parametrize("width", [64, pytest.param(512, marks=pytest.mark.slow)])
@pytest.mark.parametrize("bench", ["dc", "dc_errors", "dc_memcpy", "dc_streams"])
def test_dc(bench, width):
    simulate(bench, width)


@pytest.mark.slow
def test_dc_many():
    """In the numbers of the specification's tests."""
    simulate("dc_many", 64)


def simulate(bench, width):
    run(
        testbench.build(config=NicConfig(width=width, dc=True, memcpy=True)),
        test_module=f"tests.nic.bench_{bench}",
        extra_env={"ROCINANTE_WIDTH": str(width)},
        timeout_s=3600,
    )
