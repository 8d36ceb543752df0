"""Why a packet is dropped, and the counters of it."""

from amaranth.lib import data, enum

from hdl.common.count import BYTES, COUNT

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
    ADDRESS = 14  # destination is not in the GID table
    ICRC = 15
    CNP = 16  # a good congestion notification; counted, not delivered
    BUFFER = 17  # good, but no room


class IngressCounters(data.Struct):
    """Delivered packets and their bytes (from the Ethernet header to the ICRC); drops by cause."""

    packets: COUNT
    bytes: BYTES
    drops_frame: COUNT
    drops_short: COUNT
    drops_ethertype: COUNT
    drops_ip_header: COUNT
    drops_ipv4_checksum: COUNT
    drops_ip_length: COUNT
    drops_not_roce: COUNT
    drops_udp_length: COUNT
    drops_udp_checksum: COUNT
    drops_length: COUNT
    drops_tver: COUNT
    drops_opcode: COUNT
    drops_oversize: COUNT
    drops_pkey: COUNT
    drops_address: COUNT
    drops_icrc: COUNT
    drops_cnp: COUNT
    drops_buffer: COUNT
