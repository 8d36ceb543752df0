"""ARP, neighbour solicitation and echo for an endpoint's addresses; scapy is the other host."""

import socket

import pytest
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import (
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6ND_RS,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptSrcLLAddr,
    IPv6,
)
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Raw
from scapy.utils6 import in6_getnsma, in6_getnsmac

from sim.endpoint.neighbours import Neighbours

OURS, THEIRS = "02:00:00:00:00:01", "52:54:00:12:34:56"
EVERYBODY = "ff:ff:ff:ff:ff:ff"
HOST = Neighbours(bytes.fromhex(OURS.replace(":", "")), ["10.0.0.1", "fd00::1", "FE80::1:2:3"])


def answer(packet):
    frame = bytes(packet)
    frame += bytes(max(0, 60 - len(frame)))  # as a MAC pads it
    assert HOST.takes(frame)
    reply = HOST.answer(frame)
    return None if reply is None else Ether(reply)


def who_has(target, *, dst=EVERYBODY, **fields):
    usual = {"op": 1, "hwsrc": THEIRS, "psrc": "10.0.0.9", "pdst": target}
    return Ether(src=THEIRS, dst=dst) / ARP(**usual | fields)


def solicited(target):
    """The multicast addresses at which a node is asked for ``target``."""
    multicast = in6_getnsma(socket.inet_pton(socket.AF_INET6, target))
    return socket.inet_ntop(socket.AF_INET6, multicast), in6_getnsmac(multicast)


def solicitation(target, *, src="fd00::9", hlim=255, source_option=True, dst=None, **fields):
    group, mac = solicited(target)
    packet = Ether(src=THEIRS, dst=mac) / IPv6(src=src, dst=dst or group, hlim=hlim)
    packet /= ICMPv6ND_NS(tgt=target, **fields)
    return packet / ICMPv6NDOptSrcLLAddr(lladdr=THEIRS) if source_option else packet


@pytest.mark.parametrize("dst", [EVERYBODY, OURS])
@pytest.mark.parametrize("asker", ["10.0.0.9", "0.0.0.0"])  # the other one probes
def test_arp(dst, asker):
    reply = answer(who_has("10.0.0.1", dst=dst, psrc=asker))
    assert (reply.src, reply.dst) == (OURS, THEIRS)
    arp = reply[ARP]
    assert (arp.op, arp.hwsrc, arp.psrc, arp.hwdst, arp.pdst) == (
        2, OURS, "10.0.0.1", THEIRS, asker,
    )  # fmt: skip


def test_arp_for_others_and_malformed():
    assert answer(who_has("10.0.0.2")) is None
    assert answer(who_has("10.0.0.1", op=2)) is None
    assert answer(who_has("10.0.0.1", plen=16)) is None
    assert answer(who_has("10.0.0.1", hwtype=6)) is None
    assert answer(who_has("10.0.0.1", dst="02:00:00:00:00:77")) is None


@pytest.mark.parametrize("target", ["fd00::1", "fe80::1:2:3"])
@pytest.mark.parametrize("source_option", [True, False])
def test_neighbour_solicitation(target, source_option):
    reply = answer(solicitation(target, source_option=source_option))
    assert (reply.src, reply.dst) == (OURS, THEIRS)
    ip, advertisement = reply[IPv6], reply[ICMPv6ND_NA]
    assert (ip.src, ip.dst, ip.hlim) == (target, "fd00::9", 255)
    flags = (advertisement.R, advertisement.S, advertisement.O)
    assert flags == (0, 1, 1) and advertisement.tgt == target
    assert reply[ICMPv6NDOptDstLLAddr].lladdr == OURS
    assert good_checksum(reply, ICMPv6ND_NA, "cksum")


def test_neighbour_solicitation_to_the_address_itself():
    """Reachability: unicast."""
    packet = solicitation("fd00::1", dst="fd00::1")
    packet.dst = OURS
    assert answer(packet)[ICMPv6ND_NA].S == 1


