"""Packets of IP, and what their checksums say, in plain Python from the RFCs."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from sim.bench.packet_stream import beats

TCP, UDP, ICMP = 6, 17, 1
#: Tags in front of the type of a frame (IEEE 802.1Q).
TAGS = (b"", b"\x81\0\0\7", b"\x88\xa8\0\7", b"\x88\xa8\0\7\x81\0\0\x09")


def total(data: bytes) -> int:
    """The sum of the 16-bit words in one's complement (RFC 1071); an odd byte has a 0 behind it."""
    words = struct.unpack(f">{(len(data) + 1) // 2}H", data + bytes(len(data) % 2))
    return (sum(words) - 1) % 0xFFFF + 1 if any(words) else 0


def checksum(data: bytes) -> int:
    return total(data) ^ 0xFFFF


def right(frame: bytes) -> bool:
    """Whether TCP or UDP in a frame has a right checksum, and IPv4 around it, where the card looks:
    in whole packets behind up to two VLAN tags, in IPv6 without extension headers."""
    at = 12
    for _ in range(2):
        if frame[at : at + 2] in (b"\x81\0", b"\x88\xa8"):
            at += 4
    kind, packet = frame[at : at + 2], frame[at + 2 :]
    if kind == b"\x08\0":
        found = of_ipv4(packet)
    elif kind == b"\x86\xdd":
        found = of_ipv6(packet)
    else:
        return False
    if found is None:
        return False
    addresses, protocol, body = found
    if protocol == TCP:
        sound = len(body) >= 20
    elif protocol == UDP:
        sound = len(body) >= 8 and body[4:6] == struct.pack(">H", len(body)) and any(body[6:8])
    else:
        return False
    pseudo = addresses + struct.pack(">IHBB", len(body), 0, 0, protocol)
    return sound and total(pseudo + body) == 0xFFFF


def of_ipv4(packet: bytes) -> tuple[bytes, int, bytes] | None:
    """Addresses, protocol and body of a whole packet (RFC 791, 3.1)."""
    if len(packet) < 20:
        return None
    size, length = 4 * (packet[0] & 15), int.from_bytes(packet[2:4], "big")
    if packet[0] >> 4 != 4 or size < 20 or not size <= length <= len(packet):
        return None
    if int.from_bytes(packet[6:8], "big") & 0x3FFF or total(packet[:size]) != 0xFFFF:
        return None
    return packet[12:20], packet[9], packet[size:length]


def of_ipv6(packet: bytes) -> tuple[bytes, int, bytes] | None:
    """The same (RFC 8200, 3)."""
    length = int.from_bytes(packet[4:6], "big")
    if len(packet) < 40 + length or packet[0] >> 4 != 6:
        return None
    return packet[8:40], packet[6], packet[40 : 40 + length]


@dataclass(frozen=True)
class Shape:
    """What a packet is made of. ``options``: words of 32 bits behind an IPv4 header; ``extension``:
    bytes of a header behind an IPv6 one; ``padding``: bytes behind the packet."""

    version: int = 4
    protocol: int = TCP
    tags: bytes = b""
    options: int = 0
    extension: int = 0
    payload: int = 0
    padding: int = 0
    fragment: int = 0

    def build(self, rng: random.Random) -> bytes:
        """A frame of this shape with right checksums."""
        addresses = rng.randbytes(8 if self.version == 4 else 32)
        body = self._body(rng, addresses)
        if self.version == 4:
            head = bytearray(
                struct.pack(
                    ">BBHHHBBH",
                    0x45 + self.options,
                    rng.randrange(256),
                    20 + 4 * self.options + len(body),
                    rng.randrange(65536),
                    self.fragment or rng.choice((0, 0x4000)),
                    64,
                    self.protocol,
                    0,
                )
                + addresses
                + rng.randbytes(4 * self.options)
            )
            head[10:12] = checksum(head).to_bytes(2, "big")
            packet = b"\x08\0" + bytes(head) + body
        else:
            more = self.extension and bytes([self.protocol, self.extension // 8 - 1])
            more = more + bytes(self.extension - 2) if more else b""
            first = 0 if more else self.protocol
            label = 6 << 28 | rng.randrange(1 << 28)
            head6 = struct.pack(">IHBB", label, len(more) + len(body), first, 64)
            packet = b"\x86\xdd" + head6 + addresses + more + body
        return rng.randbytes(12) + self.tags + packet + rng.randbytes(self.padding)

    def _body(self, rng: random.Random, addresses: bytes) -> bytes:
        data = rng.randbytes(self.payload)
        if self.protocol == TCP:
            head, at = rng.randbytes(12) + b"\x50" + rng.randbytes(7), 16
        elif self.protocol == UDP:
            head, at = rng.randbytes(4) + struct.pack(">HH", 8 + len(data), 0), 6
        else:
            return rng.randbytes(8) + data
        body = bytearray(head + data)
        body[at : at + 2] = bytes(2)
        pseudo = addresses + struct.pack(">IHBB", len(body), 0, 0, self.protocol)
        body[at : at + 2] = (checksum(pseudo + body) or 0xFFFF).to_bytes(2, "big")
        return bytes(body)


def shapes(rng: random.Random) -> Iterator[Shape]:
    """Each kind of header with each other, with payloads of all remainders of a beat."""
    for tags in TAGS:
        for protocol in (TCP, UDP, ICMP):
            for options in (0, 1, 3, 10):
                padding, payload = rng.choice((0, 0, 6, 40)), rng.randrange(150)
                yield Shape(4, protocol, tags, options, 0, payload, padding)
            for extension in (0, 8):
                for padding in (0, 5):
                    payload = rng.randrange(150)
                    yield Shape(6, protocol, tags, 0, extension, payload, padding)
            yield Shape(4, protocol, tags, fragment=rng.choice((0x2000, 1, 0x3FFF)), payload=30)
    for payload in (*range(68), 1460, 8946):
        yield Shape(rng.choice((4, 6)), rng.choice((TCP, UDP)), rng.choice(TAGS), payload=payload)


def spoilt(frame: bytes, at: int, rng: random.Random) -> bytes:
    """The frame with another byte at a place."""
    return frame[:at] + bytes([frame[at] ^ rng.randrange(1, 256)]) + frame[at + 1 :]


def mended(frame: bytes, change: Callable[[bytearray, int], None], shape: Shape) -> bytes:
    """A frame of ``shape`` without options whose fields ``change`` has changed, with a right
    checksum of its IPv4 header."""
    built, at = bytearray(frame), 14 + len(shape.tags)
    change(built, at)
    if shape.version == 4:
        built[at + 10 : at + 12] = bytes(2)
        built[at + 10 : at + 12] = checksum(bytes(built[at : at + 20])).to_bytes(2, "big")
    return bytes(built)


async def pass_by(ctx, part, frames: Iterable[bytes], width: int, gaps: Callable[[], bool]):
    """Let frames pass a part's ``i``, with an idle cycle as often as ``gaps`` says so.

    Returns for each of them the cycles up to its last beat."""
    now, ends, shape = 0, [], part.i.beat.shape()
    for frame in frames:
        for word in beats(frame, width):
            while gaps():
                ctx.set(part.i.valid, 0)
                await ctx.tick()
                now += 1
            ctx.set(part.i.beat, shape.from_bits(word))
            ctx.set(part.i.valid, 1)
            await ctx.tick()
            now += 1
        ends.append(now)
    ctx.set(part.i.valid, 0)
    return ends
