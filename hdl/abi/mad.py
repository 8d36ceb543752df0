"""Formats of the connection manager's MADs, as data; ``docs/cm.md`` has its table from here.

A MAD is 256 bytes: ``MAD``, then the fields of its message, then private data up to the end.

Spec: IBTA vol 1, 13.4.3 (common MAD header), 12.6 and 12.11 (messages), Annex A11 (IP addresses).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from hdl.wire.headers import Header

MAD_SIZE = 256
CM_CLASS, CM_VERSION, BASE_VERSION, METHOD_SEND = 0x07, 2, 1, 3
#: Service ids of ports of rdma_cm's RDMA_PS_TCP and RDMA_PS_UDP: this plus the port (Annex A11).
SERVICE_TCP, SERVICE_UDP = 0x0000000001060000, 0x0000000001110000
#: Those of RDMA_PS_IB, in which Linux' programs ask for XRC.
SERVICE_IB = 0x00000000013F0000
#: Q_Key that rdma_cm gives the queue pairs of RDMA_PS_UDP.
UDP_QKEY = 0x01234567
#: Leads an IPv4 address that is a GID, as number: ::ffff:0:0.
_MAPPED = 0xFFFF << 32


class Reason(IntEnum):
    """Why a REJ was sent (IBTA 12.6.7.2): those that this side sends or tells apart."""

    NO_RESOURCES = 3
    TIMEOUT = 4
    UNSUPPORTED = 5
    INVALID_SERVICE_ID = 8
    INVALID_TRANSPORT = 9
    STALE_CONNECTION = 10
    INVALID_MTU = 26
    CONSUMER = 28


class SidrStatus(IntEnum):
    """Status of a SIDR_REP (IBTA 12.11.2.1): those that this side sends or tells apart."""

    VALID = 0
    UNSUPPORTED_SERVICE = 1
    REJECTED = 2


class TransportService(IntEnum):
    """Kind of queue pair that a REQ asks for (IBTA 12.7.6)."""

    RC = 0
    UC = 1
    #: What ``extended_transport`` says.
    EXTENDED = 3


class ExtendedTransport(IntEnum):
    """The kind behind TransportService.EXTENDED (IBTA Annex A14); 0 for the other ones."""

    NONE = 0
    XRC = 1


MAD = Header(
    "MAD",
    base_version=8,
    mgmt_class=8,
    class_version=8,
    method=8,
    status=16,
    class_specific=16,
    transaction_id=64,
    attribute_id=16,
    reserved=16,
    attribute_modifier=32,
)


def _path(name: str) -> dict[str, int]:
    """The 44 bytes of one path in a REQ."""
    return {
        f"{name}_local_lid": 16,
        f"{name}_remote_lid": 16,
        f"{name}_local_gid": 128,
        f"{name}_remote_gid": 128,
        f"{name}_flow_label": 20,
        f"{name}_reserved6": 6,
        f"{name}_packet_rate": 6,
        f"{name}_traffic_class": 8,
        f"{name}_hop_limit": 8,
        f"{name}_sl": 4,
        f"{name}_subnet_local": 1,
        f"{name}_reserved3": 3,
        f"{name}_ack_timeout": 5,
        f"{name}_reserved3b": 3,
    }


REQ = Header(
    "REQ",
    local_comm_id=32,
    reserved4=32,
    service_id=64,
    local_ca_guid=64,
    reserved24=32,
    local_qkey=32,
    local_qpn=24,
    responder_resources=8,
    local_eecn=24,
    initiator_depth=8,
    remote_eecn=24,
    remote_cm_response_timeout=5,
    transport_service=2,
    flow_control=1,
    starting_psn=24,
    local_cm_response_timeout=5,
    retry_count=3,
    pkey=16,
    path_mtu=4,
    rdc_exists=1,
    rnr_retry_count=3,
    max_cm_retries=4,
    srq=1,
    extended_transport=3,
    **_path("primary"),
    **_path("alternate"),
)
MRA = Header(
    "MRA",
    local_comm_id=32,
    remote_comm_id=32,
    message_mraed=2,
    reserved6=6,
    service_timeout=5,
    reserved3=3,
)
REJ = Header(
    "REJ",
    local_comm_id=32,
    remote_comm_id=32,
    message_rejected=2,
    reserved6=6,
    info_length=7,
    reserved1=1,
    reason=16,
    info=576,
)
REP = Header(
    "REP",
    local_comm_id=32,
    remote_comm_id=32,
    local_qkey=32,
    local_qpn=24,
    reserved15=8,
    local_eecn=24,
    reserved19=8,
    starting_psn=24,
    reserved23=8,
    responder_resources=8,
    initiator_depth=8,
    target_ack_delay=5,
    failover_accepted=2,
    flow_control=1,
    rnr_retry_count=3,
    srq=1,
    reserved4=4,
    local_ca_guid=64,
)
RTU = Header("RTU", local_comm_id=32, remote_comm_id=32)
DREQ = Header("DREQ", local_comm_id=32, remote_comm_id=32, remote_qpn=24, reserved=8)
DREP = Header("DREP", local_comm_id=32, remote_comm_id=32)
SIDR_REQ = Header("SIDR_REQ", request_id=32, pkey=16, reserved=16, service_id=64)
SIDR_REP = Header(
    "SIDR_REP",
    request_id=32,
    status=8,
    info_length=8,
    reserved=16,
    qpn=24,
    reserved11=8,
    service_id=64,
    qkey=32,
    info=576,
)
#: What rdma_cm puts in front of the private data of a REQ; an IPv4 address is in the last 4 bytes.
IP_ADDRESSES = Header(
    "IP addresses", version=8, ip_version=4, reserved=4, port=16, source=128, destination=128
)

#: Attribute id -> message.
MESSAGES = {
    0x10: REQ,
    0x11: MRA,
    0x12: REJ,
    0x13: REP,
    0x14: RTU,
    0x15: DREQ,
    0x16: DREP,
    0x17: SIDR_REQ,
    0x18: SIDR_REP,
}
ATTRIBUTES = {message.name: attribute for attribute, message in MESSAGES.items()}


@dataclass(frozen=True)
class Message:
    """One MAD of the connection manager; ``private`` is padded with zeros on the wire."""

    kind: Header
    transaction_id: int
    fields: dict[str, int]
    private: bytes = b""

    def __getitem__(self, field: str) -> int:
        return self.fields[field]

    @property
    def qpn(self) -> int:
        """The queue pair that a REQ or REP is from. An XRC target stands where the number of an EE
        context would, as it has no queue pair that sends."""
        return self.fields["local_qpn"] or self.fields["local_eecn"]

    def pack(self) -> bytes:
        """The 256 bytes; ValueError for a field or private data that does not fit."""
        room = private_size(self.kind)
        if len(self.private) > room:
            raise ValueError(f"{self.kind.name} holds {room} bytes, not {len(self.private)}")
        header = MAD.pack(
            base_version=BASE_VERSION,
            mgmt_class=CM_CLASS,
            class_version=CM_VERSION,
            method=METHOD_SEND,
            transaction_id=self.transaction_id,
            attribute_id=ATTRIBUTES[self.kind.name],
        )
        return header + self.kind.pack(self.fields) + self.private.ljust(room, b"\0")


def pack_addresses(source: bytes, destination: bytes, port: int) -> bytes:
    """What rdma_cm puts in front of the private data: both GIDs' IP addresses, the source port."""
    gids = [int.from_bytes(gid, "big") for gid in (source, destination)]
    ip4 = all(gid >> 32 == 0xFFFF for gid in gids)
    ends = [gid & 0xFFFFFFFF if ip4 else gid for gid in gids]
    return IP_ADDRESSES.pack(
        ip_version=4 if ip4 else 6, port=port, source=ends[0], destination=ends[1]
    )


