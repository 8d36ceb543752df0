"""Addresses of multicast groups, as driver and device know them (docs/extensions.md)."""

from __future__ import annotations

from hdl.wire.constants import MAC_IPV4_GROUP, MAC_IPV6_GROUP, MULTICAST_QPN, is_mapped_gid

__all__ = ["MULTICAST_QPN", "is_multicast_gid", "multicast_mac"]


def is_multicast_gid(gid: bytes) -> bool:
    """Whether this GID is the address of a group (RFC 4291, 2.7; RFC 1112, 4)."""
    return gid[0] == 0xFF or (is_mapped_gid(gid) and gid[12] >> 4 == 0xE)


def multicast_mac(gid: bytes) -> bytes:
    """The MAC address of frames to a group: RFC 2464, 7; of IPv4 RFC 1112, 6.4."""
    if is_mapped_gid(gid):
        return MAC_IPV4_GROUP + bytes([gid[13] & 0x7F]) + gid[14:]
    return MAC_IPV6_GROUP + gid[12:]
