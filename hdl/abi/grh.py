"""The 40 bytes in front of a datagram's payload in memory: who sent it, and to which address.

Spec: virtio-rdma VR-5.23; IBTA vol 1, Annex A17; RFC 791 (checksum).
"""

from __future__ import annotations

from hdl.wire.headers import IPV4, IPV6

__all__ = ["ends"]

#: Leads an IPv4 address that is a GID.
_MAPPED = bytes(10) + b"\xff\xff"


def _ones_sum(header: bytes) -> int:
    """The ones' complement sum of 16-bit words: FFFFh for a good IPv4 header."""
    total = sum(int.from_bytes(header[at : at + 2], "big") for at in range(0, len(header), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def ends(grh: bytes) -> tuple[bytes, bytes]:
    """Source and destination GID; ValueError when there is neither an IPv4 nor an IPv6 header.

    An IPv4 header is in the last 20 bytes. Its checksum tells it from a part of an IPv6 header.
    """
    tail = grh[-IPV4.size :]
    ip4 = IPV4.unpack(tail)
    if (ip4["version"], ip4["ihl"]) == (4, 5) and _ones_sum(tail) == 0xFFFF:
        return (
            _MAPPED + ip4["source"].to_bytes(4, "big"),
            _MAPPED + ip4["destination"].to_bytes(4, "big"),
        )
    ip6 = IPV6.unpack(grh)
    if ip6["version"] != 6:
        raise ValueError(f"Neither IPv4 nor IPv6: {grh.hex()}")
    return ip6["source"].to_bytes(16, "big"), ip6["destination"].to_bytes(16, "big")
