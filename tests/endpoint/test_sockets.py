"""Frames in a stream, the peer's socket, the client's lines: pieces, trouble, limits."""

import os
import select
import socket
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.endpoint import lines as lines_module
from sim.endpoint import peer as peer_module
from sim.endpoint.frames import LARGEST, SHORTEST, Deframer, FramingError, framed
from sim.endpoint.lines import Lines, LineTooLong
from sim.endpoint.peer import Peer, connect, listen

FRAME = bytes(range(60))


@given(
    st.lists(st.integers(SHORTEST, 200), max_size=20),
    st.lists(st.integers(1, 300), min_size=1, max_size=40),
)
def test_frames_in_pieces_of_any_size(sizes, pieces):
    frames = [os.urandom(size) for size in sizes]
    stream = b"".join(map(framed, frames))
    deframer, found = Deframer(), []
    while stream:
        for piece in pieces:
            found += deframer.feed(stream[:piece])
            stream = stream[piece:]
    assert found == frames and not deframer.inside


def test_byte_by_byte_and_all_at_once():
    stream = b"".join(framed(bytes(size)) for size in (SHORTEST, LARGEST, 60))
    deframer = Deframer()
    found = [frame for byte in stream for frame in deframer.feed(bytes([byte]))]
    assert [len(frame) for frame in found] == [SHORTEST, LARGEST, 60]
    assert [len(frame) for frame in Deframer().feed(stream)] == [SHORTEST, LARGEST, 60]


@pytest.mark.parametrize("length", [0, SHORTEST - 1, LARGEST + 1, 1 << 31, (1 << 32) - 1])
def test_impossible_lengths(length):
    with pytest.raises(FramingError, match=f"not {length}$"):
        Deframer().feed(length.to_bytes(4, "big") + bytes(100))


def test_frames_before_an_impossible_length_are_not_lost(far):
    far.socket.sendall(2 * framed(FRAME) + bytes(4))
    assert far.peer.service(reading=True) == [FRAME, FRAME]
    assert not far.peer.connected and far.peer.counters["wire_frames_in"] == 2


