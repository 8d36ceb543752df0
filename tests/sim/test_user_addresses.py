"""Process addresses of regions lie where the card takes them."""

from itertools import pairwise

import pytest

from hdl.abi.limits import device_limits
from hdl.config import NicConfig
from sim.guest.verbs.user_addresses import UserAddresses, user_addresses


@pytest.mark.parametrize("bits", [24, 32, 45, 47, 64])
def test_regions_lie_in_what_the_card_keeps(bits):
    limits = device_limits(NicConfig(address_bits=bits))
    addresses = user_addresses(limits["max_mr_size"])
    for n in range(2000):
        length, offset = 1 + n * 7919 % 200_000, n * 31 % 4096
        at = addresses.take(length, offset)
        assert at % 4096 == offset
        assert at > 1 << 20 and at + length <= 1 << bits


def test_they_differ_until_half_has_been_used():
    addresses = UserAddresses(1 << 24)
    length, offset = 10_000, 5
    taken = [addresses.take(length, offset) for _ in range(600)]
    assert all(b - a == 3 * 4096 for a, b in pairwise(taken))
    assert addresses.take(1 << 23, 0) == (1 << 24) // 256 * 127
