"""The whole NIC with FLUSH and ATOMIC WRITE, and without them.

T-P1 to T-P10 and T-P12 of the memory placement extensions; each bench has the name of its scenario,
or of its rule.
"""

import pytest

from hdl.config import NicConfig
from sim.bench import testbench
from sim.rtl.build import run
from tests.nic.test_nic import model


@pytest.mark.parametrize("width", [64, pytest.param(512, marks=pytest.mark.slow)])
@pytest.mark.parametrize("bench", ["placement", "placement_order"])
def test_flush_and_atomic_write(bench, width):
    run(
        testbench.build(config=NicConfig(width=width, placement=True, persistence=True)),
        test_module=f"tests.nic.bench_{bench}",
        extra_env={"ROCINANTE_WIDTH": str(width)},
        timeout_s=900,
    )


@pytest.mark.parametrize("width", [64, pytest.param(512, marks=pytest.mark.slow)])
def test_card_without_them(width):
    run(
        model(width),
        test_module="tests.nic.bench_without_placement",
        extra_env={"ROCINANTE_WIDTH": str(width)},
        timeout_s=600,
    )
