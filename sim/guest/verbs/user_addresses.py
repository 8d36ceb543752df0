"""Process addresses of regions, which lie where the device takes them.

A process has no page tables here: a region's address only stands in SGEs and in packets, and the
device translates it by the region's page list.
"""

from __future__ import annotations

from functools import cache

from hdl.abi.virtio_rdma import PAGE_SIZE

__all__ = ["UserAddresses", "user_addresses"]


class UserAddresses:
    """Hands out addresses below ``span``, a power of two of at least 64 KiB, from its middle on.

    Addresses differ until the upper half has been used up; from then on those of old regions come
    again. That does no harm: the key of an access says which region it means.
    """

    def __init__(self, span: int):
        self._first, self._end = span // 256 * 127, span
        self._unit = max(span >> 14, PAGE_SIZE)
        self._next = self._first

    def take(self, length: int, offset: int) -> int:
        """The address of ``length`` bytes that begin ``offset`` bytes into a page.

        What fits nowhere gets an address all the same: it is the device that refuses it.
        """
        size = -(-(offset + length) // self._unit) * self._unit
        if self._next + size > self._end:
            self._next = self._first
        address, self._next = self._next + offset, self._next + size
        return address


@cache
def user_addresses(max_mr_size: int) -> UserAddresses:
    """The addresses for devices with this ``max_mr_size``, which all of them share.

    Devices share them so that an address of one means nothing on another. A card that keeps fewer
    bits of an address than 64 says so by its ``max_mr_size`` (docs/memory.md), below which all of
    them lie.
    """
    return UserAddresses(1 << (max_mr_size + 1).bit_length() - 1)
