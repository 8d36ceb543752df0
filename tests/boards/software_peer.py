"""A Soft-RoCE of one queue pair on the far end of a wire, whose packets scapy builds and reads.

Nothing here knows the gateware or its models: BTH, AETH and ICRC are scapy's, RETH is struct's.
Spec: InfiniBand 1.2.1, 9.2 (BTH), 9.3 (RETH, AETH), 9.7 (RC); the network loses nothing.
"""

from __future__ import annotations

import queue
import socket
import struct
import threading

from scapy.contrib.roce import AETH, BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from sim.endpoint.frames import Deframer, framed

__all__ = ["SoftwarePeer"]

ROCE_PORT = 4791
SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY = 0x00, 0x01, 0x02, 0x04
WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_ONLY = 0x06, 0x07, 0x08, 0x0A
READ_REQUEST = 0x0C
RESPONSE_FIRST, RESPONSE_MIDDLE, RESPONSE_LAST, RESPONSE_ONLY, ACKNOWLEDGE = range(0x0D, 0x12)
#: Opcode -> what a message of several packets begins, goes on and ends with, and one of one packet.
SEND = (SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY)
WRITE = (WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_ONLY)
RESPONSE = (RESPONSE_FIRST, RESPONSE_MIDDLE, RESPONSE_LAST, RESPONSE_ONLY)
#: Credits are not limited (AETH of an ACK).
UNLIMITED = 0x1F
RETH = struct.Struct(">QII")


def cut(kinds: tuple[int, int, int, int], data: bytes, mtu: int) -> list[tuple[int, bytes]]:
    """(opcode, payload) of the packets of a message."""
    pieces = [data[at : at + mtu] for at in range(0, len(data), mtu)] or [b""]
    first, middle, last, only = kinds
    if len(pieces) == 1:
        return [(only, pieces[0])]
    names = [first, *[middle] * (len(pieces) - 2), last]
    return list(zip(names, pieces, strict=True))