@dataclass(frozen=True)
class Addresses:
    """Both ends of a connection as rdma_cm names them: GIDs, and the source's port."""

    source: bytes
    destination: bytes
    port: int


def unpack_addresses(private: bytes) -> Addresses:
    """The addresses in front of private data; ValueError for a version that is not known."""
    found = IP_ADDRESSES.unpack(private)
    if found["version"] or found["ip_version"] not in (4, 6):
        raise ValueError(f"Unknown header of private data: {private[:2].hex()}")
    if found["ip_version"] == 4:
        for end in ("source", "destination"):
            found[end] = found[end] & 0xFFFFFFFF | _MAPPED
    ends = (found[end].to_bytes(16, "big") for end in ("source", "destination"))
    return Addresses(*ends, found["port"])


def private_size(message: Header) -> int:
    """How many bytes of private data ``message`` holds."""
    return MAD_SIZE - MAD.size - message.size


def unpack(data: bytes) -> Message:
    """The message in a MAD; ValueError for what no connection manager of this version sends."""
    if len(data) != MAD_SIZE:
        raise ValueError(f"A MAD has {MAD_SIZE} bytes, not {len(data)}")
    header = MAD.unpack(data)
    found = tuple(header[one] for one in ("base_version", "mgmt_class", "class_version", "method"))
    if found != (BASE_VERSION, CM_CLASS, CM_VERSION, METHOD_SEND):
        raise ValueError(f"Not a message of the connection manager: {found}")
    kind = MESSAGES.get(header["attribute_id"])
    if kind is None:
        raise ValueError(f"Unknown attribute {header['attribute_id']:#06x}")
    body = data[MAD.size :]
    return Message(kind, header["transaction_id"], kind.unpack(body), body[kind.size :])
