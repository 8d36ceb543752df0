"""The tables of hdl/wire against scapy, zlib, the captures and the gateware's view of them."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from amaranth.hdl import Const, Module, Signal
from amaranth.sim import Simulator
from scapy.contrib import roce
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether

from hdl.config import NicConfig
from hdl.wire import constants, docs, gateware
from hdl.wire.headers import BTH, ETHERNET, HEADERS, IPV4, IPV6, RETH, VLAN, Header
from hdl.wire.headers import UDP as UDP_HEADER
from hdl.wire.opcodes import DC_CONTROL, OPCODES, ROCE_OPCODES, Payload, card_opcodes, max_extended
from sim.wire import packets as pk
from sim.wire.pcap import read_pcap

ROOT = Path(__file__).parents[2]
SIZES = {
    "Ethernet": 14, "VLAN": 4, "IPv4": 20, "IPv6": 40, "UDP": 8, "BTH": 12, "RETH": 16,
    "AtomicETH": 28, "AETH": 4, "AtomicAckETH": 8, "ImmDt": 4, "IETH": 4, "DETH": 8, "XRCETH": 4,
    "FETH": 4, "DCConnect": 28, "DCReply": 20, "DCEnd": 16,
}  # fmt: skip


def test_sizes():
    assert {header.name: header.size for header in HEADERS} == SIZES
    assert max_extended(NicConfig()) == 28 and max_extended(NicConfig(xrc=True)) == 32
    assert constants.MIN_HEADERS == 54


def test_fields_are_where_scapy_puts_them():
    frame = bytes(
        Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
        / Dot1Q(vlan=0x123, prio=5)
        / IP(src="1.2.3.4", dst="5.6.7.8", tos=9, ttl=7, id=77, flags="DF")
        / UDP(sport=0xC001, dport=4791, chksum=0x1234)
        / roce.BTH(opcode=0x0A, solicited=1, dqpn=0xABCDEF, psn=0x123456, ackreq=1, icrc=0)
    )
    ethernet, vlan = ETHERNET.unpack(frame), VLAN.unpack(frame[14:])
    assert (ethernet["destination"], ethernet["source"]) == (0x020000000002, 0x020000000001)
    assert ethernet["ethertype"] == constants.ETHERTYPE_VLAN
    assert vlan == {"pcp": 5, "dei": 0, "vlan_id": 0x123, "ethertype": constants.ETHERTYPE_IPV4}
    ip = IPV4.unpack(frame[18:])
    assert (ip["version"], ip["ihl"], ip["dont_fragment"], ip["more_fragments"]) == (4, 5, 1, 0)
    assert (ip["source"], ip["destination"]) == (0x01020304, 0x05060708)
    assert (ip["traffic_class"], ip["ttl"], ip["identification"]) == (9, 7, 77)
    udp = UDP_HEADER.unpack(frame[38:])
    assert udp == {
        "source_port": 0xC001,
        "destination_port": constants.ROCE_PORT,
        "length": 24,
        "checksum": 0x1234,
    }
    bth = BTH.unpack(frame[46:])
    assert (bth["opcode"], bth["solicited"], bth["ack_request"]) == (0x0A, 1, 1)
    assert (bth["dest_qp"], bth["psn"], bth["pkey"]) == (0xABCDEF, 0x123456, 0xFFFF)
    v6 = IPV6.unpack(bytes(IPv6(src="fd00::1", dst="fd00::2", tc=3, fl=0x54321, hlim=9, plen=44)))
    assert (v6["version"], v6["traffic_class"], v6["flow_label"]) == (6, 3, 0x54321)
    assert (v6["payload_length"], v6["hop_limit"]) == (44, 9)
    assert v6["source"] >> 112 == 0xFD00 and v6["destination"] & 0xFF == 2


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.name)
def test_pack_and_unpack(header):
    for name, field in header.fields.items():
        ones = (1 << field.width) - 1
        packed = header.pack({name: ones})
        assert int.from_bytes(packed, "big").bit_count() == field.width
        assert header.unpack(packed) == {n: ones if n == name else 0 for n in header.fields}
        with pytest.raises(ValueError, match=f"{name} must fit {field.width} bits"):
            header.pack({name: ones + 1})
    with pytest.raises(ValueError, match="needs"):
        header.unpack(bytes(header.size - 1))
    with pytest.raises(KeyError, match="no field"):
        header["nothing"]


def test_header_must_be_whole_bytes():
    with pytest.raises(ValueError, match="whole bytes, not 7 bits"):
        Header("odd", a=3, b=4)


def test_opcodes():
    scapy = {code: name for code, name in roce._bth_opcodes.items() if code >> 5 != 2}  # no RD
    words = (("WITH_IMMEDIATE", "IMM"), ("RDMA_", ""), ("RESPONSE", "RESP"), ("COMPARE", "CMP"))
    words += (("ATOMIC_ACKNOWLEDGE", "ATOMIC_ACK"), ("WITH_INVALIDATE", "INV"))
    for code, long_name in scapy.items():
        name = long_name
        for long, short in words:
            name = name.replace(long, short)
        assert OPCODES[code].name == name
    newer = {0x1C, 0x1D}  # of release 1.5, which scapy does not know
    known = {code for code in OPCODES if code < 0x80} - newer
    assert known == {code for code in scapy if code < 0x80}
    extended_connections = {code for code in ROCE_OPCODES if code >> 5 == 5}
    assert extended_connections == {0xA0 | code for code in scapy if code >> 5 == 0}
    dynamic = {code for code in ROCE_OPCODES if code >> 5 == 6}
    assert dynamic - set(DC_CONTROL) == {code ^ 0x60 for code in extended_connections}
    assert set(DC_CONTROL) == {0xD8, 0xD9, 0xDA, 0xDB, 0xDE}
    others = set(ROCE_OPCODES) - newer - extended_connections - dynamic
    assert others == {code for code in scapy if code >> 5 in (0, 1, 3)}
    extended = {code: row.extended for code, row in OPCODES.items()}
    assert [extended[code] for code in (0x06, 0x0B, 0x0C, 0x11, 0x12, 0x13)] == [
        16, 20, 16, 4, 12, 28,
    ]  # fmt: skip
    assert [extended[code] for code in (0x64, 0x65, 0x81, 0xA4, 0xB1, 0xB3)] == [
        8, 12, 0, 4, 4, 32,
    ]  # fmt: skip
    assert OPCODES[0x01].payload is Payload.FULL and OPCODES[0x02].payload is Payload.LAST
    assert OPCODES[0x0C].payload is Payload.NONE and OPCODES[0x0E].payload is Payload.FULL
    assert [extended[code] for code in sorted(newer)] == [20, 16]
    assert [OPCODES[code].payload for code in sorted(newer)] == [Payload.NONE, Payload.WORD]
    most = card_opcodes(NicConfig(placement=True, xrc=True))
    assert set(most) == set(ROCE_OPCODES) - dynamic
    assert set(card_opcodes(NicConfig(xrc=True))) == set(most) - newer
    assert set(card_opcodes(NicConfig())) == others
    assert OPCODES[0x0E].response and OPCODES[0x11].response and not OPCODES[0x0C].response


def test_icrc_masks_on_captures():
    """A register that starts at 0 over the masked frame ends as the packet's ICRC."""
    seen = set()
    for name in ("agent_ud", "agent_rc_all_m1024", "ipv6_rc_all"):
        for _, plain in list(read_pcap(ROOT / f"tests/data/golden/{name}.pcap"))[:8]:
            for tagged in (False, True):
                frame = plain[:12] + b"\x81\x00\x00\x05" * tagged + plain[12:]
                ipv6 = frame[18 if tagged else 14] >> 4 == 6
                ones, zeros, flip = constants.icrc_masks(vlan=tagged, ipv6=ipv6)
                size = len(frame)
                ones, zeros, flip = (
                    int.from_bytes(mask.ljust(size, b"\0"), "big") for mask in (ones, zeros, flip)
                )
                masked = (int.from_bytes(frame, "big") | ones) & ~zeros ^ flip
                crc = zlib.crc32(masked.to_bytes(size, "big")[:-4], 0xFFFFFFFF)
                assert crc.to_bytes(4, "little") == frame[-4:]
                assert frame[-4:] == pk.icrc_of_frame(frame)
                seen.add((tagged, ipv6))
    assert len(seen) == 4


