"""The whole NIC with FLUSH and ATOMIC WRITE, and without them.

T-P1 to T-P10 and T-P12 of the memory placement extensions; each bench has the name of its scenario,
or of its rule.
"""

import pytest

from sim.rtl.build import run
from tests.nic.features import WIDTHS, play
from tests.nic.test_nic import model


@WIDTHS
@pytest.mark.parametrize(
    "bench", ["placement", pytest.param("placement_order", marks=pytest.mark.slow)]
)
def test_flush_and_atomic_write(bench, width):
    play(bench, width)


@WIDTHS
def test_card_without_them(width):
    run(
        model(width),
        test_module="tests.nic.bench_without_placement",
        extra_env={"ROCINANTE_WIDTH": str(width)},
        timeout_s=600,
    )
