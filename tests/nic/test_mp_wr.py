"""The whole NIC with receive requests that take several packets: T-M1 to T-M16, as far as they need
two cards; each bench has the name of its scenario. ``tests/firmware/test_mp_wr.py`` has those of
the commands."""

import pytest

from hdl.config import NicConfig
from sim.bench import testbench
from sim.rtl.build import run


@pytest.mark.parametrize("width", [64, pytest.param(512, marks=pytest.mark.slow)])
@pytest.mark.parametrize("bench", ["mp_wr", "mp_wr_shared"])
def test_mp_wr(bench, width):
    run(
        testbench.build(config=NicConfig(width=width, xrc=True, mp_wr=True)),
        test_module=f"tests.nic.bench_{bench}",
        extra_env={"ROCINANTE_WIDTH": str(width)},
        timeout_s=900,
    )
