"""The whole NIC with WQEs that come with their doorbell (docs/extensions.md)."""

import pytest

from hdl.config import NicConfig
from sim.bench import testbench
from sim.rtl.build import run


@pytest.mark.parametrize("width", [64, pytest.param(512, marks=pytest.mark.slow)])
def test_push(width):
    run(
        testbench.build(config=NicConfig(width=width, functions=2, packed=True, push=True)),
        test_module="tests.nic.bench_push",
        extra_env={"ROCINANTE_WIDTH": str(width)},
        timeout_s=900,
    )
