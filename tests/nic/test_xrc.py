"""The whole NIC with XRC: T-X1 to T-X17, as far as they need two cards; each bench has the name of
its scenario. ``tests/firmware/test_xrc.py`` has those of the commands."""

import pytest

from tests.nic.features import WIDTHS, play

#: Of each bench what runs at 512 bits in each run: packets in flight, losses, several queues.
WIDE = {
    "xrc": ["t_x1_two_processes", "t_x8_bad_network"],
    "xrc_errors": ["t_x5_number_changes_in_a_message", "t_x9_queue_goes_in_a_message"],
    "xrc_shared": ["t_x2_both_directions"],
}


@WIDTHS
@pytest.mark.parametrize("bench", ["xrc", "xrc_cm", "xrc_errors", "xrc_shared"])
def test_xrc(bench, width):
    play(bench, width)


@pytest.mark.slow
@pytest.mark.parametrize("bench", WIDE)
def test_wide(bench):
    play(bench, 512, WIDE[bench])
