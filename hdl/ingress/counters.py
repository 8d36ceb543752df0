"""Why a packet is dropped, and the counters of it."""

from amaranth.lib import data, enum

__all__ = ["Cause", "IngressCounters"]


class Cause(enum.Enum, shape=5):
    """The first check a packet fails; checks are made in the order of docs/ingress.md."""

    FRAME = 0  # the MAC marked the frame (FCS, cut off)
    SHORT = 1  # ends before its IP header does, or before the IP length says
    ETHERTYPE = 2  # neither IPv4 nor IPv6, with at most one VLAN tag
    IP_HEADER = 3  # IP version, IPv4 header length other than 20, fragment
    IPV4_CHECKSUM = 4
    IP_LENGTH = 5  # IPv4 total length less than the header
    NOT_ROCE = 6  # not UDP, or another destination port
    UDP_LENGTH = 7  # not what the IP length says
    UDP_CHECKSUM = 8  # not zero and wrong
    LENGTH = 9  # no room for the headers, no multiple of four, payload where none may be
    TVER = 10  # transport version not 0
    OPCODE = 11  # reserved, or a transport that is not served
    OVERSIZE = 12  # payload of more than 4096 bytes
    PKEY = 13  # not the default partition
    ADDRESS = 14  # destination is no GID of ours
    ICRC = 15
    CNP = 16  # a good congestion notification; counted, not delivered
    BUFFER = 17  # good, but no room


class IngressCounters(data.Struct):
    """Delivered packets and their bytes (from the Ethernet header to the ICRC); drops by cause."""

    packets: 32
    bytes: 64
    drops_frame: 32
    drops_short: 32
    drops_ethertype: 32
    drops_ip_header: 32
    drops_ipv4_checksum: 32
    drops_ip_length: 32
    drops_not_roce: 32
    drops_udp_length: 32
    drops_udp_checksum: 32
    drops_length: 32
    drops_tver: 32
    drops_opcode: 32
    drops_oversize: 32
    drops_pkey: 32
    drops_address: 32
    drops_icrc: 32
    drops_cnp: 32
    drops_buffer: 32
