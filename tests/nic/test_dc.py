"""The whole NIC with DC: scenarios of two cards; each bench has the name of its scenario.
``tests/firmware/test_dc.py`` has those of the commands."""

import pytest

from tests.nic.features import WIDTHS, play


@WIDTHS
@pytest.mark.parametrize("bench", ["dc", "dc_errors", "dc_memcpy", "dc_peer", "dc_streams"])
def test_dc(bench, width):
    play(bench, width)


@pytest.mark.slow
def test_dc_many():
    """In the numbers of the specification's tests."""
    play("dc_many", 64, timeout_s=3600)
