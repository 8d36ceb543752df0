"""The hash of a flow, and the pair of queues that follows from it, in plain Python.

Spec: Virtio 1.2, 5.1.6.4.3 and 5.1.6.5.7.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.network.packets import TCP, UDP

#: Bits of ``types``, by IP version: of addresses alone, with the ports of TCP, of UDP.
TYPES = {4: (1, 2, 4), 6: (8, 16, 32)}


def toeplitz(key: bytes, data: bytes) -> int:
    """For each bit that is set, the 32 bits of the key from its place on, all in exclusive or."""
    whole, bits, found = int.from_bytes(key, "big"), 8 * len(key), 0
    for place in range(8 * len(data)):
        if data[place // 8] >> (7 - place % 8) & 1:
            found ^= whole >> (bits - 32 - place) & 0xFFFF_FFFF
    return found


@dataclass(frozen=True)
class Spread:
    """What is set: see ``hdl.ports.network.Steering``."""

    types: int
    key: bytes
    table: tuple[int, ...]
    other: int = 0

    def values(self) -> dict:
        """As the gateware has it."""
        table = sum(pair << 3 * n for n, pair in enumerate(self.table))
        return {
            "types": self.types,
            "key": int.from_bytes(self.key, "little"),
            "mask": len(self.table) - 1,
            "table": table,
            "other": self.other,
        }

    def pair(self, frame: bytes) -> int:
        """The pair of a frame, behind at most one VLAN tag."""
        data = self._input(frame)
        if data is None:
            return self.other
        return self.table[toeplitz(self.key, data) % len(self.table)]

    def _input(self, frame: bytes) -> bytes | None:
        at = 16 if frame[12:14] == b"\x81\0" else 12
        kind, packet = frame[at : at + 2], frame[at + 2 :] + bytes(64)
        if kind == b"\x08\0":
            version, addresses, behind = 4, packet[12:20], 20
            whole = packet[0] == 0x45 and not int.from_bytes(packet[6:8], "big") & 0x3FFF
            protocol = packet[9] if whole else 0
        elif kind == b"\x86\xdd":
            version, addresses, behind = 6, packet[8:40], 40
            protocol = packet[6]
        else:
            return None
        plain, tcp, udp = (bool(self.types & bit) for bit in TYPES[version])
        if (protocol == TCP and tcp) or (protocol == UDP and udp):
            return addresses + packet[behind : behind + 4]
        return addresses if plain else None