class Far:
    """The other end of a peer, and what the peer has said."""

    def __init__(self, tmp_path, *, listening):
        self.path, self.said = str(tmp_path / "wire"), []
        if listening:
            self.peer = Peer(self.path, listen(self.path), self.said.append)
            self.peer.service(reading=True)
            self.socket = self.connect()
        else:
            self.listener = listen(self.path)
            self.peer = Peer(self.path, None, self.said.append)
            self.peer.service(reading=True)
            self.socket = self.listener.accept()[0]
        self.peer.service(reading=True)

    def connect(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(self.path)
        return self.socket

    def last(self):
        return self.said[-1].removeprefix(f"wire {self.path}: ")


@pytest.fixture(params=[True, False], ids=["listening", "connecting"])
def far(request, tmp_path):
    far = Far(tmp_path, listening=request.param)
    yield far
    far.socket.close()
    far.peer.close()


def test_both_ways(far):
    assert far.peer.connected and far.last() == "a peer is connected"
    far.socket.sendall(framed(FRAME) * 3)
    assert far.peer.service(reading=True) == [FRAME] * 3
    far.peer.send(FRAME)
    assert far.socket.recv(1000) == framed(FRAME)
    assert far.peer.counters == {
        "wire_connections": 1, "wire_frames_in": 3, "wire_frames_out": 1, "wire_drops": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    "sent, said",
    [
        (b"", "the peer has closed the connection"),
        (framed(FRAME)[:20], "the peer has closed the connection inside a frame"),
        ((1 << 31).to_bytes(4, "big"), "the connection is closed: a frame has 14 to 16384 bytes"),
    ],
)
def test_a_lost_peer_is_reported_and_another_one_taken(far, sent, said):
    far.socket.sendall(sent)
    far.peer.service(reading=True)
    far.socket.close()
    far.peer.service(reading=True)
    assert not far.peer.connected and said in far.last()
    far.peer.send(FRAME)
    assert far.peer.counters["wire_drops"] == 1
    if hasattr(far, "listener"):
        time.sleep(peer_module.RETRY_S)
        far.peer.service(reading=True)
        far.socket = far.listener.accept()[0]
    else:
        far.connect()
        far.peer.service(reading=True)
    far.socket.sendall(framed(FRAME))
    assert far.peer.service(reading=True) == [FRAME]


def test_a_peer_that_does_not_read(far, monkeypatch):
    """Nothing blocks; what is beyond the limit is dropped and counted; the rest arrives whole."""
    monkeypatch.setattr(peer_module, "MOST", 1 << 20)
    frames = [bytes([i & 0xFF]) * LARGEST for i in range(200)]
    for frame in frames:
        far.peer.send(frame)
    dropped = far.peer.counters["wire_drops"]
    assert 0 < dropped < 200 and far.peer.backlog <= 1 << 20
    found, deframer = [], Deframer()
    far.socket.settimeout(5)
    while len(found) < 200 - dropped:
        found += deframer.feed(far.socket.recv(1 << 16))
        far.peer.service(reading=True)
    assert found == frames[: len(found)] and far.peer.backlog == 0


def test_a_peer_that_goes_while_frames_wait(far):
    for _ in range(100):
        far.peer.send(bytes(LARGEST))
    far.socket.close()
    far.peer.service(reading=True)
    assert not far.peer.connected and far.peer.backlog == 0
    assert far.peer.counters["wire_drops"] > 0


def test_nobody_there_is_said_once(tmp_path, monkeypatch):
    monkeypatch.setattr(peer_module, "RETRY_S", 0)
    said = []
    peer = Peer(str(tmp_path / "none"), None, said.append)
    for _ in range(5):
        assert peer.service(reading=True) == []
    assert said == [f"wire {tmp_path}/none: No such file or directory; trying again"]


def test_waiting_for_what_can_happen(far):
    def events():
        poll = select.poll()
        assert far.peer.register(poll, reading=True) is None
        return poll.poll(0)

    assert events() == []
    far.socket.sendall(framed(FRAME))
    assert [event for _, event in events()] == [select.POLLIN]


def test_a_left_over_socket_is_replaced_a_live_one_and_a_file_are_not(tmp_path):
    path = str(tmp_path / "wire")
    listen(path).close()
    with listen(path):
        with pytest.raises(OSError, match="in use"):
            listen(path)
        connect(path).close()
    (tmp_path / "file").write_text("precious")
    with pytest.raises(OSError, match="in use"):
        listen(str(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "precious"


class Ends:
    """Both ends of the client's connection."""

    def __init__(self):
        ours, self.client = socket.socketpair()
        self.lines = Lines(ours)

    def service(self):
        poll = select.poll()
        self.lines.register(poll, reading=True)
        self.lines.service(dict(poll.poll(0)).get(self.lines.fileno(), 0))

    def all(self):
        found = []
        while (line := self.lines.next()) is not None:
            found.append(line)
        return found


@pytest.fixture
def ends():
    return Ends()


def test_lines_in_pieces(ends):
    found = []
    for piece in (b"a", b"b\n", b"\nc\nd", b"e", b"\r\n"):
        ends.client.sendall(piece)
        ends.service()
        found += ends.all()
    assert found == [b"ab", b"", b"c", b"de\r"]
    assert not ends.lines.ended


def test_the_last_line_needs_no_end(ends):
    ends.client.sendall(b"one\ntwo")
    ends.client.shutdown(socket.SHUT_WR)
    for _ in range(2):
        ends.service()
    assert ends.all() == [b"one", b"two"] and ends.lines.ended and not ends.lines.gone
    ends.lines.send(b"reply\n")
    assert ends.client.recv(100) == b"reply\n"
    ends.client.close()
    ends.service()
    assert ends.lines.gone


def test_lines_that_are_too_long(ends, monkeypatch):
    monkeypatch.setattr(lines_module, "LONGEST", 1000)
    for size in (1001, 5000, 1_000_000):
        rest = b"x" * size + b"\nnext\n" + b"y" * 1000 + b"\n"
        found = []
        while rest or b"y" * 1000 not in found:
            sent = rest[:50_000]
            ends.client.sendall(sent)
            rest = rest[len(sent) :]
            ends.service()
            while True:
                try:
                    line = ends.lines.next()
                except LineTooLong:
                    line = b"too long"
                if line is None:
                    break
                found.append(line)
        assert found == [b"too long", b"next", b"y" * 1000]


def test_a_client_that_does_not_read(ends):
    """Replies wait; nothing blocks; no more requests are taken until they have been read."""
    for _ in range(30):
        ends.lines.send(b"z" * 99_999 + b"\n")
    assert ends.lines.blocked and ends.lines.unsent
    got = 0
    while got < 30 * 100_000:
        got += len(ends.client.recv(1 << 20))
        ends.service()
    assert got == 30 * 100_000 and not ends.lines.blocked and not ends.lines.unsent
