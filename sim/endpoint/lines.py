"""Lines to and from the client over a stream socket that never blocks."""

from __future__ import annotations

import select
import socket

from sim.endpoint.fields import MOST_DATA

__all__ = ["LONGEST", "LineTooLong", "Lines"]

#: Bytes of a line at most.
LONGEST = 2 * MOST_DATA + 4096
#: Replies that the client has not read, in bytes, from which on no more requests are taken.
_HIGH = 1 << 20
_CHUNK = 1 << 18


class LineTooLong(Exception):
    """A line had more than ``LONGEST`` bytes; it has been thrown away."""


class Lines:
    """Both directions of one connection. ``gone``: nobody is there any more."""

    def __init__(self, connection: socket.socket):
        self._socket = connection
        self._in, self._out = bytearray(), bytearray()
        self._searched = 0
        self._skipping = False
        self._ended = False
        self.gone = False
        connection.setblocking(False)

    @property
    def ended(self) -> bool:
        """Whether no further line will come."""
        return self.gone or (self._ended and not self._in)

    @property
    def blocked(self) -> bool:
        """Whether the client should read its replies before it asks for more."""
        return len(self._out) > _HIGH

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def register(self, poll: select.poll, *, reading: bool) -> None:
        """Add what is waited for to ``poll``; a hang-up always is."""
        events = select.POLLIN if reading and not self._ended else 0
        poll.register(self._socket, events | (select.POLLOUT if self._out else 0))

    def service(self, events: int) -> None:
        """Write and read what ``poll`` says can be."""
        if events & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
            self.gone = True
            return
        self._flush()
        if events & select.POLLIN and not self._ended:
            try:
                data = self._socket.recv(_CHUNK)
            except OSError:
                self.gone = True
                return
            self._in += data
            self._ended = not data

    def next(self) -> bytes | None:
        """A complete line without its end, the last one need not have an end; None without one.

        Raises LineTooLong, once for each such line.
        """
        end = self._in.find(b"\n", self._searched)
        if end < 0 and not (self._ended and (self._in or self._skipping)):
            self._searched = len(self._in)
            if len(self._in) > LONGEST:
                self._in.clear()
                self._searched, self._skipping = 0, True
            return None
        end = len(self._in) if end < 0 else end
        line = bytes(self._in[:end])
        del self._in[: end + 1]
        self._searched = 0
        if self._skipping or len(line) > LONGEST:
            self._skipping = False
            raise LineTooLong
        return line

    def send(self, data: bytes) -> None:
        """Send whole lines, now or later."""
        self._out += data
        self._flush()

    @property
    def unsent(self) -> bool:
        """Whether the client has replies to read."""
        return bool(self._out)

    def _flush(self) -> None:
        while self._out and not self.gone:
            try:
                sent = self._socket.send(self._out)
            except BlockingIOError:
                return
            except OSError:
                self.gone = True
                return
            del self._out[:sent]
