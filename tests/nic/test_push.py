"""The whole NIC with WQEs that come with their doorbell (docs/extensions.md)."""

from dataclasses import replace

import pytest

from sim.bench import testbench
from sim.rtl.build import run
from tests.nic.card import PUSH


@pytest.mark.slow
@pytest.mark.parametrize("width", [64, 512])
def test_push(width):
    run(
        testbench.build(config=replace(PUSH, width=width)),
        test_module="tests.nic.bench_push",
        extra_env={"ROCINANTE_WIDTH": str(width)},
        timeout_s=900,
    )
