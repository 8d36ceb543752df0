"""Handles, slices, numbers."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firmware.objects import Handles, Limits, Objects, Pd, Refused, SlicePool
from hdl.abi.enums import QpType
from hdl.config import NicConfig


@given(st.lists(st.integers(0, 12), max_size=60), st.integers(0, 4))
def test_handles(actions, reserved):
    """Against a set: the lowest free number comes first, numbers on demand must be free."""
    handles: Handles[Pd] = Handles("thing", 8, reserved)
    taken: set[int] = set()
    for action in actions:
        free = [n for n in range(reserved, 8) if n not in taken]
        if action < 8 and action in taken:
            handles.remove(action)
            taken.remove(action)
        elif action < 8:
            assert handles.add(Pd, action).number == action
            taken.add(action)
        elif free:
            number = handles.add(Pd).number
            assert number == free[0]
            taken.add(number)
        else:
            with pytest.raises(Refused, match=f"All {8 - reserved} things are in use"):
                handles.add(Pd)
        assert len(handles) == len(taken)
        assert {thing.number for thing in handles.all()} == taken


def test_handles_on_demand():
    handles: Handles[Pd] = Handles("thing", 8)
    handles.add(Pd, 3)
    for number in (3, 8, -1):
        with pytest.raises(Refused, match=f"thing {number} is in use or does not exist"):
            handles.add(Pd, number)
    with pytest.raises(Refused, match="No thing 0x4"):
        handles.get(4)


@given(st.lists(st.integers(0, 16), max_size=40), st.randoms(use_true_random=False))
def test_slices(requests, random):
    pool = SlicePool(32)
    held = []
    for entries in requests:
        if held and random.random() < 0.3:
            pool.give(held.pop(random.randrange(len(held))))
        try:
            held.append(pool.take(entries))
        except Refused:
            size = 1 << (entries - 1).bit_length()
            for base in range(0, 32, size):
                assert any(base < s.base + s.size and s.base < base + size for s in held)
        places = [n for s in held for n in range(s.base, s.base + s.size)]
        assert len(places) == len(set(places)) and all(n < 32 for n in places)
        assert all(s.size >= 1 or s.base == 0 for s in held)


def test_qpns_stay_in_24_bits():
    config = NicConfig(qps=16384)
    objects = Objects(Limits.of(config, frozenset({QpType.RC})))
    numbers = [objects.next_qpn(16383) for _ in range(1023)]
    assert len(set(numbers)) == 1023
    assert all(n < 0xFFFFFF and n % 16384 == 16383 for n in numbers)
    assert objects.next_qpn(16383) == numbers[0]
    assert objects.next_qpn(1) == objects.next_qpn(1) == 1


@given(st.randoms(use_true_random=False), st.lists(st.integers(0, 9), min_size=1, max_size=30))
def test_slices_are_taken_again(rng, entries):
    """In any order, and what is free then is what was free before; no slice twice."""
    pool, slices = SlicePool(64), []
    for count in entries:
        with contextlib.suppress(Refused):
            slices.append(pool.take(count))
        if slices and rng.random() < 0.3:
            pool.give(slices.pop(rng.randrange(len(slices))))
    rng.shuffle(slices)
    again = SlicePool(64)
    for one in slices:
        again.take_again(one)
    assert (again._free, again._taken) == (pool._free, pool._taken)
    for one in slices:
        if one.size:
            with pytest.raises(ValueError, match="is not free"):
                again.take_again(one)
