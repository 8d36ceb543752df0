"""The whole NIC with XRC: T-X1 to T-X17, as far as they need two cards; each bench has the name of
its scenario. ``tests/firmware/test_xrc.py`` has those of the commands."""

import pytest

from hdl.config import NicConfig
from sim.bench import testbench
from sim.rtl.build import run

#: Of each bench what runs at 512 bits on a card with more switches: packets in flight, losses,
#: several queues.
WIDE = {
    "xrc": ["t_x1_two_processes", "t_x8_bad_network"],
    "xrc_errors": ["t_x5_number_changes_in_a_message", "t_x9_queue_goes_in_a_message"],
    "xrc_shared": ["t_x2_both_directions"],
}


@pytest.mark.parametrize("width", [64, pytest.param(512, marks=pytest.mark.slow)])
@pytest.mark.parametrize("bench", ["xrc", "xrc_cm", "xrc_errors", "xrc_shared"])
def test_xrc(bench, width):
    run(
        testbench.build(config=NicConfig(width=width, xrc=True)),
        test_module=f"tests.nic.bench_{bench}",
        extra_env={"ROCINANTE_WIDTH": str(width)},
        timeout_s=900,
    )


@pytest.mark.slow
@pytest.mark.parametrize("bench", WIDE)
def test_wide(bench):
    """On the card of ``test_mp_wr``, so that there is one model of this width."""
    run(
        testbench.build(config=NicConfig(width=512, xrc=True, mp_wr=True)),
        test_module=f"tests.nic.bench_{bench}",
        testcase=WIDE[bench],
        extra_env={"ROCINANTE_WIDTH": "512", "ROCINANTE_MP_WR": "1"},
        timeout_s=900,
    )
