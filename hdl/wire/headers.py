"""Header layouts as plain data: field -> byte, bit and width, in network order.

Nothing here imports gateware; ``hdl.wire.gateware`` reads these tables for it.

Spec: IEEE 802.3 and 802.1Q, RFC 791, RFC 8200, RFC 768, IBTA vol 1 chapter 9 and Annex A17.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = [
    "AETH",
    "ATOMIC_ACK_ETH",
    "ATOMIC_ETH",
    "BTH",
    "DC_CONNECT",
    "DC_END",
    "DC_REPLY",
    "DETH",
    "ETHERNET",
    "FETH",
    "HEADERS",
    "IETH",
    "IMM_DT",
    "IPV4",
    "IPV6",
    "RETH",
    "UDP",
    "VLAN",
    "XRCETH",
    "Field",
    "Header",
]


@dataclass(frozen=True)
class Field:
    """A big-endian field: ``byte`` and ``bit`` (0 = most significant) of its first bit."""

    name: str
    byte: int
    bit: int
    width: int

    @property
    def start(self) -> int:
        """Bits before the field."""
        return 8 * self.byte + self.bit


class Header:
    """Consecutive big-endian fields; ``size`` in bytes, ``fields`` by name in order."""

    def __init__(self, name: str, **widths: int):
        self.name = name
        self.fields: dict[str, Field] = {}
        at = 0
        for field, width in widths.items():
            self.fields[field] = Field(field, at // 8, at % 8, width)
            at += width
        if at % 8:
            raise ValueError(f"{name} must be whole bytes, not {at} bits")
        self.size = at // 8

    def __repr__(self) -> str:
        return f"<Header {self.name}, {self.size} bytes>"

    def __getitem__(self, field: str) -> Field:
        try:
            return self.fields[field]
        except KeyError:
            raise KeyError(f"{self.name} has no field {field!r}") from None

    def pack(self, values: Mapping[str, int] | None = None, /, **fields: int) -> bytes:
        """The header as bytes; fields not given are 0. ValueError for one that does not fit."""
        number = 0
        for name, value in {**(values or {}), **fields}.items():
            field = self[name]
            if not 0 <= value < 1 << field.width:
                raise ValueError(f"{self.name}.{name} must fit {field.width} bits, not {value!r}")
            number |= value << (8 * self.size - field.start - field.width)
        return number.to_bytes(self.size, "big")

    def unpack(self, data: bytes) -> dict[str, int]:
        """The fields of the first ``size`` bytes; ValueError when there are fewer."""
        if len(data) < self.size:
            raise ValueError(f"{self.name} needs {self.size} bytes, not {len(data)}")
        number = int.from_bytes(data[: self.size], "big")
        return {
            field.name: number >> (8 * self.size - field.start - field.width)
            & ((1 << field.width) - 1)
            for field in self.fields.values()
        }


ETHERNET = Header("Ethernet", destination=48, source=48, ethertype=16)
#: What follows EtherType 8100h: the tag and the real EtherType.
VLAN = Header("VLAN", pcp=3, dei=1, vlan_id=12, ethertype=16)
IPV4 = Header(
    "IPv4",
    version=4,
    ihl=4,
    traffic_class=8,
    total_length=16,
    identification=16,
    reserved=1,
    dont_fragment=1,
    more_fragments=1,
    fragment_offset=13,
    ttl=8,
    protocol=8,
    checksum=16,
    source=32,
    destination=32,
)
IPV6 = Header(
    "IPv6",
    version=4,
    traffic_class=8,
    flow_label=20,
    payload_length=16,
    next_header=8,
    hop_limit=8,
    source=128,
    destination=128,
)
UDP = Header("UDP", source_port=16, destination_port=16, length=16, checksum=16)
BTH = Header(
    "BTH",
    opcode=8,
    solicited=1,
    mig_req=1,
    pad_count=2,
    tver=4,
    pkey=16,
    fecn=1,
    becn=1,
    reserved6=6,
    dest_qp=24,
    ack_request=1,
    reserved7=7,
    psn=24,
)
RETH = Header("RETH", va=64, rkey=32, dma_length=32)
ATOMIC_ETH = Header("AtomicETH", va=64, rkey=32, swap_add=64, compare=64)
AETH = Header("AETH", syndrome=8, msn=24)
ATOMIC_ACK_ETH = Header("AtomicAckETH", original=64)
IMM_DT = Header("ImmDt", imm=32)
IETH = Header("IETH", rkey=32)
DETH = Header("DETH", qkey=32, reserved=8, src_qp=24)
#: Of FLUSH: ``sel`` 0 is the range of RETH, 1 the whole region; ``plt``: bit 0 global visibility,
#: bit 1 persistence.
FETH = Header("FETH", reserved=26, sel=2, plt=4)
XRCETH = Header("XRCETH", reserved=8, srq=24)
#: Behind the BTH of the packets that open and close a connection of DC (docs/extensions.md).
#: ``keep``: 4.096 us x 2^keep. ``number``: of the sender's end of the connection.
DC_CONNECT = Header(
    "DCConnect",
    version=8,
    flags=8,
    mtu=8,
    depth=8,
    reserved0=8,
    channel=24,
    key=64,
    nonce=64,
    keep=8,
    reserved1=24,
)
DC_REPLY = Header(
    "DCReply",
    version=8,
    status=8,
    rnr_timer=8,
    depth=8,
    reserved0=8,
    context=24,
    nonce=64,
    keep=8,
    reserved1=24,
)
DC_END = Header("DCEnd", version=8, status=8, reserved0=24, number=24, nonce=64)

HEADERS = (
    ETHERNET,
    VLAN,
    IPV4,
    IPV6,
    UDP,
    BTH,
    RETH,
    ATOMIC_ETH,
    AETH,
    ATOMIC_ACK_ETH,
    IMM_DT,
    IETH,
    DETH,
    XRCETH,
    FETH,
    DC_CONNECT,
    DC_REPLY,
    DC_END,
)
