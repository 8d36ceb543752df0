"""Numbers of the protocols around RoCE v2: ports, types, syndromes, sizes and ICRC facts."""

from __future__ import annotations

from .headers import BTH, ETHERNET, IPV4, IPV6, UDP, VLAN, Header

__all__ = [
    "ETHERTYPE_IPV4",
    "ETHERTYPE_IPV6",
    "ETHERTYPE_SERVICE_VLAN",
    "ETHERTYPE_VLAN",
    "ICRC_BYTES",
    "ICRC_INITIAL",
    "ICRC_RESIDUE",
    "IP_PROTOCOL_TCP",
    "IP_PROTOCOL_UDP",
    "MAC_IPV4_GROUP",
    "MAC_IPV6_GROUP",
    "MAX_MTU",
    "MAX_PAD",
    "MIN_FRAME",
    "MIN_HEADERS",
    "MULTICAST_QPN",
    "NAK_INVALID_REQUEST",
    "NAK_REMOTE_ACCESS",
    "NAK_REMOTE_OPERATION",
    "NAK_SEQUENCE",
    "PKEY_MASK",
    "ROCE_PORT",
    "SYNDROME_ACK",
    "SYNDROME_ACK_NO_LIMIT",
    "SYNDROME_RNR",
    "RNR_TIMER_MS",
    "VARIANT_FIELDS",
    "ip_offset",
    "bth_offset",
    "icrc_masks",
    "MAPPED_BITS",
    "mapped_gid",
    "is_mapped_gid",
]

ETHERTYPE_IPV4 = 0x0800
ETHERTYPE_VLAN = 0x8100
ETHERTYPE_IPV6 = 0x86DD
#: In front of the VLAN tag proper (IEEE 802.1Q, 9.4: S-TAG).
ETHERTYPE_SERVICE_VLAN = 0x88A8
IP_PROTOCOL_TCP, IP_PROTOCOL_UDP = 6, 17
#: UDP destination port of RoCE v2 (IBTA Annex A17).
ROCE_PORT = 4791
#: Smallest Ethernet frame without its FCS (IEEE 802.3, 4A.2.3.2.4).
MIN_FRAME = 60
#: Begin the MAC addresses of groups (RFC 1112, 6.4: 25 bits, the last one 0; RFC 2464, 7).
MAC_IPV4_GROUP, MAC_IPV6_GROUP = b"\x01\x00\x5e", b"\x33\x33"
#: Destination QP of each datagram to a group (IBTA vol 1, 10.5.2).
MULTICAST_QPN = 0xFFFFFF
MAX_MTU = 4096
MAX_PAD = 3
#: The partition in a P_Key; the bit above it says full member. 0 is no partition.
PKEY_MASK = 0x7FFF

# AETH syndromes (IBTA vol 1, 9.7.5.1.1): the low five bits are credit, timer or NAK code.
SYNDROME_ACK = 0x00
SYNDROME_ACK_NO_LIMIT = 0x1F
SYNDROME_RNR = 0x20
NAK_SEQUENCE = 0x60
NAK_INVALID_REQUEST = 0x61
NAK_REMOTE_ACCESS = 0x62
NAK_REMOTE_OPERATION = 0x63

#: RNR NAK timer, ms by code (IBTA vol 1, 9.7.5.2.8).
RNR_TIMER_MS = (
    *(655.36, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12),
    *(0.16, 0.24, 0.32, 0.48, 0.64, 0.96, 1.28, 1.92),
    *(2.56, 3.84, 5.12, 7.68, 10.24, 15.36, 20.48, 30.72),
    *(40.96, 61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52),
)

ICRC_BYTES = 4
#: Register after 8 bytes FFh (in place of the missing LRH) from FFFFFFFFh; Annex A17, A17.3.3.
ICRC_INITIAL = 0xDEBB20E3
#: Register after a packet with its own ICRC: the constant of every CRC-32 sent complemented.
ICRC_RESIDUE = 0xDEBB20E3

#: Fields that may change on the way and count as all ones in the ICRC.
VARIANT_FIELDS: dict[Header, tuple[str, ...]] = {
    IPV4: ("traffic_class", "ttl", "checksum"),
    IPV6: ("traffic_class", "flow_label", "hop_limit"),
    UDP: ("checksum",),
    BTH: ("fecn", "becn", "reserved6"),
}


def ip_offset(*, vlan: bool) -> int:
    """Byte of the frame at which the IP header starts."""
    return ETHERNET.size + (VLAN.size if vlan else 0)


def bth_offset(*, vlan: bool, ipv6: bool) -> int:
    """Byte of the frame at which the BTH starts."""
    return ip_offset(vlan=vlan) + (IPV6 if ipv6 else IPV4).size + UDP.size


#: Headers of the shortest packet: Ethernet, IPv4, UDP, BTH.
MIN_HEADERS = bth_offset(vlan=False, ipv6=False) + BTH.size


def icrc_masks(*, vlan: bool, ipv6: bool) -> tuple[bytes, bytes, bytes]:
    """Masks (ones, zeros, flip) over the bytes of a frame up to the end of its BTH.

    With each byte replaced by ``(byte | ones) & ~zeros ^ flip``, a CRC register that starts at 0
    ends as the ICRC's: the Ethernet bytes become leading zeros, which cost nothing, and the first
    four bytes of the IP header carry the register's start.
    """
    ip = ip_offset(vlan=vlan)
    bth = bth_offset(vlan=vlan, ipv6=ipv6)
    size = bth + BTH.size
    ones = 0
    for header, at in ((IPV6 if ipv6 else IPV4, ip), (UDP, bth - UDP.size), (BTH, bth)):
        for name in VARIANT_FIELDS[header]:
            field = header[name]
            last = 8 * (size - at) - field.start - field.width
            ones |= ((1 << field.width) - 1) << last
    zeros = bytes([0xFF] * ip) + bytes(size - ip)
    flip = bytes(ip) + ICRC_INITIAL.to_bytes(4, "little") + bytes(size - ip - 4)
    return ones.to_bytes(size, "big"), zeros, flip


#: What the GID of an IPv4 address begins with (RFC 4291, 2.5.5.2).
_MAPPED = bytes(10) + b"\xff\xff"
#: Bits that the GIDs of all IPv4 addresses have alike, the first of a GID.
MAPPED_BITS = 8 * len(_MAPPED)


def mapped_gid(address: bytes) -> bytes:
    """The GID of an IPv4 address: ::ffff:a.b.c.d."""
    if len(address) != 4:
        raise ValueError(f"An IPv4 address has 4 bytes, not {address!r}")
    return _MAPPED + bytes(address)


def is_mapped_gid(gid: bytes) -> bool:
    """Whether packets of this GID have an IPv4 header; those of all others have an IPv6 one."""
    return gid[: len(_MAPPED)] == _MAPPED
