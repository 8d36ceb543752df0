"""Why a packet is dropped, and the counters of it."""

from amaranth.lib import data, enum

from hdl.common.count import BYTES, COUNT

__all__ = ["Cause", "IngressCounters"]


class Cause(enum.Enum, shape=5):
    """The first check a packet fails; checks are made in the order of docs/ingress.md."""

    FRAME = 0  # the MAC marked the frame (FCS, cut off)
    SHORT = 1  # ends before its IP header does, or before the IP length says
    MAC = 2  # another destination MAC address than the card's
    ETHERTYPE = 3  # neither IPv4 nor IPv6, with at most one VLAN tag
    IP_HEADER = 4  # IP version, IPv4 header length other than 20, fragment
    IPV4_CHECKSUM = 5
    IP_LENGTH = 6  # IPv4 total length less than the header
    NOT_ROCE = 7  # not UDP, or another destination port
    UDP_LENGTH = 8  # not what the IP length says
    UDP_CHECKSUM = 9  # not zero and wrong
    LENGTH = 10  # no room for the headers, no multiple of four, payload where none may be
    TVER = 11  # transport version not 0
    OPCODE = 12  # reserved, or a transport that is not served
    OVERSIZE = 13  # payload of more than 4096 bytes
    PKEY = 14  # that of no partition
    ADDRESS = 15  # destination is not in the GID table
    ICRC = 16
    CNP = 17  # a good congestion notification; counted, not delivered
    BUFFER = 18  # good, but no room
    MULTICAST = 19  # to a multicast MAC address that is not that of an attached group


class IngressCounters(data.Struct):
    """Delivered packets and their bytes (from the Ethernet header to the ICRC); drops by cause."""

    packets: COUNT
    bytes: BYTES
    drops_frame: COUNT
    drops_short: COUNT
    drops_mac: COUNT
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
    drops_multicast: COUNT
    drops_unclaimed: COUNT  # its group has no member any more
    multicast_copies: COUNT
