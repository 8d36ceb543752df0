"""Messages of vfio-user, with file descriptors beside them, on a unix socket that never blocks."""

from __future__ import annotations

import array
import contextlib
import os
import select
import socket
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sim.host.protocol import ERROR, HEADER, MOST_DATA, MOST_FILES, REPLY, TYPE

__all__ = ["Channel", "Message"]

#: Bytes of a message: what may be moved, with the structures around it.
LONGEST = MOST_DATA + 256
#: Messages that wait for their turn, from which on no more are read; and never more than that.
MANY, MOST = 64, 4096
#: Bytes that the other end has not read, from which on no more of its commands are taken; and never
#: more than that.
HIGH, UNREAD = 1 << 18, 64 << 20
_ENDED = select.POLLHUP | select.POLLERR | select.POLLNVAL


@dataclass
class Message:
    """One message. ``files``: descriptors that came with it; whoever keeps one takes it out."""

    id: int
    command: int
    flags: int
    error: int
    body: bytes
    files: list[int] = field(default_factory=list)

    @property
    def is_reply(self) -> bool:
        """Whether it answers one of ours."""
        return self.flags & TYPE == REPLY

    @property
    def failed(self) -> bool:
        """Whether it is an answer that says no."""
        return bool(self.flags & ERROR)

    def close(self) -> None:
        """Close the descriptors that nobody has taken."""
        _close(self.files)
        self.files = []


class Channel:
    """One end of a connection.

    ``inbox``: messages in the order in which they have come. ``trouble``: why it is of no use any
    more, "" while it is.
    """

    def __init__(self, connection: socket.socket):
        self._socket = connection
        connection.setblocking(False)
        self.inbox: deque[Message] = deque()
        self.trouble = ""
        self._part = bytearray()
        self._files: list[int] = []
        self._out: deque[tuple[memoryview, Sequence[int]]] = deque()
        self._unread = 0
        self._most = MANY

    @property
    def blocked(self) -> bool:
        """Whether the other end should read before it asks for more."""
        return self._unread > HIGH

    def register(self, poll: select.poll, *, eager: bool) -> None:
        """Add what is waited for to ``poll``. eager: read on, however many messages wait."""
        if self.trouble:
            return
        self._most = MOST if eager else 0 if self.blocked else MANY
        events = select.POLLIN if len(self.inbox) < self._most else 0
        poll.register(self._socket, events | (select.POLLOUT if self._out else 0))

    def service(self, found: dict[int, int]) -> None:
        """Read and write what ``poll`` says can be."""
        if self.trouble:
            return
        events = found.get(self._socket.fileno(), 0)
        self._flush()
        if events & (select.POLLIN | _ENDED):
            self._read(MOST if events & _ENDED else self._most)

    def send(
        self,
        number: int,
        command: int,
        body: bytes = b"",
        *,
        flags: int = 0,
        error: int = 0,
        files: Sequence[int] = (),
    ) -> None:
        """Send a message, now or later. ``files`` are closed when it has gone."""
        data = HEADER.pack(number, command, HEADER.size + len(body), flags, error) + body
        if self.trouble:
            _close(files)
            return
        self._out.append((memoryview(data), files))
        self._unread += len(data)
        self._flush()
        if self._unread > UNREAD:
            self.fail("it does not read what it is sent")

    def fail(self, why: str) -> None:
        """Give the connection up."""
        if not self.trouble:
            self.trouble = why

    def close(self) -> None:
        """End the connection, and close every descriptor that it holds."""
        self.fail("closed")
        for message in self.inbox:
            message.close()
        self.inbox.clear()
        _close(self._files)
        for _, files in self._out:
            _close(files)
        self._files, self._part = [], bytearray()
        self._out.clear()
        self._socket.close()

    def _flush(self) -> None:
        while self._out and not self.trouble:
            data, files = self._out[0]
            beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
            try:
                sent = self._socket.sendmsg([data], beside if files else [])
            except BlockingIOError:
                return
            except OSError as error:
                self.fail(f"it has gone: {error.strerror}")
                return
            _close(files)
            self._unread -= sent
            if sent < len(data):
                self._out[0] = (data[sent:], ())
            else:
                self._out.popleft()

    def _read(self, most: int) -> None:
        """Take what has come. A header is read alone: a descriptor belongs to the message whose
        first bytes came with it."""
        while not self.trouble and len(self.inbox) < most:
            try:
                data, beside, flags, _ = self._socket.recvmsg(
                    self._wanted(),
                    socket.CMSG_SPACE(4 * (MOST_FILES + 1)),
                    socket.MSG_CMSG_CLOEXEC,
                )
            except BlockingIOError:
                return
            except OSError as error:
                self.fail(f"it has gone: {error.strerror}")
                return
            self._keep(beside)
            if flags & socket.MSG_CTRUNC or len(self._files) > MOST_FILES:
                self.fail(f"a message has more than {MOST_FILES} file descriptors")
            elif not data:
                self.fail("it has gone in the middle of a message" if self._part else "it has gone")
            else:
                self._part += data
                self._complete()
        if len(self.inbox) >= MOST:
            self.fail(f"{MOST} messages wait for an answer to one of ours")

    def _keep(self, beside: Iterable[tuple[int, int, bytes]]) -> None:
        for level, kind, octets in beside:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                files = array.array("i")
                files.frombytes(octets[: len(octets) - len(octets) % files.itemsize])
                self._files += files

    def _wanted(self) -> int:
        """Bytes to the end of the header, or of the message when that has come."""
        if len(self._part) < HEADER.size:
            return HEADER.size - len(self._part)
        return int(HEADER.unpack_from(self._part)[2]) - len(self._part)

    def _complete(self) -> None:
        if len(self._part) < HEADER.size:
            return
        number, command, size, flags, error = HEADER.unpack_from(self._part)
        if not HEADER.size <= size <= LONGEST:
            self.fail(f"a message has {HEADER.size} to {LONGEST} bytes, not {size}")
        elif len(self._part) == size:
            body = bytes(self._part[HEADER.size :])
            self.inbox.append(Message(number, command, flags, error, body, self._files))
            self._part, self._files = bytearray(), []


def _close(files: Iterable[int]) -> None:
    for one in files:
        with contextlib.suppress(OSError):
            os.close(one)
