"""Frames that must be dropped (or not quite), and which bits of a good frame nothing covers."""

from __future__ import annotations

import struct

from sim.wire import packets as pk

GIDS = [pk.gid_bytes(a) for a in ("10.0.0.2", "10.0.0.1", "fd00::2", "fd00::1")]
#: The card's MAC address: the destination of what ``packets.build`` makes.
MAC = pk.build(0x11)[:6]
V6 = {"src_gid": GIDS[3], "dst_gid": GIDS[2]}


def samples() -> list[bytes]:
    """One packet of every kind, small enough to be mutated thoroughly."""
    common = {"dest_qp": 0x11, "psn": 0xFFFFFE}
    return [
        pk.build(0x04, payload=b"abcdefg", **common),
        pk.build(0x0A, payload=bytes(range(100)), va=1 << 63, rkey=5, dma_length=100, **common),
        pk.build(0x0B, payload=b"x" * 33, rkey=5, imm=b"wxyz", vlan=5, priority=3, **common),
        pk.build(0x11, syndrome=0x1F, msn=0xABCDEF, **common, **V6),
        pk.build(0x13, va=8, rkey=9, swap_add=1 << 60, compare=77, vlan=4095, **common, **V6),
        pk.build(0x12, syndrome=0x1F, msn=3, original_data=0x1122334455667788, **common),
        pk.build(0x65, payload=b"hello", qkey=0x80010000, src_qp=1, imm=b"1234", **common),
        pk.build(0x17, payload=b"", rkey=0x12345678, **common, **V6, traffic_class=0xA5),
        pk.build(0x11, msn=1, **common),
    ]


def uncovered(frame: bytes) -> dict[int, str]:
    """Bits (8 * byte + bit) that neither ICRC nor IPv4 checksum protects, and what must happen to
    the packet when one of them is flipped: a drop cause, or "" = it is delivered."""
    vlan = frame[12:14] == b"\x81\x00"
    ip = 18 if vlan else 14
    v6 = frame[ip] >> 4 == 6
    udp = ip + (40 if v6 else 20)
    end = ip + (40 + struct.unpack_from("!H", frame, ip + 4)[0] if v6 else
                struct.unpack_from("!H", frame, ip + 2)[0])  # fmt: skip
    table: list[tuple[range | list[int], int, str]] = [
        (range(0, 6), 0xFF, "mac"),
        (range(6, 12), 0xFF, ""),  # the source MAC address
        (range(12, 14), 0xFF, "ethertype"),
        (range(udp + 6, udp + 8), 0xFF, "udp_checksum"),  # from 0 = none to a wrong one
        ([udp + 8 + 4], 0xFF, ""),  # FECN, BECN, reserved
        (range(end, len(frame)), 0xFF, ""),  # Ethernet's padding
    ]
    if vlan:
        table += [(range(14, 16), 0xFF, ""), (range(16, 18), 0xFF, "ethertype")]
    if v6:
        # Traffic class, flow label, hop limit.
        table += [([ip], 0x0F, ""), (range(ip + 1, ip + 4), 0xFF, ""), ([ip + 7], 0xFF, "")]
    return {
        8 * byte + bit: why
        for bytes_, mask, why in table
        for byte in bytes_
        for bit in range(8)
        if mask >> bit & 1
    }


def _changed(frame: bytes, at: int, new: bytes, *, seal: bool = True) -> bytes:
    frame = frame[:at] + new + frame[at + len(new) :]
    return pk.reseal(frame) if seal else frame


def _checksummed(frame: bytes) -> bytes:
    """With the right UDP checksum. It is no part of the ICRC."""
    ip = 18 if frame[12:14] == b"\x81\x00" else 14
    v6 = frame[ip] >> 4 == 6
    udp = ip + (40 if v6 else 20)
    addresses = frame[ip + 8 : ip + 40] if v6 else frame[ip + 12 : ip + 20]
    (size,) = struct.unpack_from("!H", frame, udp + 4)
    covered = addresses + struct.pack("!HH", 17, size) + frame[udp : udp + size]
    covered += bytes(len(covered) % 2)
    total = sum(struct.unpack(f"!{len(covered) // 2}H", covered))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    value = (total ^ 0xFFFF) or 0xFFFF
    return frame[: udp + 6] + value.to_bytes(2, "big") + frame[udp + 8 :]


