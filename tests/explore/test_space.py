"""Points of a space, and which of them no other one beats."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdl.config import NicConfig
from sim.explore.space import METRICS, front, points


def test_all_combinations_are_points() -> None:
    found = points({"mrs": 64}, ["qps=64,256", "width=128,512", "srq=true"])
    assert [point.name for point in found] == [
        "qps=64 width=128 srq=True",
        "qps=64 width=512 srq=True",
        "qps=256 width=128 srq=True",
        "qps=256 width=512 srq=True",
    ]
    assert found[1].config == NicConfig(mrs=64, qps=64, width=512)
    assert points({}, [])[0].config == NicConfig()


def test_values_that_do_not_go_together_are_no_card() -> None:
    bad, good = points({"qps": 64}, ["hot_qps=64,16"])
    assert bad.config is None and "hot_qps must be" in bad.problem
    assert good.config is not None and not good.problem


@pytest.mark.parametrize("sweep", ["qps", "qp=64", "qps=64,many", "srq=1", "qps=64,64"])
def test_a_bad_sweep_is_named(sweep: str) -> None:
    with pytest.raises(ValueError, match="--sweep"):
        points({}, [sweep])
    with pytest.raises(ValueError, match="once"):
        points({}, ["qps=64", "qps=128"])


def test_more_is_better_of_a_rate_and_less_of_a_cost() -> None:
    rows = [
        {"lut": 100, "gbps": 10.0},
        {"lut": 200, "gbps": 20.0},
        {"lut": 250, "gbps": 20.0},  # dearer and no faster
        {"lut": 100, "gbps": 9.0},  # slower and no cheaper
        {"lut": 100, "gbps": 10.0},  # the same as the first
    ]
    assert front(rows, ["lut", "gbps"]) == {0, 1, 4}
    assert front(rows, ["lut"]) == {0, 3, 4}
    assert front(rows, ["gbps"]) == {1, 2}


NAMES = ("lut", "gbps", "latency")


@given(st.lists(st.tuples(*[st.integers(0, 6)] * 3), min_size=1, max_size=20))
def test_front_is_what_nobody_beats(figures: list[tuple[int, int, int]]) -> None:
    rows = [dict(zip(NAMES, one, strict=True)) for one in figures]

    def beats(one: dict[str, int], other: dict[str, int]) -> bool:
        better = {
            name: one[name] > other[name] if METRICS[name].more else one[name] < other[name]
            for name in NAMES
        }
        worse = any(one[name] != other[name] and not better[name] for name in NAMES)
        return any(better.values()) and not worse

    found = front(rows, NAMES)
    assert found == {
        number for number, row in enumerate(rows) if not any(beats(other, row) for other in rows)
    }
    assert found
