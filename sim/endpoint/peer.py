"""The far end of an endpoint's wire, over a unix stream socket that never blocks."""

from __future__ import annotations

import os
import select
import socket
import stat
import time
from collections import deque
from collections.abc import Callable

from sim.endpoint.frames import Deframer, FramingError, framed

__all__ = ["Peer", "connect", "listen"]

#: Between two attempts to connect, s.
RETRY_S = 0.25
#: Bytes that wait for a peer that does not read: from ``HIGH`` on the card should send no more;
#: frames beyond ``MOST`` are dropped.
HIGH, MOST = 1 << 20, 64 << 20
_CHUNK = 1 << 18


def listen(path: str) -> socket.socket:
    """A listening socket at ``path``; one that nobody listens at any more is replaced.

    Raises OSError.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        try:
            listener.bind(path)
        except OSError:
            if not _is_left_over(path):
                raise
            os.unlink(path)
            listener.bind(path)
        listener.listen(1)
    except BaseException:
        listener.close()
        raise
    return listener


def connect(path: str) -> socket.socket:
    """A connection to ``path``; raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        connection.connect(path)
    except BaseException:
        connection.close()
        raise
    return connection


def _is_left_over(path: str) -> bool:
    try:
        if stat.S_ISSOCK(os.stat(path).st_mode):
            connect(path).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False


class Peer:
    """Frames to and from whoever is at the other end, one at a time.

    listener: where peers connect; without it this side connects to ``path``, again and again.
    say: takes a line about what has happened.
    """

    def __init__(self, path: str, listener: socket.socket | None, say: Callable[[str], None]):
        self._path, self._listener, self._say = path, listener, say
        self._socket: socket.socket | None = None
        self._deframer = Deframer()
        self._waiting: deque[memoryview] = deque()
        self._next_attempt = 0.0
        self._trouble = ""
        #: Bytes that the peer has not read yet.
        self.backlog = 0
        self.counters = dict.fromkeys(
            ("wire_connections", "wire_frames_in", "wire_frames_out", "wire_drops"), 0
        )
        if listener is not None:
            listener.setblocking(False)

    @property
    def connected(self) -> bool:
        """Whether there is a peer."""
        return self._socket is not None

    def register(self, poll: select.poll, *, reading: bool) -> float | None:
        """Add what is waited for to ``poll``; seconds until ``service`` is due anyhow, if it is.

        reading: whether there is room for frames from the peer.
        """
        if self._socket is not None:
            events = (select.POLLIN if reading else 0) | (select.POLLOUT if self.backlog else 0)
            poll.register(self._socket, events)
            return None
        if self._listener is not None:
            poll.register(self._listener, select.POLLIN)
            return None
        return max(0.0, self._next_attempt - time.monotonic())

    def service(self, *, reading: bool) -> list[bytes]:
        """Connect, write, and read what can be done now; the frames that have come."""
        if self._socket is None:
            self._connect()
        self._write()
        return self._read() if reading else []

    def send(self, frame: bytes) -> None:
        """Pass a frame on, now or later; without a peer, or with too much waiting, it is lost."""
        data = framed(frame)
        if self._socket is None or self.backlog + len(data) > MOST:
            self.counters["wire_drops"] += 1
            return
        self.counters["wire_frames_out"] += 1
        self._waiting.append(memoryview(data))
        self.backlog += len(data)
        if len(self._waiting) == 1:
            self._write()

    def close(self) -> None:
        """Leave the peer."""
        for end in (self._socket, self._listener):
            if end is not None:
                end.close()
        self._socket = None

    def _connect(self) -> None:
        try:
            if self._listener is not None:
                self._socket, _ = self._listener.accept()
                self._socket.setblocking(False)
            elif time.monotonic() >= self._next_attempt:
                self._next_attempt = time.monotonic() + RETRY_S
                self._socket = connect(self._path)
        except BlockingIOError:
            return
        except OSError as error:
            self._report(f"{error.strerror}; trying again")
            return
        if self._socket is not None:
            self.counters["wire_connections"] += 1
            self._report("a peer is connected")

    def _write(self) -> None:
        while self._waiting and self._socket is not None:
            data = self._waiting[0]
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                return
            except OSError as error:
                self._lose(f"the peer has gone: {error.strerror}")
                return
            self.backlog -= sent
            if sent < len(data):
                self._waiting[0] = data[sent:]
            else:
                self._waiting.popleft()

    def _read(self) -> list[bytes]:
        if self._socket is None:
            return []
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return []
        except OSError as error:
            self._lose(f"the peer has gone: {error.strerror}")
            return []
        if not data:
            inside = " inside a frame" if self._deframer.inside else ""
            self._lose(f"the peer has closed the connection{inside}")
            return []
        try:
            frames = self._deframer.feed(data)
        except FramingError as error:
            self._lose(f"the connection is closed: {error}")
            frames = error.frames
        self.counters["wire_frames_in"] += len(frames)
        return frames

    def _lose(self, why: str) -> None:
        assert self._socket is not None
        self._socket.close()
        self._socket = None
        self.counters["wire_drops"] += len(self._waiting)
        self._waiting.clear()
        self.backlog = 0
        self._deframer = Deframer()
        self._next_attempt = time.monotonic() + RETRY_S
        self._report(why)

    def _report(self, text: str) -> None:
        """Say it, but not again and again."""
        if text != self._trouble:
            self._trouble = text
            self._say(f"wire {self._path}: {text}")
