"""Cards on which the rows of 16 QPs of 1024 are on chip, and all rows in host memory."""

import pytest

from sim.bench import testbench
from sim.rtl.build import run
from tests.nic.card import HOT
from tests.nic.test_nic import BENCHES, NARROW

pytestmark = pytest.mark.slow  # a model of its own


def play(bench: str, cases=None) -> None:
    """Run a bench beside this file on such cards."""
    run(
        testbench.build(config=HOT),
        test_module=f"tests.nic.bench_{bench}",
        testcase=cases,
        extra_env={"ROCINANTE_WIDTH": "64", "ROCINANTE_HOT": "1"},
        timeout_s=900,
    )


def test_more_qps_than_places():
    play("hot")


@pytest.mark.parametrize("part", [0, 1])
def test_what_every_card_does(part):
    """The benches of the usual card, with the usual few QPs."""
    play("nic", (BENCHES + NARROW)[part::2])


@pytest.mark.parametrize("feature", ["atomics", "fast_regions", "services", "srq", "statuses"])
def test_feature(feature):
    play(feature)