class SoftwarePeer:
    """A machine at ``ip`` and ``mac`` whose queue pair ``QPN`` is joined to one of the card.

    path: the socket of the card's wire. ``memory`` is at virtual address ``BASE`` with key
    ``RKEY``; SENDs of the card come out of ``received``. Whoever waits longer than ``patience``
    seconds gets queue.Empty. ``faults`` has what was wrong with the card's packets.
    """

    QPN, BASE, RKEY, PSN = 0x123, 0x7000_0000_0000, 0x5A5A0001, 0xFFFFFE

    def __init__(self, path: str, *, ip: str, mac: str, mtu: int, patience: float):
        self.ip, self.mac, self._mtu, self._patience = ip, mac, mtu, patience
        self.memory = bytearray(8192)
        self.received: queue.Queue[bytes] = queue.Queue()
        self.faults: list[str] = []
        self.opcodes: list[int] = []
        self._answers: queue.Queue[tuple[int, int, bytes]] = queue.Queue()
        self._message, self._place = bytearray(), 0
        self._messages = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def join(self, *, ip: str, mac: str, qpn: int, psn: int) -> None:
        """The card's queue pair, and the PSN that its requests begin with."""
        self._card, self._expected, self._next = (ip, mac, qpn), psn, self.PSN
        self._thread.start()

    def close(self) -> None:
        """Leave the wire."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    # Requester ----------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """A SEND; returns when it has been acknowledged."""
        self._request(cut(SEND, data, self._mtu))

    def write(self, addr: int, rkey: int, data: bytes) -> None:
        """A WRITE; returns when it has been acknowledged."""
        packets = cut(WRITE, data, self._mtu)
        opcode, payload = packets[0]
        packets[0] = (opcode, RETH.pack(addr, rkey, len(data)) + payload)
        self._request(packets)

    def read(self, addr: int, rkey: int, length: int) -> bytes:
        """A READ; returns what the card has answered."""
        count = max(1, -(-length // self._mtu))
        first = self._next
        self._packet(READ_REQUEST, first, RETH.pack(addr, rkey, length), ask=True)
        self._next = (first + count) & 0xFFFFFF
        data = b""
        for n in range(count):
            opcode, psn, payload = self._answers.get(timeout=self._patience)
            assert (psn - first) & 0xFFFFFF == n, f"response {n} has PSN {psn:#x}"
            wanted = (
                (RESPONSE_ONLY,)
                if count == 1
                else (
                    RESPONSE_FIRST
                    if n == 0
                    else RESPONSE_LAST
                    if n == count - 1
                    else RESPONSE_MIDDLE,
                )
            )
            assert opcode in wanted, f"response {n} of {count} is {opcode:#x}"
            data += payload
        return data

    def _request(self, packets: list[tuple[int, bytes]]) -> None:
        for n, (opcode, payload) in enumerate(packets, 1):
            last = self._next
            self._packet(opcode, last, payload, ask=n == len(packets))
            self._next = (last + 1) & 0xFFFFFF
        opcode, psn, _ = self._answers.get(timeout=self._patience)
        assert (opcode, psn) == (ACKNOWLEDGE, last), f"opcode {opcode:#x}, PSN {psn:#x}"

    # Responder ----------------------------------------------------------------------------------

    def _serve(self) -> None:
        deframer = Deframer()
        while data := self._socket.recv(1 << 16):
            for frame in deframer.feed(data):
                try:
                    self._take(Ether(frame))
                except (AssertionError, IndexError, struct.error) as fault:
                    self.faults.append(f"{fault!r}: {frame.hex()}")

    def _take(self, packet: Ether) -> None:
        ip, mac, _ = self._card
        assert (packet.dst, packet.src) == (self.mac, mac), packet.summary()
        assert (packet[IP].dst, packet[IP].src, packet[UDP].dport) == (self.ip, ip, ROCE_PORT)
        bth = packet[BTH]
        found, bth.icrc = bth.icrc, None
        assert Ether(bytes(packet))[BTH].icrc == found, "a wrong ICRC"
        assert bth.dqpn == self.QPN
        self.opcodes.append(bth.opcode)
        payload = bytes(bth.payload)[: packet[UDP].len - 8 - 12 - 4]
        payload = payload[: len(payload) - bth.padcount]
        if bth.opcode in (*RESPONSE, ACKNOWLEDGE):
            head = 0 if bth.opcode == RESPONSE_MIDDLE else 4
            assert not head or payload[0] >> 5 == 0, f"a NAK: {payload[0]:#x}"
            self._answers.put((bth.opcode, bth.psn, payload[head:]))
            return
        assert bth.psn == self._expected, f"PSN {bth.psn:#x}, not {self._expected:#x}"
        self._execute(bth, payload)

    def _execute(self, bth: BTH, payload: bytes) -> None:
        """One packet of a request in sequence."""
        psn, count = bth.psn, 1
        if bth.opcode in (WRITE_FIRST, WRITE_ONLY, READ_REQUEST):
            addr, rkey, length = RETH.unpack_from(payload)
            payload = payload[RETH.size :]
            self._place = addr - self.BASE
            assert rkey == self.RKEY and 0 <= self._place <= len(self.memory) - length
        if bth.opcode in SEND:
            self._message += payload
        elif bth.opcode in WRITE:
            self.memory[self._place : self._place + len(payload)] = payload
            self._place += len(payload)
        else:
            count = max(1, -(-length // self._mtu))
        self._expected = (psn + count) & 0xFFFFFF
        if bth.opcode in (SEND_LAST, SEND_ONLY, WRITE_LAST, WRITE_ONLY, READ_REQUEST):
            self._messages += 1
        if bth.opcode in (SEND_LAST, SEND_ONLY):
            self.received.put(bytes(self._message))
            self._message.clear()
        head = bytes(AETH(syndrome=UNLIMITED, msn=self._messages))
        if bth.opcode == READ_REQUEST:
            data = bytes(self.memory[self._place : self._place + length])
            for n, (opcode, piece) in enumerate(cut(RESPONSE, data, self._mtu)):
                answer = piece if opcode == RESPONSE_MIDDLE else head + piece
                self._packet(opcode, (psn + n) & 0xFFFFFF, answer)
        elif bth.ackreq:
            self._packet(ACKNOWLEDGE, psn, head)

    def _packet(self, opcode: int, psn: int, payload: bytes, *, ask: bool = False) -> None:
        ip, mac, qpn = self._card
        pad = -len(payload) % 4
        packet = (
            Ether(src=self.mac, dst=mac)
            / IP(src=self.ip, dst=ip, flags="DF")
            / UDP(sport=0xC123, dport=ROCE_PORT, chksum=0)
            / BTH(opcode=opcode, padcount=pad, dqpn=qpn, ackreq=int(ask), psn=psn)
            / Raw(payload + bytes(pad))
        )
        self._socket.sendall(framed(bytes(packet)))
