"""Per-packet rows that travel beside the payload: what ingress found and what egress must build.

Fields that share bits are unions of ``hdl.ports.shared``.
Numbers (PSN, VA, lengths, keys) are native integers. GIDs, MACs and immediates are raw bytes, first
byte of the wire in bits 7:0. An IPv4 address a.b.c.d is the GID ::ffff:a.b.c.d.
"""

from amaranth.lib import data

from hdl.abi.limits import GROUP_MEMBERS, MAX_PKEYS

from .numbers import QpNumber

__all__ = [
    "PACKET_GENERATION",
    "AddressVector",
    "Departure",
    "GidRow",
    "GroupAddress",
    "GroupRow",
    "PkeyRow",
    "ReceivedControl",
    "RxHeader",
    "SentControl",
    "TxHeader",
]

#: Bits of a QP's generation: how often it has gone back, modulo 4. A packet that waits while its QP
#: goes back four times is taken for a new one and goes out, which is no more than a repeated
#: packet.
PACKET_GENERATION = 2

#: The P_Key table of a function. An entry without a partition is 0.
PkeyRow = data.StructLayout({f"key{n}": 16 for n in range(MAX_PKEYS)})


#: A multicast group: its address, and the QP numbers of its members in their function, from the
#: first place on; 0: there are no more.
GroupRow = data.StructLayout(
    {"valid": 1, "gid": 128} | {f"member{n}": 24 for n in range(GROUP_MEMBERS)}
)


class GroupAddress(data.Struct):
    """What ingress compares of a group. Held in registers: it looks at all groups at once."""

    valid: 1
    gid: 128


class GidRow(data.Struct):
    """One entry of the GID table. Held in registers: ingress matches against all rows at once."""

    valid: 1  # the entry is used
    function: 8  # guest function whose address it is
    gid: 128  # the address
    vlan_valid: 1  # its packets have a VLAN tag
    vlan_id: 12  # VLAN of that tag
    ipv4: 1  # it maps an IPv4 address


class AddressVector(data.Struct):
    """Where a packet goes. By value, so that a QP, a WQE or a connection can supply it."""

    sgid_index: 8  # row of the GID table: source address, IP version and VLAN follow from it
    dgid: 128  # destination GID
    dmac: 48  # destination MAC address
    traffic_class: 8  # traffic class (IPv6), type of service (IPv4)
    flow_label: 20  # flow label (IPv6)
    hop_limit: 8  # hop limit (IPv6), time to live (IPv4)
    sl: 3  # service level: VLAN priority
    udp_source: 16  # UDP source port


class Departure(data.Struct):
    """What is noted of a packet when it has left the card: of a request (``Departures``), or of an
    answer behind which others of its QP wait (``TxArbiter``)."""

    answer: 1  # it is one: ``psn`` is its number among them, and all else means nothing
    counts: 1  # it is a request that is answered; all else means nothing otherwise
    asks: 1  # it asks for an answer: an acknowledgement, or data
    qp: QpNumber
    psn: 24  # behind it; of a READ, behind its last response
    generation: PACKET_GENERATION  # of its QP when it was handed over
    timeout: 5  # of its QP: how long the answer may take


class TxHeader(data.Struct):
    """What egress needs to build the headers of one packet; the opcode says which are present.

    Pad count, lengths and ICRC are egress's own. ``length`` is the payload in bytes, 0 to MTU. The
    operands of AtomicETH are not here: they come as its 16 bytes of payload.
    """

    opcode: 8
    solicited: 1
    ack_request: 1
    pkey: 16
    dest_qp: 24
    psn: 24
    va: 64  # RETH, AtomicETH; the value of AtomicAckETH; the fields of DETH: ``in_va``
    rkey: 32  # RETH, AtomicETH, IETH
    dma_length: 32  # RETH
    imm: 32  # ImmDt, raw bytes
    syndrome: 8  # AETH
    msn: 24  # AETH; of a request of XRC: ``sent_srq``
    length: 13
    told: 1  # egress tells when it has been sent
    copied: 1  # no packet, but a piece of a MEMCPY: ``COPY`` says which
    departure: Departure  # egress tells this then
    av: AddressVector


class RxHeader(data.Struct):
    """What ingress found in one good packet. Fields of absent headers are undefined.

    ``length`` is the payload in bytes without pad: that many bytes follow in the payload stream as
    one packet (none when 0); of a datagram with the 40 bytes of the GRH area in front. The value of
    AtomicAckETH is payload: 8 bytes, in the order of the host. The ICRC, lengths, checksums and the
    destination address were checked.
    """

    opcode: 8
    takes: 1  # ``early_facts`` of the opcode
    silent: 1
    solicited: 1
    ack_request: 1
    pkey: 16
    dest_qp: 24
    psn: 24
    va: 64
    rkey: 32  # RETH, AtomicETH; IETH's key is in imm
    dma_length: 32
    imm: 32  # ImmDt, or the key of IETH: ``ex``
    syndrome: 8
    msn: 24
    qkey: 32  # DETH
    src_qp: 24  # DETH
    priority: 3  # of a datagram: that of its VLAN tag, or 0
    # Of a datagram: its P_Key is in the function's table; the first entry.
    pkey_hit: 1
    pkey_index: 4
    swap_add: 64  # AtomicETH
    compare: 64  # AtomicETH
    length: 13
    function: 8  # owner of the matched GID
    gid_index: 8  # matched row of the GID table
    ipv6: 1
    src_gid: 128
    src_mac: 48  # of a request of XRC: ``named_srq``
    traffic_class: 8
    hop_limit: 8


class ReceivedControl(data.Struct):
    """A packet of ``DcControl`` that has come, for the firmware. ``content``: 28 bytes behind the
    BTH, raw; those that the packet does not have are undefined."""

    opcode: 8
    dest_qp: 24
    psn: 24
    pkey: 16
    function: 8
    gid_index: 8
    src_gid: 128
    src_mac: 48
    content: 224


class SentControl(data.Struct):
    """A packet of ``DcControl`` that the firmware sends; ``content``: see ``control_content``."""

    opcode: 8
    dest_qp: 24
    psn: 24
    pkey: 16
    ack_request: 1
    content: 200
    av: AddressVector