def _headers(v4: bytes, v6: bytes) -> list[bytes]:
    """Ethernet, IP and UDP headers gone wrong. Both frames are untagged."""
    out = [bytes(range(1, size)) for size in range(2, 14)]  # runts
    out += [v4[:12] + b"\x81\x00" + v4[14:size] for size in range(14, 18)]
    out += [v4[:12] + kind + v4[14:] for kind in (b"\x08\x06", b"\x88\xf7", b"\x00\x2e")]
    out.append(v4[:12] + b"\x81\x00\x00\x01\x81\x00\x00\x02\x08\x00" + v4[14:])  # two tags
    out += [_changed(v4, 14, bytes([first]), seal=False) for first in (0x44, 0x46, 0x65, 0x05)]
    options = bytearray(v4[:34] + b"\x01" * 4 + v4[34:])
    options[14] = 0x46
    struct.pack_into("!H", options, 16, len(v4) - 14 + 4)
    out.append(bytes(options))
    out += [_changed(v6, 14, bytes([first]), seal=False) for first in (0x45, 0x50, 0x70)]
    out += [_changed(v4, at, b"\x01", seal=False) for at in (15, 22, 24, 25, 26, 30)]
    flags = (0x2000, 0x0001, 0x1FFF, 0x6000, 0x8000)  # MF, offsets, DF and MF, the reserved one
    out += [_changed(v4, 20, struct.pack("!H", flag)) for flag in flags]
    (total,) = struct.unpack_from("!H", v4, 16)
    for length in (0, 19, 20, 21, 27, 28, 43, 44, total - 4, total - 1, total + 1, 65535):
        changed = bytearray(v4)
        struct.pack_into("!H", changed, 16, length)
        out.append(_ipv4_sum(bytes(changed)))
        struct.pack_into("!H", changed, 38, max(0, length - 20))
        out.append(_ipv4_sum(bytes(changed)))
    for length in (0, 7, 8, 23, 24, 28, 65535):
        changed = bytearray(v6)
        struct.pack_into("!H", changed, 18, length)
        out.append(bytes(changed))
        struct.pack_into("!H", changed, 58, length)
        out.append(bytes(changed))
    out += [_changed(v4, 23, bytes([protocol])) for protocol in (1, 6, 16, 0)]
    out += [_changed(v6, 20, bytes([protocol])) for protocol in (0, 6, 44, 58)]
    out += [_changed(v4, 36, struct.pack("!H", port)) for port in (4790, 4792, 53, 0)]
    out += [_changed(v4, 38, struct.pack("!H", n)) for n in (0, 8, total - 21, total - 19)]
    # Good ones: TOS and TTL with their checksum, right UDP checksums, DF clear.
    out += [_changed(v4, 15, b"\xff"), _changed(v4, 22, b"\x01"), _changed(v4, 20, b"\0\0")]
    out += [_checksummed(frame) for frame in (v4, v6)]
    out += [_changed(_checksummed(v4), 40, b"\x12\x34", seal=False)]
    return out


def _ipv4_sum(frame: bytes) -> bytes:
    """The IPv4 checksum made right, the ICRC left alone."""
    head = frame[14:24] + b"\0\0" + frame[26:34]
    total = sum(struct.unpack("!10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return frame[:24] + (total ^ 0xFFFF).to_bytes(2, "big") + frame[26:]


def _transport(v4: bytes) -> list[bytes]:
    """BTH and lengths gone wrong, with good ICRCs."""
    out = [_changed(v4, 43, bytes([v4[43] & 0xF0 | tver])) for tver in (1, 2, 4, 8, 15)]
    out += [_changed(v4, 43, bytes([v4[43] ^ 0x40]))]  # MigReq: good
    out += [_changed(v4, 44, struct.pack("!H", key)) for key in (0xFFFF, 0x7FFF, 0, 0xFFFE, 0x8000)]
    base = {n: pk.build(0x04, payload=bytes(range(n)), pad_frame=False) for n in (0, 16, 28, 64)}
    for opcode in range(256):
        for size in (0, 16, 28, 64) if opcode in (0x04, 0x0C, 0x11, 0x13, 0x64) else (28,):
            out.append(_changed(base[size], 42, bytes([opcode])))
    for opcode in (0x04, 0x0A, 0x11):
        for pad in range(4):
            for size in range(0, 25):
                frame = pk.build(0x04, payload=bytes(size), pad_frame=False)
                out.append(_changed(frame, 42, bytes([opcode, pad << 4])))
    # Lengths that are no multiple of four.
    for cut in (1, 2, 3):
        frame = pk.build(0x04, payload=bytes(32), pad_frame=False)
        changed = bytearray(frame[:-cut])
        struct.pack_into("!H", changed, 16, len(frame) - 14 - cut)
        struct.pack_into("!H", changed, 38, len(frame) - 34 - cut)
        out.append(pk.reseal(bytes(changed)))
    out += [pk.build(0x01, payload=bytes(n)) for n in (4096, 4097, 4100, 5000, 9000, 16000)]
    return out


def malformed() -> list[bytes]:
    v4 = pk.build(0x04, payload=bytes(range(64)), dest_qp=5, psn=9, pad_frame=False)
    v6 = pk.build(0x04, payload=bytes(range(64)), dest_qp=5, psn=9, pad_frame=False, **V6)
    out = _headers(v4, v6) + _transport(v4)
    # Addresses that are not ours; the last differs in the prefix only.
    for address in ("10.0.0.3", "10.0.1.2", "255.255.255.255", "fd00::3", "::a00:2"):
        gid, source = pk.gid_bytes(address), GIDS[3 if ":" in address else 1]
        out.append(pk.build(0x04, payload=b"1234", dst_gid=gid, src_gid=source))
    mapped = bytearray(v6)
    mapped[38:54] = GIDS[0]  # a mapped address in an IPv6 header
    out.append(pk.reseal(bytes(mapped)))
    # Good packets to other MAC addresses: another card's, broadcast, multicast of IPv4 and IPv6.
    for mac in ("020000000003", "ffffffffffff", "01005e000001", "333300000001"):
        out += [bytes.fromhex(mac) + frame[6:] for frame in (v4, v6)]
    # Congestion notifications, good and spoiled.
    notice = pk.build(0x81, becn=1, dest_qp=3, reserved1=0, reserved2=0)
    out += [notice, notice[:-4] + bytes(4), notice]
    # Bytes behind the IP packet.
    out += [v4 + bytes([n & 0xFF]) * n for n in (1, 2, 3, 4, 8, 31, 64, 65, 130, 2000)]
    return out
