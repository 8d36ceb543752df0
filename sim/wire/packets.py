"""Test packets of RoCE v2: built and dissected with scapy, ICRC by zlib.

scapy knows BTH, AETH of acknowledgements and the CNP. What it lacks is added here: the other
extended headers, AETH of READ responses, the opcodes with invalidate. What it gets wrong is
avoided: its ICRC takes the bytes it would build, not those of the frame, so ``icrc`` works on
bytes.

Independent of ``hdl``: offsets stand here a second time, on purpose.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from types import MappingProxyType
from typing import Any

from scapy.contrib import roce
from scapy.contrib.roce import AETH, BTH
from scapy.fields import IntField, LongField, StrFixedLenField, XBitField, XByteField, XIntField
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Padding, Raw, bind_layers

__all__ = [
    "AETH",
    "BTH",
    "DETH",
    "IETH",
    "RETH",
    "ROCE_PORT",
    "AtomicAckETH",
    "AtomicETH",
    "Dissected",
    "Route",
    "ImmDt",
    "build",
    "checksum_of_frame",
    "dissect",
    "gid_bytes",
    "icrc",
    "icrc_of_frame",
    "reseal",
    "roce_frames",
]

ROCE_PORT = 4791


class RETH(Packet):
    """Virtual address, key and length of WRITE and READ requests."""

    name = "RETH"
    fields_desc = [LongField("va", 0), XIntField("rkey", 0), IntField("dma_length", 0)]

    def guess_payload_class(self, payload):
        """The header which the opcode puts behind this one."""
        return ImmDt if _opcode(self) & 0x1F == 0x0B else Raw


class AtomicETH(Packet):
    """Operands of an atomic request."""

    name = "AtomicETH"
    fields_desc = [
        LongField("va", 0),
        XIntField("rkey", 0),
        LongField("swap_add", 0),
        LongField("compare", 0),
    ]


class AtomicAckETH(Packet):
    """What an atomic found in memory."""

    name = "AtomicAckETH"
    fields_desc = [LongField("original_data", 0)]


class ImmDt(Packet):
    """Immediate data, raw."""

    name = "ImmDt"
    fields_desc = [StrFixedLenField("imm", b"\0\0\0\0", 4)]


class IETH(Packet):
    """Key to invalidate."""

    name = "IETH"
    fields_desc = [XIntField("rkey", 0)]


class DETH(Packet):
    """Q_Key and source of a datagram."""

    name = "DETH"
    fields_desc = [XIntField("qkey", 0), XByteField("reserved", 0), XBitField("src_qp", 0, 24)]

    def guess_payload_class(self, payload):
        """The header which the opcode puts behind this one."""
        return ImmDt if _opcode(self) == 0x65 else Raw


def _opcode(layer: Packet) -> int:
    at: Packet | None = layer
    while at is not None and not isinstance(at, BTH):
        at = at.underlayer
    return at.opcode if at is not None else 0


def _aeth_payload(self, payload):
    return AtomicAckETH if _opcode(self) == 0x12 else Raw


setattr(AETH, "guess_payload_class", _aeth_payload)  # noqa: B010

_AETH = (0x0D, 0x0F, 0x10, 0x11, 0x12)
for _operations, _transports, _layer in (
    ((0x06, 0x0A, 0x0B), (0x00, 0x20), RETH),
    ((0x0C,), (0x00,), RETH),
    ((0x03, 0x05, 0x09), (0x00, 0x20), ImmDt),
    (_AETH, (0x00,), AETH),
    ((0x13, 0x14), (0x00,), AtomicETH),
    ((0x16, 0x17), (0x00,), IETH),
    ((0x04, 0x05), (0x60,), DETH),
):
    for _transport in _transports:
        for _operation in _operations:
            bind_layers(BTH, _layer, opcode=_transport | _operation)
for _operation, _name in ((0x16, "SEND_LAST_WITH_INVALIDATE"), (0x17, "SEND_ONLY_WITH_INVALIDATE")):
    roce._bth_opcodes[_operation] = f"RC_{_name}"


def icrc(packet: bytes) -> int:
    """ICRC of an IP packet without its last four bytes (RoCE v2, A17.3.3)."""
    masked = bytearray(packet)
    if packet[0] >> 4 == 4:
        ip = 4 * (packet[0] & 15)
        masked[1] = masked[8] = masked[10] = masked[11] = 0xFF
    else:
        ip = 40
        masked[0] |= 0x0F
        masked[1] = masked[2] = masked[3] = masked[7] = 0xFF
    masked[ip + 6] = masked[ip + 7] = masked[ip + 12] = 0xFF
    return zlib.crc32(b"\xff" * 8 + bytes(masked))


def _ip_part(frame: bytes) -> tuple[int, int]:
    """Start and end of the IP packet in a frame."""
    start = 18 if frame[12:14] == b"\x81\x00" else 14
    if frame[start] >> 4 == 4:
        return start, start + struct.unpack_from("!H", frame, start + 2)[0]
    return start, start + 40 + struct.unpack_from("!H", frame, start + 4)[0]


def icrc_of_frame(frame: bytes) -> bytes:
    """The ICRC which a frame should end with, as bytes."""
    start, end = _ip_part(frame)
    return icrc(frame[start : end - 4]).to_bytes(4, "little")


def checksum_of_frame(frame: bytes) -> int | None:
    """What the IPv4 header sums up to with its checksum: 0 when that is right; None for IPv6."""
    start, _ = _ip_part(frame)
    if frame[start] >> 4 != 4:
        return None
    total = sum(struct.unpack("!10H", frame[start : start + 20]))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def reseal(frame: bytes, *, checksum: bool = True) -> bytes:
    """The frame with its IPv4 checksum (if wanted) and its ICRC made right."""
    changed = bytearray(frame)
    start, end = _ip_part(frame)
    if checksum and frame[start] >> 4 == 4:
        changed[start + 10 : start + 12] = b"\0\0"
        changed[start + 10 : start + 12] = (checksum_of_frame(bytes(changed)) or 0).to_bytes(
            2, "big"
        )
    changed[end - 4 : end] = icrc_of_frame(bytes(changed))
    return bytes(changed)


def gid_bytes(address: str) -> bytes:
    """The GID of an IP address: itself, or ::ffff:a.b.c.d."""
    parsed = ip_address(address)
    if isinstance(parsed, IPv6Address):
        return parsed.packed
    return bytes(10) + b"\xff\xff" + parsed.packed


def _text(gid: bytes) -> tuple[bool, str]:
    """(is IPv6, address) of a GID."""
    if gid[:12] == bytes(10) + b"\xff\xff":
        return False, str(ip_address(gid[12:]))
    return True, str(ip_address(gid))


def _mac(raw: bytes) -> str:
    return raw.hex(":")


@dataclass(frozen=True, kw_only=True)
class Dissected:
    """A packet taken apart. ``fields`` are named as in ``hdl.ports.headers``; only those that the
    packet has are present. GIDs, MACs and immediates are bytes. ``path`` is what else leads a frame
    to its place: dst_gid, dst_mac, udp_source, flow_label, vlan (None without tag), priority.
    """

    fields: Mapping[str, Any]
    payload: bytes
    pad: bytes
    icrc_good: bool
    bth: Mapping[str, int]
    path: Mapping[str, Any]


def _extended(layer: Packet, fields: dict[str, Any]) -> bytes:
    """Extended headers into ``fields``; returns what follows them."""
    while layer and not isinstance(layer, Raw):
        values = {one.name: getattr(layer, one.name) for one in layer.fields_desc}
        values.pop("reserved", None)
        if isinstance(layer, IETH):
            values = {"imm": values["rkey"]}
        elif isinstance(layer, AtomicAckETH):
            values = {"swap_add": values["original_data"]}
        fields.update(values)
        layer = layer.payload
    # What Ethernet padded is a layer of its own.
    return bytes(layer.load) if layer and not isinstance(layer, Padding) else b""


@lru_cache(maxsize=256)  # several look at one frame, and scapy takes half a millisecond
def dissect(frame: bytes) -> Dissected:
    """Take a RoCE v2 frame apart with scapy. ValueError when scapy finds no BTH in it."""
    packet = Ether(frame)
    if BTH not in packet:
        raise ValueError(f"No RoCE packet: {packet.summary()}")
    ip = packet[IP] if IP in packet else packet[IPv6]
    bth = packet[BTH]
    plain = ("migreq", "fecn", "becn", "version", "resv6", "resv7")
    header = {name: getattr(bth, name) for name in plain}
    v6 = isinstance(ip, IPv6)
    fields = {
        "opcode": bth.opcode,
        "solicited": bth.solicited,
        "ack_request": bth.ackreq,
        "pkey": bth.pkey,
        "dest_qp": bth.dqpn,
        "psn": bth.psn,
        "ipv6": int(v6),
        "src_gid": gid_bytes(ip.src),
        "src_mac": bytes.fromhex(packet.src.replace(":", "")),
        "traffic_class": ip.tc if v6 else ip.tos,
        "hop_limit": ip.hlim if v6 else ip.ttl,
    }
    tag = packet.getlayer(Dot1Q)
    path = {
        "dst_gid": gid_bytes(ip.dst),
        "dst_mac": bytes.fromhex(packet.dst.replace(":", "")),
        "udp_source": packet[UDP].sport,
        "flow_label": ip.fl if v6 else 0,
        "vlan": None if tag is None else tag.vlan,
        "priority": 0 if tag is None else tag.prio,
    }
    if isinstance(bth.payload, DETH):
        header["deth_reserved"] = bth.payload.reserved
    rest = _extended(bth.payload, fields)
    end = len(rest) - bth.padcount
    fields["length"] = end
    return Dissected(
        fields=MappingProxyType(fields),
        payload=rest[:end],
        pad=rest[end:],
        icrc_good=BTH.pack_icrc(bth.icrc)[::-1] == icrc_of_frame(frame),
        bth=MappingProxyType(header),
        path=MappingProxyType(path),
    )


def grh_area(frame: bytes) -> bytes:
    """The 40 bytes in front of a datagram's payload: its IPv6 header, or zeros and its IPv4 header,
    as scapy finds it (VR-5.23)."""
    packet = Ether(frame)
    ip, size = (packet[IPv6], 40) if IPv6 in packet else (packet[IP], 20)
    return bytes(ip)[:size].rjust(40, bytes(1))


@dataclass(frozen=True, kw_only=True)
class Route:
    """How a frame reaches its place: its headers in front of the BTH.

    Raises ValueError when source and destination differ in IP version.
    """

    src_gid: bytes = gid_bytes("10.0.0.1")
    dst_gid: bytes = gid_bytes("10.0.0.2")
    src_mac: bytes = bytes.fromhex("020000000001")
    dst_mac: bytes = bytes.fromhex("020000000002")
    vlan: int | None = None  # None: no tag
    priority: int = 0  # of the tag
    traffic_class: int = 0
    flow_label: int = 0
    hop_limit: int = 64
    udp_source: int = 0xC000

    def headers(self) -> Packet:
        """Ethernet, VLAN, IP and UDP."""
        v6, source = _text(self.src_gid)
        other, destination = _text(self.dst_gid)
        if v6 != other:
            raise ValueError(f"Source {source} and destination {destination} differ in IP version")
        packet: Packet = Ether(src=_mac(self.src_mac), dst=_mac(self.dst_mac))
        if self.vlan is not None:
            packet /= Dot1Q(vlan=self.vlan, prio=self.priority)
        places: dict[str, Any] = {"src": source, "dst": destination}
        if v6:
            flow: dict[str, Any] = {
                "tc": self.traffic_class,
                "fl": self.flow_label,
                "hlim": self.hop_limit,
            }
            packet /= IPv6(**places, **flow)
        else:
            packet /= IP(**places, tos=self.traffic_class, ttl=self.hop_limit, flags="DF", id=0)
        return packet / UDP(sport=self.udp_source, dport=ROCE_PORT, chksum=0)


def build(opcode: int, *, payload: bytes = b"", pad_frame: bool = True, **fields: Any) -> bytes:
    """A good frame without FCS. ``fields`` are those of ``Route``, of the BTH and of the opcode's
    headers, named as in ``hdl.ports.headers``. Headers follow from the opcode as scapy binds them.

    pad_frame: to the shortest frame of Ethernet. Raises ValueError for a field that no header has.
    """
    route = {one.name for one in dataclass_fields(Route)}
    packet = Route(**{name: fields.pop(name) for name in route & fields.keys()}).headers()
    names = {"ack_request": "ackreq", "dest_qp": "dqpn"}
    bth = {one.name for one in BTH.fields_desc}
    fields = {names.get(name, name): value for name, value in fields.items()}
    pad = -len(payload) % 4
    head = {name: fields.pop(name) for name in list(fields) if name in bth}
    packet /= BTH(opcode=opcode, icrc=0, **{"padcount": pad, **head})
    probe = BTH(bytes(BTH(opcode=opcode, icrc=0)) + bytes(64))
    layer = probe.payload
    while layer and not isinstance(layer, Raw):
        own = {one.name for one in layer.fields_desc}
        given = {name: fields.pop(name) for name in list(fields) if name in own}
        packet /= type(layer)(**given)
        layer = layer.payload
    if fields:
        raise ValueError(f"Opcode {opcode:#04x} has no fields {sorted(fields)}")
    frame = bytes(packet / Raw(payload + bytes(pad)))
    frame = reseal(frame)
    return frame.ljust(60, b"\0") if pad_frame else frame


def roce_frames(frames: Iterable[bytes]) -> list[bytes]:
    """Those that carry RoCE v2."""
    return [frame for frame in frames if BTH in Ether(frame)]
