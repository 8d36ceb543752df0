"""The whole NIC with XRC: T-X1 to T-X17, as far as they need two cards; each bench has the name of
its scenario. ``tests/firmware/test_xrc.py`` has those of the commands."""

import pytest

from tests.nic.features import WIDTHS, play


@WIDTHS
@pytest.mark.parametrize("bench", ["xrc", "xrc_cm", "xrc_errors", "xrc_shared"])
def test_xrc(bench, width):
    play(bench, width)
