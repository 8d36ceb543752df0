"""GIDs as bytes and as text."""

from __future__ import annotations

import ipaddress


def gid_bytes(gid: str | bytes) -> bytes:
    """A GID as 16 raw bytes; text is an IPv6 address or an IPv4 address, which is mapped.

    Raises ValueError that shows a bad value.
    """
    if isinstance(gid, bytes):
        if len(gid) != 16:
            raise ValueError(f"A GID has 16 bytes, not {gid!r}")
        return gid
    address = ipaddress.ip_address(gid)
    if address.version == 4:
        address = ipaddress.ip_address(f"::ffff:{address}")
    return address.packed


def gid_text(gid: bytes) -> str:
    """A GID as text; one that maps an IPv4 address shows it: ::ffff:10.0.0.1."""
    address = ipaddress.IPv6Address(gid)
    mapped = address.ipv4_mapped
    return str(address) if mapped is None else f"::ffff:{mapped}"
