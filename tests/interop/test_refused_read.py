"""A READ that is refused by a NAK 60h though nothing was lost: what a live Linux makes of it.

The card did that once, while it answered an older READ again. It does not any more, so here the
wire does it in the card's place.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

import pytest

from hdl.config import NicConfig
from hdl.transport.receive.types import Syndrome
from sim.bench import testbench
from sim.endpoint.frames import Deframer, framed
from sim.interop import image, lab, traffic
from sim.interop.frames import is_roce
from sim.interop.parties import Connection, ConnectionOptions
from sim.interop.relay import Relay
from sim.interop.traffic import Message, Mismatch, Tally, exchange
from sim.rtl.env import REPO
from sim.wire.packets import build, dissect, gid_bytes
from sim.wire.pcap import read_pcap
from tests.interop.qemu import need_qemu

ACK, READ, READ_ONLY, SEND_ONLY, WRITE_ONLY = 0x11, 0x0C, 0x10, 0x04, 0x0A
#: First PSN of Linux, and the PSN of the READ that is refused.
FIRST = 0x654321
REFUSED = FIRST + 1
MESSAGES = [Message(one, 100, 1) for one in ("RDMA_READ", "RDMA_READ", "RDMA_WRITE", "SEND")]
#: From the NAK to the copy of the READ, seconds: Linux has repeated everything long before.
LATE_S = 0.054
CAPTURES = REPO / "tests/data/interop"


class RefusingRelay(Relay):
    """Refuses the READ ``REFUSED`` when ``qpn``, of Linux, has sent it. What Linux sends is dropped
    then, as behind a gap, until a copy of that READ arrives ``LATE_S`` later."""

    def __init__(self, one: socket.socket, other: socket.socket) -> None:
        self.qpn, self._copy, self._open = 0, b"", True
        super().__init__(one, other)

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        deframer = Deframer()
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 18):
                for frame in deframer.feed(data):
                    if source is self._sockets[0] or not self._refuses(frame):
                        self._send(target, frame)

    def _send(self, target: socket.socket, frame: bytes) -> None:
        self._keep([frame])
        target.sendall(framed(frame))

    def _refuses(self, frame: bytes) -> bool:
        if not is_roce(frame):
            return False
        fields = dissect(frame).fields
        if self.qpn and (fields["opcode"], fields["psn"]) == (READ, REFUSED):
            card, linux = self._sockets
            nak = build(
                ACK,
                src_gid=gid_bytes("10.0.0.1"),
                dst_gid=gid_bytes("10.0.0.2"),
                dest_qp=self.qpn,
                psn=REFUSED,
                pkey=0xFFFF,
                syndrome=Syndrome.PSN_SEQUENCE.value,
                msn=1,
            )
            self.qpn, self._open = 0, False
            self._keep([frame])
            self._send(linux, nak)
            threading.Timer(LATE_S, self._arrive, (card, frame)).start()
            return True
        if not self._open:
            self._keep([frame])
        return not self._open

    def _arrive(self, card: socket.socket, frame: bytes) -> None:
        self._open = True
        self._send(card, frame)


def story(capture: Path) -> list[tuple[int, int]]:
    """Opcode and PSN of each RoCE frame of a capture."""
    frames = [dissect(frame).fields for _, frame in read_pcap(capture) if is_roce(frame)]
    return [(fields["opcode"], fields["psn"]) for fields in frames]


#: What Linux sends twice, the first time and after the NAK.
SENT = [(READ, REFUSED), (WRITE_ONLY, REFUSED + 1), (SEND_ONLY, REFUSED + 2)]


@pytest.mark.parametrize("timeout", [0, 14])
def test_what_the_captures_show(timeout: int) -> None:
    """Linux repeats all once. Without a time-out what is behind the READ never comes again."""
    found = story(CAPTURES / f"refused-read-timeout-{timeout}.pcap")
    answered = found.index((READ_ONLY, REFUSED))
    assert found[:2] == [(READ, FIRST), (READ_ONLY, FIRST)]
    assert found[2:answered].count((ACK, REFUSED)) == 1  # the NAK
    times = [found.count(one) for one in SENT]
    assert times == ([3, 2, 2] if timeout == 0 else [3, 3, 3])  # the third READ is the copy
    assert found[-1] == ((READ_ONLY, REFUSED) if timeout == 0 else (ACK, REFUSED + 2))


def test_linux_goes_on_only_if_it_has_a_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_qemu()
    monkeypatch.setattr(lab, "Relay", RefusingRelay)
    testbench.build(config=NicConfig(width=64))
    with lab.Lab(image.build(), 64) as up:
        assert isinstance(up.relay, RefusingRelay)
        for timeout, patience in ((14, 60.0), (0, 3.0)):
            monkeypatch.setattr(traffic, "_PATIENCE", patience)
            for party in up.parties:
                party.timeout = timeout
            connection = Connection.open(up.parties, ConnectionOptions(max_rd_atomic=1))
            up.relay.qpn = connection.qpns[1]
            capture = tmp_path / f"refused-read-timeout-{timeout}.pcap"
            with up.relay.capture(capture):
                if timeout:
                    exchange([connection], MESSAGES, seed=1, tally=Tally())
                else:
                    with pytest.raises(Mismatch, match="0 of 1 completions after"):
                        exchange([connection], MESSAGES, seed=1, tally=Tally())
            found = story(capture)
            assert found.count((ACK, REFUSED)) == 1 and SENT[-1] in found
            assert (READ_ONLY, REFUSED) in found
            # Not as the last frame: a Linux that waits for its turn asks for all of it once more.
            assert ((ACK, REFUSED + 2) in found) == bool(timeout)
