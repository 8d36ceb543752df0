"""The whole NIC with DC: scenarios of two cards; each bench has the name of its scenario.
``tests/firmware/test_dc.py`` has those of the commands."""

import pytest

from tests.nic.features import WIDTHS, play

#: Of each bench what runs at 512 bits in each run: all operations, streams, copies.
WIDE = {
    "dc": ["t_d2_three_targets_in_turn"],
    "dc_memcpy": ["t_c7_in_its_stream"],
    "dc_streams": ["d_8_errors_of_all_kinds"],
}


@WIDTHS
@pytest.mark.parametrize("bench", ["dc", "dc_errors", "dc_memcpy", "dc_streams"])
def test_dc(bench, width):
    play(bench, width)


@pytest.mark.slow
@pytest.mark.parametrize("bench", WIDE)
def test_wide(bench):
    play(bench, 512, WIDE[bench])


@pytest.mark.slow
def test_dc_many():
    """In the numbers of the specification's tests."""
    play("dc_many", 64, timeout_s=3600)
