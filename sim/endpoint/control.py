"""The simulation's end of what ``sim.endpoint.relay`` has begun."""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import socket
from collections.abc import Callable
from functools import cached_property
from typing import Any

from sim.endpoint.lines import Lines
from sim.endpoint.peer import Peer

__all__ = ["Control"]

log = logging.getLogger("rocinante.endpoint")


class Control:
    """The client's ``lines``, the ``wire`` and the ``spec`` of this simulation.

    ROCINANTE_ENDPOINT is JSON: ``control`` (path of the socket of the command), ``wire`` (path),
    and what else the command tells its bench. Over ``control`` come first the descriptors of
    standard error and, when it listens, of the wire's socket; then the client's lines.
    """

    def __init__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # the command has them as well, and decides
        self.spec: dict[str, Any] = json.loads(os.environ["ROCINANTE_ENDPOINT"])
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(self.spec["control"])
        _, (errors, *listening), _, _ = socket.recv_fds(self._socket, 1, 2)
        listener = socket.socket(fileno=listening[0]) if listening else None
        self.lines = Lines(self._socket)
        #: Prints a line on the command's standard error.
        self.say = _reporter(errors)
        self._listener = listener

    @cached_property
    def wire(self) -> Peer:
        """The far end of the wire, if the settings name one."""
        return Peer(self.spec["wire"], self._listener, self.say)

    def close(self) -> None:
        """Leave peer and client."""
        if self.spec["wire"] is not None:
            self.wire.close()
        self._socket.close()


def _reporter(descriptor: int) -> Callable[[str], None]:
    """Prints lines on standard error, but rather loses one than waits for a reader."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)

    def say(text: str) -> None:
        log.info("%s", text)
        if any(events & select.POLLOUT for _, events in poll.poll(0)):
            os.write(descriptor, f"{text}\n".encode())

    return say
