"""T-D19: the packets that open and close connections of DC, against vectors."""

import json
import zlib
from pathlib import Path

import pytest

from firmware.dc.packets import (
    CloseRequest,
    Connect,
    Disconnect,
    DisconnectAck,
    EndStatus,
    Reply,
    ReplyStatus,
    parse,
)
from hdl.wire.constants import ROCE_PORT
from hdl.wire.headers import BTH, IPV4, UDP
from hdl.wire.opcodes import OPCODES, DcControl

VECTORS = {
    name: bytes.fromhex(text)
    for name, text in json.loads(
        (Path(__file__).parents[2] / "data" / "dc.json").read_text()
    ).items()
}
DCT, CHANNEL, CONTEXT = 0x22, 0x400011, 0x800033
KEY, NONCE, PSN = 0x1122334455667788, 0xA0A1A2A3A4A5A6A7, 0x5000
PACKETS = {
    "V-D1": Connect(DCT, PSN, mtu=5, depth=4, channel=CHANNEL, key=KEY, nonce=NONCE, keep=20),
    "V-D2": Reply(CHANNEL, PSN, NONCE, depth=4, context=CONTEXT, keep=20),
    "V-D3": Reply(CHANNEL, PSN, NONCE, ReplyStatus.REFUSED),
    "V-D4": Reply(CHANNEL, PSN, NONCE, ReplyStatus.BUSY, rnr_timer=14),
    "V-D7": Disconnect(CONTEXT, PSN + 1, CHANNEL, NONCE),
    "V-D8": DisconnectAck(CHANNEL, PSN + 1, CONTEXT, NONCE),
    "V-D9": CloseRequest(CHANNEL, 0, CONTEXT, NONCE),
}
#: To the target; the others go back.
THERE = {DcControl.CONNECT, DcControl.DISCONNECT}


def icrc(opcode, transport):
    """Of a packet between 192.0.2.1 and 192.0.2.2 (IBTA vol 1, Annex A17, A17.3.3)."""
    ends = [bytes((192, 0, 2, 1)), bytes((192, 0, 2, 2))]
    source, destination = ends if opcode in THERE else reversed(ends)
    length = UDP.size + len(transport) + 4
    ip = bytearray(
        IPV4.pack(
            version=4,
            ihl=5,
            total_length=IPV4.size + length,
            dont_fragment=1,
            protocol=17,
            source=int.from_bytes(source, "big"),
            destination=int.from_bytes(destination, "big"),
        )
    )
    ip[1], ip[8], ip[10:12] = 0xFF, 0xFF, b"\xff\xff"
    udp = UDP.pack(source_port=0xC001, destination_port=ROCE_PORT, length=length, checksum=0xFFFF)
    masked = bytearray(transport)
    masked[4] = 0xFF
    return zlib.crc32(bytes(8 * [0xFF]) + ip + udp + masked).to_bytes(4, "little")


@pytest.mark.parametrize("name", PACKETS)
def test_vectors(name):
    packet = PACKETS[name]
    bth = BTH.pack(
        opcode=packet.OPCODE,
        pkey=0xFFFF,
        dest_qp=packet.dest,
        ack_request=int(packet.ASKS),
        psn=packet.psn,
    )
    transport = bth + packet.pack()
    assert transport + icrc(packet.OPCODE, transport) == VECTORS[name]
    assert parse(packet.OPCODE, packet.dest, packet.psn, packet.pack()) == packet


@pytest.mark.parametrize("name", ["V-D5", "V-D6"])
def test_data(name):
    """Data and answers are those of RC in another class of opcodes."""
    row = OPCODES[VECTORS[name][0]]
    same = OPCODES[row.code & 0x1F]
    assert (row.headers, row.kind, row.payload) == (same.headers, same.kind, same.payload)
    assert row.name == same.name.replace("RC_", "DC_")


@pytest.mark.parametrize("name", PACKETS)
def test_other_versions(name):
    """A CONNECT of another version is answered, any other packet is dropped."""
    packet = PACKETS[name]
    other = bytes((2, *packet.pack()[1:]))
    found = parse(packet.OPCODE, packet.dest, packet.psn, other)
    assert (found is not None) == (packet.OPCODE == DcControl.CONNECT)


def test_reserved_fields_are_ignored():
    data = bytearray(PACKETS["V-D2"].pack())
    data[4], data[17:] = 0xFF, b"\xff\xff\xff"
    assert parse(DcControl.CONNECT_REPLY, CHANNEL, PSN, bytes(data)) == PACKETS["V-D2"]


def test_malformed():
    with pytest.raises(ValueError, match="DCConnect needs 28 bytes, not 27"):
        parse(DcControl.CONNECT, 1, 2, bytes(27))
    with pytest.raises(KeyError):
        parse(0xC4, 1, 2, bytes(28))


def test_what_a_disconnect_finds():
    assert DisconnectAck(1, 2, 3, 4, EndStatus.UNKNOWN).pack()[1] == 1
