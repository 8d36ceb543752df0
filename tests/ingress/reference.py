"""What ingress must do with a frame, in plain Python: a drop cause, or a packet.

Written from RFC 791, 8200, 768 and the tables of RoCE v2 (IBTA Annex A17, IBTA vol 1 chapter 9),
not from the gateware.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

RC = {
    0x06: 16, 0x0A: 16, 0x0B: 20, 0x0C: 16, 0x03: 4, 0x05: 4, 0x09: 4, 0x0D: 4, 0x0F: 4,
    0x10: 4, 0x11: 4, 0x12: 12, 0x13: 28, 0x14: 28, 0x16: 4, 0x17: 4,
}  # fmt: skip
EXTENDED = {op: RC.get(op, 0) for op in range(0x18) if op != 0x15}
EXTENDED |= {0x20 | op: RC.get(op, 0) for op in range(0x0C)}
EXTENDED |= {0x64: 8, 0x65: 12, 0x81: 0}
EMPTY = {0x0C, 0x11, 0x12, 0x13, 0x14}


def _sum(data: bytes) -> int:
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def _icrc_good(packet: bytes, ip: int) -> bool:
    masked = bytearray(packet)
    if ip == 20:
        ones = {1: 0xFF, 8: 0xFF, 10: 0xFF, 11: 0xFF}
    else:
        ones = {0: 0x0F, 1: 0xFF, 2: 0xFF, 3: 0xFF, 7: 0xFF}
    for at, mask in {**ones, ip + 6: 0xFF, ip + 7: 0xFF, ip + 12: 0xFF}.items():
        masked[at] |= mask
    crc = zlib.crc32(b"\xff" * 8 + bytes(masked[:-4]))
    return packet[-4:] == crc.to_bytes(4, "little")


def _mapped(frame: bytes, at: int, kind: bytes, groups: Sequence[bytes]) -> bool:
    """Whether the MAC address is that of the frame's IP destination, and of one of ``groups``."""
    if kind == b"\x08\x00":
        address = frame[at + 16 : at + 20].ljust(4, b"\0")
        gid = bytes(10) + b"\xff\xff" + address
        mac = b"\x01\x00\x5e" + bytes([address[1] & 0x7F]) + address[2:]
    elif kind == b"\x86\xdd":
        gid = frame[at + 24 : at + 40]
        mac = b"\x33\x33" + gid[12:]
    else:
        return False
    return frame[:6] == mac and gid in groups


def cause(
    frame: bytes,
    mac: bytes,
    gids: Sequence[bytes],
    groups: Sequence[bytes] = (),
    *,
    error: bool = False,
) -> str:
    """The drop cause as its counter is named (without ``drops_``), or ``""`` for a good packet."""
    if error:
        return "frame"
    if len(frame) < 14:
        return "short"
    at, kind = 14, frame[12:14]
    if kind == b"\x81\x00":
        if len(frame) < 18:
            return "short"
        at, kind = 18, frame[16:18]
    to_group = frame[:2] == b"\x33\x33" or (frame[:3] == b"\x01\x00\x5e" and frame[3] < 128)
    if frame[:6] != mac and not (to_group and _mapped(frame, at, kind, groups)):
        return "multicast" if to_group else "mac"
    if kind not in (b"\x08\x00", b"\x86\xdd"):
        return "ethertype"
    v4 = kind == b"\x08\x00"
    ip = 20 if v4 else 40
    header = frame[at : at + ip]
    if len(header) < ip:
        return "short"
    if header[0] >> 4 != (4 if v4 else 6) or (v4 and header[0] & 15 != 5):
        return "ip_header"
    if v4:
        if _sum(header) != 0xFFFF:
            return "ipv4_checksum"
        (length,) = struct.unpack_from("!H", header, 2)
        if struct.unpack_from("!H", header, 6)[0] & 0x3FFF:
            return "ip_header"
        if length < 20:
            return "ip_length"
        protocol, source, destination = header[9], header[12:16], header[16:20]
        gid = bytes(10) + b"\xff\xff" + destination
    else:
        length = 40 + struct.unpack_from("!H", header, 4)[0]
        protocol, source, destination = header[6], header[8:24], header[24:40]
        gid = destination
    packet = frame[at : at + length]
    if len(packet) < length:
        return "short"
    if protocol != 17:
        return "not_roce"
    udp = packet[ip:]
    if len(udp) < 8:
        return "udp_length"
    _, port, udp_length, checksum = struct.unpack_from("!4H", udp)
    if port != 4791:
        return "not_roce"
    if udp_length != len(udp):
        return "udp_length"
    pseudo = source + destination + struct.pack("!HH", 17, udp_length)
    if checksum and _sum(pseudo + udp) != 0xFFFF:
        return "udp_checksum"
    if len(udp) < 24:
        return "length"
    bth = udp[8:20]
    if bth[1] & 15:
        return "tver"
    opcode = bth[0]
    if opcode not in EXTENDED:
        return "opcode"
    body = len(udp) - 20 - EXTENDED[opcode] - 4
    payload = body - (bth[1] >> 4 & 3)
    if payload < 0 or body % 4 or (opcode in EMPTY and payload):
        return "length"
    if payload > 4096:
        return "oversize"
    if struct.unpack_from("!H", bth, 2)[0] & 0x7FFF == 0:
        return "pkey"
    if to_group:
        if opcode not in (0x64, 0x65) or bth[5:8] != b"\xff\xff\xff":
            return "address"
    elif gid not in gids:
        return "address"
    if not _icrc_good(packet, ip):
        return "icrc"
    return "cnp" if opcode == 0x81 else ""
