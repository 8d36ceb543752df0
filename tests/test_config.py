"""NicConfig: what it refuses, and what follows from it."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdl.config import LEAST_HOT, LIMITS, SWITCHES, CardFeature, NicConfig


@pytest.mark.parametrize(
    "field,value",
    [
        ("width", 48),
        ("width", 1024),
        ("mtu", 1000),
        ("qps", 100),
        ("qps", 32768),
        ("hot_qps", 8),
        ("hot_qps", 24),
        ("hot_qps", 128),
        ("cqs", 1),
        ("gids", 0),
        ("functions", 5),
        ("network", 3),
        ("queue_size", 4095),
        ("max_sge", 33),
        ("gather_bytes", 4096),
        ("receive_bytes", 4096),
        ("clock_hz", "250 MHz"),
        ("quantum", True),
        ("uc", 1),
    ],
)
def test_bad_value_is_named(field, value):
    with pytest.raises(ValueError, match=field) as caught:
        NicConfig(**{field: value})
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("name", sorted(SWITCHES))
def test_a_feature_that_is_not_built_is_refused(monkeypatch, name):
    monkeypatch.setattr("hdl.config.BUILT", frozenset({CardFeature.BASE}))
    with pytest.raises(ValueError, match=f"{name} must be False"):
        NicConfig(**dict.fromkeys(SWITCHES, False) | {name: True})
    assert NicConfig(**dict.fromkeys(SWITCHES, False)).features == {CardFeature.BASE}


def test_windows_need_fast_registration():
    assert NicConfig().windows and not NicConfig(mw=False).windows
    assert not NicConfig(fast_registration=False).windows


def test_multicast_needs_datagrams() -> None:
    assert NicConfig().multicast and not NicConfig(mcast=False).multicast
    assert not NicConfig(ud=False).multicast
    assert NicConfig(groups=32, functions=3).guest.groups == 8


def test_network_function_stands_beside_one_function() -> None:
    assert NicConfig(network=8).guest.network == 8
    with pytest.raises(ValueError, match="network must be 0 with functions 2, not 1"):
        NicConfig(network=1, functions=2)
    with pytest.raises(ValueError, match="parity must be False where network is not 0"):
        NicConfig(network=1, parity=True)
    card = NicConfig(network=8)
    assert (card.driven, card.shared) == (2, True)
    assert (card.network_queues, card.network_vectors) == (17, 18)
    assert not NicConfig().shared and NicConfig(functions=2).shared


@given(st.sampled_from(sorted(LIMITS)), st.integers(-10, 1 << 31))
def test_limits_hold(field, value):
    low, high, power = LIMITS[field]
    good = low <= value <= high and not (power and value & (value - 1))
    buffers = {"gather_bytes", "receive_bytes"}
    smallest = {"trace_frames": 2, "hot_qps": LEAST_HOT}.get(field, low)
    if low < value < smallest:
        good = False  # none at all, or some
    if good and (field not in buffers or value >= 2 * NicConfig().mtu):
        assert getattr(NicConfig(**{field: value}), field) == value
    else:
        with pytest.raises(ValueError, match=field):
            NicConfig(**{field: value})


@pytest.mark.parametrize("functions", [1, 2, 3, 4])
def test_numbers_of_queues(functions):
    """In a function they follow one another; those of two functions have nothing in common."""
    config = NicConfig(qps=32, cqs=16, functions=functions)
    guest = config.guest
    numbers = [0, *(config.cq_queue(n) for n in range(guest.cqs))]
    numbers += [n for qp in range(guest.qps) for n in (config.sq_queue(qp), config.rq_queue(qp))]
    numbers.append(config.event_queue)
    assert numbers == list(range(guest.queues))
    step = 1 << config.number_bits["queues"]
    card = [ordinal * step + n for ordinal in range(functions) for n in numbers]
    assert len(set(card)) == len(card) and max(card) == config.queues - 1
    assert config.management_function == functions + 1


@pytest.mark.parametrize("functions,share", [(1, 1), (2, 2), (3, 4), (4, 4)])
def test_shares(functions, share):
    config = NicConfig(functions=functions)
    for name in ("qps", "cqs", "mrs", "gids", "read_resources"):
        assert getattr(config.guest, name) == getattr(config, name) // share
    assert config.guest.functions == 1 and config.guest.guest is config.guest
    most = NicConfig(functions=functions, qps=16384, cqs=16384, mrs=65536)
    assert most.queues <= 1 << 16


def test_too_little_for_each():
    with pytest.raises(ValueError, match="functions 4 leave too little to each: qps must be 4"):
        NicConfig(functions=4, qps=8)


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        NicConfig().width = 64


def test_rows_of_hot_qps_have_no_parity():
    assert NicConfig(qps=1024, hot_qps=16).guest.qps == 1024
    assert NicConfig(qps=64, hot_qps=16, functions=4).guest.hot_qps == 0
    with pytest.raises(ValueError, match="parity must be False where hot_qps is not 0"):
        NicConfig(hot_qps=16, parity=True)


def test_packed_rings_are_read_ahead():
    assert not NicConfig().packed and NicConfig(packed=True).packed
    with pytest.raises(ValueError, match="packed must be False where wqes_ahead is 1"):
        NicConfig(packed=True, wqes_ahead=1)
    with pytest.raises(ValueError, match="push must be False where wqes_ahead is 1"):
        NicConfig(push=True, wqes_ahead=1)


def test_a_card_without_a_cache_of_pages():
    assert NicConfig(translation_lines=0, two_level=False).translation_lines == 0
    with pytest.raises(ValueError, match="translation_lines must be 0 or at least 8, not 4"):
        NicConfig(translation_lines=4)
    with pytest.raises(ValueError, match="two_level must be False where translation_lines is 0"):
        NicConfig(translation_lines=0)
