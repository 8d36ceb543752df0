"""NicConfig: what it refuses, and what follows from it."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdl.config import LIMITS, NicConfig


@pytest.mark.parametrize(
    "field,value",
    [
        ("width", 48),
        ("width", 1024),
        ("mtu", 1000),
        ("qps", 100),
        ("qps", 32768),
        ("cqs", 1),
        ("gids", 0),
        ("functions", 2),
        ("queue_size", 4095),
        ("max_sge", 33),
        ("gather_bytes", 4096),
        ("receive_bytes", 8192),
        ("clock_hz", "250 MHz"),
        ("quantum", True),
    ],
)
def test_bad_value_is_named(field, value):
    with pytest.raises(ValueError, match=field) as caught:
        NicConfig(**{field: value})
    assert repr(value) in str(caught.value)


@given(st.sampled_from(sorted(LIMITS)), st.integers(-10, 1 << 31))
def test_limits_hold(field, value):
    low, high, power = LIMITS[field]
    good = low <= value <= high and not (power and value & (value - 1))
    buffers = {"gather_bytes", "receive_bytes"}
    if good and (field not in buffers or value >= 2 * NicConfig().mtu):
        assert getattr(NicConfig(**{field: value}), field) == value
    else:
        with pytest.raises(ValueError, match=field):
            NicConfig(**{field: value})


def test_queue_numbers_do_not_overlap():
    config = NicConfig(qps=8, cqs=4)
    numbers = [0, *(config.cq_queue(n) for n in range(4))]
    numbers += [n for qp in range(8) for n in (config.sq_queue(qp), config.rq_queue(qp))]
    assert numbers == list(range(config.queues))


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        NicConfig().width = 64
