"""The quick rows of the recorded table, measured again: no change loses speed unseen."""

from __future__ import annotations

import warnings

import pytest

from sim.measure.perf.command import measure, plan_of
from sim.measure.perf.recorded import Recorded, figures, load, verdict


@pytest.mark.parametrize(
    "row", [row for row in load() if row.quick], ids=lambda row: row.command.replace(" ", "_")
)
def test_figure(row: Recorded) -> None:
    (found,) = measure(plan_of(row.command))
    gain, line = verdict(row, figures(row, found.json))
    assert gain >= -row.tolerance, line
    if gain > row.tolerance:
        warnings.warn(line, stacklevel=1)
