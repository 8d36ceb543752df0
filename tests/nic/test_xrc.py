"""The whole NIC with XRC: T-X1 to T-X17, as far as they need two cards; each bench has the name of
its scenario. ``tests/firmware/test_xrc.py`` has those of the commands."""

import pytest

from hdl.config import NicConfig
from sim.bench import testbench
from sim.rtl.build import run


@pytest.mark.parametrize("width", [64, pytest.param(512, marks=pytest.mark.slow)])
@pytest.mark.parametrize("bench", ["xrc", "xrc_errors", "xrc_shared"])
def test_xrc(bench, width):
    run(
        testbench.build(config=NicConfig(width=width, xrc=True)),
        test_module=f"tests.nic.bench_{bench}",
        extra_env={"ROCINANTE_WIDTH": str(width)},
        timeout_s=900,
    )
