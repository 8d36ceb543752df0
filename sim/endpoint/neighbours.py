"""What a host answers beside its RDMA card: who has this address, and are you there.

Spec: RFC 826 (ARP); RFC 4861 7.1.1, 7.2.3, 7.2.4 (neighbour solicitation and advertisement);
RFC 792 and RFC 4443 4.1 (echo).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from ipaddress import IPv4Address, ip_address

from scapy.error import Scapy_Exception
from scapy.layers.inet import ICMP, IP
from scapy.layers.inet6 import (
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptSrcLLAddr,
    IPv6,
)
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet, Padding

__all__ = ["Neighbours"]

_IPV4, _ARP, _IPV6 = 0x0800, 0x0806, 0x86DD
_ICMP, _ICMPV6 = 1, 58
_BROADCAST, _IPV6_MULTICAST = "ff:ff:ff:ff:ff:ff", "33:33:"
_UNSPECIFIED, _ALL_NODES, _ALL_NODES_MAC = "::", "ff02::1", "33:33:00:00:00:01"
_WHO_HAS, _IS_AT = 1, 2
_ECHO_REQUEST, _ECHO_REPLY = 8, 0


class Neighbours:
    """Answers ARP, neighbour solicitations and echo requests for some addresses of one MAC.

    mac: 6 bytes. addresses: IPv4 and IPv6, as text.
    """

    def __init__(self, mac: bytes, addresses: Iterable[str]):
        self._mac = mac.hex(":")
        found = [ip_address(address) for address in addresses]
        self._own4 = {str(one) for one in found if isinstance(one, IPv4Address)}
        self._own6 = {str(one) for one in found if not isinstance(one, IPv4Address)}

    def takes(self, frame: bytes) -> bool:
        """Whether a frame (ARP, ICMP, ICMPv6) is for this software; the others are the card's."""
        kind = int.from_bytes(frame[12:14], "big")
        return (
            kind == _ARP
            or (kind == _IPV4 and frame[23:24] == bytes([_ICMP]))
            or (kind == _IPV6 and frame[20:21] == bytes([_ICMPV6]))
        )

    def answer(self, frame: bytes) -> bytes | None:
        """The frame to send back, if any; what is malformed gets none."""
        try:
            asked = Ether(frame)
            if Padding in asked:
                asked[Padding].underlayer.remove_payload()
            if asked.dst in (self._mac, _BROADCAST) or asked.dst.startswith(_IPV6_MULTICAST):
                for kind, reply in (
                    (ARP, self._arp),
                    (ICMPv6ND_NS, self._solicited),
                    (ICMP, self._echo4),
                    (ICMPv6EchoRequest, self._echo6),
                ):
                    if kind in asked:
                        made = reply(asked)
                        return None if made is None else bytes(made)
        except (Scapy_Exception, ValueError, IndexError, struct.error):
            pass  # scapy's ways to say that bytes are missing or make no sense
        return None

    def _arp(self, asked: Packet) -> Packet | None:
        arp = asked[ARP]
        if (arp.hwtype, arp.ptype, arp.hwlen, arp.plen) != (1, _IPV4, 6, 4):
            return None
        if arp.op != _WHO_HAS or arp.pdst not in self._own4:
            return None
        return Ether(src=self._mac, dst=arp.hwsrc) / ARP(
            op=_IS_AT, hwsrc=self._mac, psrc=arp.pdst, hwdst=arp.hwsrc, pdst=arp.psrc
        )

    def _solicited(self, asked: Packet) -> Packet | None:
        ip, solicitation = asked[IPv6], asked[ICMPv6ND_NS]
        if ip.hlim != 255 or solicitation.code or solicitation.tgt not in self._own6:
            return None
        if not _sound(asked, ICMPv6ND_NS, "cksum"):
            return None
        # Somebody who wants to have the address has none yet: everybody is told.
        probing = ip.src == _UNSPECIFIED
        source = solicitation.getlayer(ICMPv6NDOptSrcLLAddr)
        to = asked.src if source is None else source.lladdr
        if probing and source is not None:
            return None
        return (
            Ether(src=self._mac, dst=_ALL_NODES_MAC if probing else to)
            / IPv6(src=solicitation.tgt, dst=_ALL_NODES if probing else ip.src, hlim=255)
            / ICMPv6ND_NA(R=0, S=int(not probing), O=1, tgt=solicitation.tgt)
            / ICMPv6NDOptDstLLAddr(lladdr=self._mac)
        )

    def _echo4(self, asked: Packet) -> Packet | None:
        ip, icmp = asked[IP], asked[ICMP]
        if icmp.type != _ECHO_REQUEST or icmp.code or ip.dst not in self._own4:
            return None
        if ip.frag or ip.flags.MF or not _sound(asked, ICMP, "chksum"):
            return None
        echo = ICMP(type=_ECHO_REPLY, id=icmp.id, seq=icmp.seq) / icmp.payload
        return Ether(src=self._mac, dst=asked.src) / IP(src=ip.dst, dst=ip.src) / echo

    def _echo6(self, asked: Packet) -> Packet | None:
        ip, echo = asked[IPv6], asked[ICMPv6EchoRequest]
        if echo.code or ip.dst not in self._own6 or not _sound(asked, ICMPv6EchoRequest, "cksum"):
            return None
        reply = ICMPv6EchoReply(id=echo.id, seq=echo.seq, data=echo.data)
        return Ether(src=self._mac, dst=asked.src) / IPv6(src=ip.dst, dst=ip.src) / reply


def _sound(packet: Packet, layer: type[Packet], checksum: str) -> bool:
    """Whether a layer's checksum is right."""
    copy = packet.copy()
    copy[layer].delfieldval(checksum)
    return bool(Ether(bytes(copy))[layer].getfieldval(checksum) == getattr(packet[layer], checksum))
