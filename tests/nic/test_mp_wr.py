"""The whole NIC with receive requests that take several packets: T-M1 to T-M16, as far as they need
two cards; each bench has the name of its scenario. ``tests/firmware/test_mp_wr.py`` has those of
the commands."""

import pytest

from tests.nic.features import WIDTHS, play


@WIDTHS
@pytest.mark.parametrize("bench", ["mp_wr", pytest.param("mp_wr_shared", marks=pytest.mark.slow)])
def test_mp_wr(bench, width):
    play(bench, width)