def test_duplicate_address_detection_is_told_to_all():
    reply = answer(solicitation("fd00::1", src="::", source_option=False))
    assert (reply.dst, reply[IPv6].dst) == ("33:33:00:00:00:01", "ff02::1")
    assert reply[ICMPv6ND_NA].S == 0 and reply[ICMPv6NDOptDstLLAddr].lladdr == OURS


@pytest.mark.parametrize(
    "packet",
    [
        solicitation("fd00::2"),
        solicitation("fd00::1", hlim=64),
        solicitation("fd00::1", code=1),
        solicitation("fd00::1", cksum=0x1234),
        solicitation("fd00::1", src="::"),  # RFC 4861 7.1.1: no source option then
        Ether(src=THEIRS, dst="33:33:00:00:00:02") / IPv6(src="fd00::9") / ICMPv6ND_RS(),
    ],
)
def test_solicitations_without_answer(packet):
    assert answer(packet) is None


def good_checksum(packet, layer, name):
    copy = packet.copy()
    copy[layer].delfieldval(name)
    return getattr(Ether(bytes(copy))[layer], name) == getattr(packet[layer], name)


@pytest.mark.parametrize("size", [0, 1, 100, 1400])
def test_echo(size):
    data = bytes(i & 0xFF for i in range(size))
    ether = Ether(src=THEIRS, dst=OURS)
    reply = answer(ether / IP(src="10.0.0.9", dst="10.0.0.1") / ICMP(id=5, seq=6) / Raw(data))
    assert (reply.dst, reply[IP].src, reply[IP].dst) == (THEIRS, "10.0.0.1", "10.0.0.9")
    assert (reply[ICMP].type, reply[ICMP].id, reply[ICMP].seq) == (0, 5, 6)
    assert bytes(reply[ICMP].payload) == data and good_checksum(reply, ICMP, "chksum")

    asked = ether / IPv6(src="fd00::9", dst="fd00::1") / ICMPv6EchoRequest(id=7, seq=8, data=data)
    reply = answer(asked)
    assert (reply.dst, reply[IPv6].src, reply[IPv6].dst) == (THEIRS, "fd00::1", "fd00::9")
    echo = reply[ICMPv6EchoReply]
    assert (echo.id, echo.seq, echo.data) == (7, 8, data)
    assert good_checksum(reply, ICMPv6EchoReply, "cksum")


@pytest.mark.parametrize(
    "packet",
    [
        IP(src="10.0.0.9", dst="10.0.0.2") / ICMP(),
        IP(src="10.0.0.9", dst="10.0.0.1") / ICMP(chksum=1),
        IP(src="10.0.0.9", dst="10.0.0.1") / ICMP(type=0),
        IP(src="10.0.0.9", dst="10.0.0.1", flags="MF") / ICMP(),
        IPv6(src="fd00::9", dst="fd00::2") / ICMPv6EchoRequest(),
        IPv6(src="fd00::9", dst="fd00::1") / ICMPv6EchoRequest(cksum=1),
    ],
)
def test_echo_without_answer(packet):
    assert answer(Ether(src=THEIRS, dst=OURS) / packet) is None


def test_the_rest_is_the_cards():
    roce = Ether(src=THEIRS, dst=OURS) / IP(dst="10.0.0.1") / UDP(dport=4791) / Raw(bytes(40))
    tagged = Ether(src=THEIRS, dst=EVERYBODY) / Dot1Q(vlan=5) / ARP(pdst="10.0.0.1")
    for packet in (roce, tagged, Ether(dst=OURS, type=0x88CC) / Raw(bytes(46))):
        assert not HOST.takes(bytes(packet))
    for size in range(14, 24):
        assert not HOST.takes(bytes(size))


def test_cut_short_or_garbled():
    """No answer to what is not whole, and never an exception."""
    for packet in (who_has("10.0.0.1"), solicitation("fd00::1")):
        frame = bytes(packet)
        for size in range(14, len(frame)):
            assert HOST.answer(frame[:size]) is None, size
        for place in range(14, len(frame)):
            garbled = frame[:place] + bytes([frame[place] ^ 0xFF]) + frame[place + 1 :]
            HOST.answer(garbled)