def test_residue():
    body = bytes(range(50))
    whole = body + zlib.crc32(body).to_bytes(4, "little")
    assert zlib.crc32(whole) ^ 0xFFFFFFFF == constants.ICRC_RESIDUE
    assert zlib.crc32(b"\xff" * 8) ^ 0xFFFFFFFF == constants.ICRC_INITIAL


def test_mapped_gid():
    assert constants.mapped_gid(bytes([10, 0, 0, 1])) == pk.gid_bytes("10.0.0.1")
    assert constants.is_mapped_gid(pk.gid_bytes("10.0.0.1"))
    assert not constants.is_mapped_gid(pk.gid_bytes("fe80::1"))
    with pytest.raises(ValueError, match="4 bytes"):
        constants.mapped_gid(b"abc")


@pytest.mark.parametrize("header", [BTH, IPV4, IPV6, RETH, VLAN], ids=lambda header: header.name)
def test_gateware_reads_and_builds_the_same_bytes(header):
    m = Module()
    fields = {name: Signal(field.width, name=name) for name, field in header.fields.items()}
    built = Signal(8 * header.size)
    read = {name: Signal(field.width, name=f"got_{name}") for name, field in header.fields.items()}
    m.d.comb += built.eq(gateware.build(header, fields))
    shifted = Signal(8 * header.size + 24)
    m.d.comb += shifted.eq(built << 24)
    for name, signal in read.items():
        m.d.comb += signal.eq(gateware.get(shifted, header, name, at=3))
    values = {
        name: (0x123456789ABCDEF0FEDCBA9876543211 >> n) & ((1 << field.width) - 1)
        for n, (name, field) in enumerate(header.fields.items())
    }

    async def bench(ctx):
        for name, signal in fields.items():
            ctx.set(signal, values[name])
        assert ctx.get(built).to_bytes(header.size, "little") == header.pack(values)
        assert {name: ctx.get(signal) for name, signal in read.items()} == values

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()


def test_gateware_raw_and_swap():
    assert len(gateware.raw(Const(0, 96), BTH, "dest_qp")) == 24
    with pytest.raises(ValueError, match="whole bytes"):
        gateware.raw(Const(0, 96), BTH, "tver")
    with pytest.raises(ValueError, match="whole bytes"):
        gateware.swap(Const(0, 12))
    with pytest.raises(KeyError, match="no field"):
        gateware.build(BTH, {"nothing": 1})


def test_tables_have_each_opcode_and_header():
    text = docs.tables()
    for code, opcode in OPCODES.items():
        assert f"| {code:02X} | {opcode.name} | {opcode.kind.name} |" in text
    for header in HEADERS:
        assert f"### {header.name}, {header.size} bytes" in text
