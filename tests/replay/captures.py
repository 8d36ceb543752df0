"""Captures made up for tests: what two machines would say, packet by packet.

Independent of the card and of ``sim.replay``: PSNs, MSNs and segments are counted here.
"""

from __future__ import annotations

import struct
from pathlib import Path

from hdl.wire.opcodes import Operation as Op
from hdl.wire.opcodes import Transport
from sim.wire.packets import build, gid_bytes
from sim.wire.pcap import write_pcap

MASK = 0xFFFFFF


class Capture:
    """Frames with times 1 us apart."""

    def __init__(self):
        self.frames: list[tuple[int, bytes]] = []

    def add(self, frame: bytes) -> int:
        """Append a frame; its number."""
        self.frames.append((1_700_000_000_000_000_000 + 1000 * len(self.frames), frame))
        return len(self.frames)

    def save(self, path: Path) -> Path:
        """As a pcap file."""
        write_pcap(path, self.frames)
        return path

    def save_ng(self, path: Path, order: str = "<", cut: int = 1 << 16) -> Path:
        """As a pcapng file, ns, frames cut to ``cut`` bytes."""

        def block(kind: int, body: bytes) -> bytes:
            body += bytes(-len(body) % 4)
            size = struct.pack(f"{order}I", len(body) + 12)
            return struct.pack(f"{order}I", kind) + size + body + size

        head = struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1)
        resolution = struct.pack(f"{order}HHB3xHH", 9, 1, 9, 0, 0)
        parts = [block(0x0A0D0D0A, head)]
        parts.append(block(1, struct.pack(f"{order}HHI", 1, 0, 0) + resolution))
        for time, frame in self.frames:
            part = frame[:cut]
            body = struct.pack(
                f"{order}5I", 0, time >> 32, time & 0xFFFFFFFF, len(part), len(frame)
            )
            parts.append(block(6, body + part))
        path.write_bytes(b"".join(parts))
        return path


class Talk:
    """One connection; end 0 and end 1, each with address, MAC, QPN, next PSN and MSN."""

    def __init__(
        self,
        capture: Capture,
        addresses=("10.0.0.1", "10.0.0.2"),
        qpns=(0x11, 0x22),
        psns=(0x1000, 0x2000),
        mtu=1024,
        macs=None,
        vlans=(None, None),
        ports=(0xC000, 0xC000),
        service=Transport.RC,
        **path,
    ):
        self.service = service
        self.capture, self.mtu, self.path = capture, mtu, path
        self.gids = [gid_bytes(one) for one in addresses]
        self.macs = macs or [b"\x02\0\0\0" + gid[-2:] for gid in self.gids]
        self.qpns, self.psns, self.msns = qpns, list(psns), [0, 0]
        self.vlans, self.ports = vlans, ports

    def packet(self, side: int, op: int, psn: int, payload: bytes = b"", **fields) -> int:
        """Any packet from one end; its number."""
        ends = {
            "src_gid": self.gids[side],
            "dst_gid": self.gids[1 - side],
            "src_mac": self.macs[side],
            "dst_mac": self.macs[1 - side],
            "dest_qp": self.qpns[1 - side],
            "vlan": self.vlans[side],
            "udp_source": self.ports[side],
        }
        values = {"pkey": 0xFFFF, **self.path, **ends, **fields}
        code = self.service << 5 | op
        return self.capture.add(build(code, payload=payload, psn=psn & MASK, **values))

    def ack(self, side: int, psn: int, msn: int | None = None, syndrome: int = 0x1F) -> int:
        """An ACK from one end."""
        msn = self.msns[side] if msn is None else msn
        return self.packet(side, Op.ACKNOWLEDGE, psn, syndrome=syndrome, msn=msn & MASK)

    def _segments(self, side, name, data, head, imm, ack):
        parts = [data[i : i + self.mtu] for i in range(0, max(1, len(data)), self.mtu)]
        for i, part in enumerate(parts):
            last = i == len(parts) - 1
            kind = "ONLY" if len(parts) == 1 else "FIRST" if not i else "LAST" if last else "MIDDLE"
            fields = dict(head) if not i else {}
            if last and imm is not None:
                kind, fields["imm"] = f"{kind}_IMM", imm
            op = Op[f"{name}_{kind}"]
            asks = int(last and self.service == Transport.RC)
            self.packet(side, op, self.psns[side], part, ack_request=asks, **fields)
            self.psns[side] += 1
        self.msns[1 - side] += 1
        if ack and self.service == Transport.RC:
            self.ack(1 - side, self.psns[side] - 1)

    def datagram(self, side, data, imm=None, qkey=0x11111111, **fields):
        """A datagram of UD; its number."""
        op = Op.SEND_ONLY if imm is None else Op.SEND_ONLY_IMM
        if imm is not None:
            fields["imm"] = imm
        fields |= {"qkey": qkey, "src_qp": self.qpns[side]}
        self.psns[side] += 1
        return self.packet(side, op, self.psns[side] - 1, data, **fields)

    def send_and_invalidate(self, side, data, rkey):
        """A SEND of one packet that takes a key, and its ACK."""
        psn = self.psns[side]
        # Test packets are built with the layer's name for the key.
        self.packet(side, Op.SEND_ONLY_INV, psn, data, rkey=rkey, ack_request=1)
        self.psns[side] += 1
        self.msns[1 - side] += 1
        self.ack(1 - side, psn)

    def send(self, side, data, imm=None, ack=True):
        """A SEND, and its ACK."""
        self._segments(side, "SEND", data, {}, imm, ack)

    def write(self, side, data, va, rkey, imm=None, ack=True):
        """A WRITE, and its ACK."""
        head = {"va": va, "rkey": rkey, "dma_length": len(data)}
        self._segments(side, "WRITE", data, head, imm, ack)

    def read(self, side, va, rkey, data, answer=True):
        """A READ, and its responses; without ``answer`` it stays open, see ``responses``."""
        fields = {"va": va, "rkey": rkey, "dma_length": len(data), "ack_request": 1}
        psn = self.psns[side]
        self.packet(side, Op.READ_REQUEST, psn, **fields)
        self.psns[side] += max(1, -(-len(data) // self.mtu))
        self.msns[1 - side] += 1
        if answer:
            self.responses(1 - side, psn, data)

    def responses(self, side, psn, data, most=1 << 30, msn=None):
        """Responses to a READ, at most so many; ``msn`` unless it is the newest one."""
        msn = self.msns[side] if msn is None else msn
        parts = [data[i : i + self.mtu] for i in range(0, max(1, len(data)), self.mtu)]
        for i, part in enumerate(parts[:most]):
            kind = "ONLY" if len(parts) == 1 else "FIRST" if not i else "MIDDLE"
            kind = "LAST" if i and i == len(parts) - 1 else kind
            aeth = {} if kind == "MIDDLE" else {"syndrome": 0x1F, "msn": msn}
            self.packet(side, Op[f"READ_RESP_{kind}"], psn + i, part, **aeth)


def merged(paths: list[Path], capture: Capture) -> None:
    """The frames of several captures in turn, as if everything had happened at once."""
    from sim.wire.pcap import read_pcap

    queues = [[frame for _, frame in read_pcap(path)] for path in paths]
    while any(queues):
        for queue in queues:
            if queue:
                capture.add(queue.pop(0))


def tagged(frame: bytes, vlan: int, priority: int = 0) -> bytes:
    """The frame with a VLAN tag; its ICRC stays right, for it does not cover the tag."""
    return frame[:12] + struct.pack("!HH", 0x8100, priority << 13 | vlan) + frame[12:]
