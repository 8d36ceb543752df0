"""The Ethernet of a machine with a card whose other end is a machine without one.

The card and the network interface beside it have one address, as a card with a network function
has. What comes for that address goes to the card when it is RoCE, and to the interface otherwise.
"""

from __future__ import annotations

import contextlib
import socket
import threading

from sim.endpoint.frames import Deframer, FramingError, framed
from sim.interop.frames import is_roce

__all__ = ["Switch"]

_CHUNK = 1 << 18


class Switch:
    """Joins three streams of frames, until one of them ends.

    card: of the card's wire. beside: of the interface with the card's address. peer: of the other
    machine. Nothing is lost: what one side does not take holds the others up.
    """

    def __init__(self, card: socket.socket, beside: socket.socket, peer: socket.socket) -> None:
        self._card, self._beside, self._peer = card, beside, peer
        self._locks = {end: threading.Lock() for end in (card, beside, peer)}
        self._threads = [
            threading.Thread(target=self._pass, args=(end,), daemon=True)
            for end in (card, beside, peer)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End the connections."""
        for end in (self._card, self._beside, self._peer):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for end in (self._card, self._beside, self._peer):
            end.close()

    def _pass(self, source: socket.socket) -> None:
        deframer = Deframer()
        with contextlib.suppress(OSError, FramingError):
            while data := source.recv(_CHUNK):
                for frame in deframer.feed(data):
                    target = self._target(source, frame)
                    with self._locks[target]:
                        target.sendall(framed(frame))

    def _target(self, source: socket.socket, frame: bytes) -> socket.socket:
        if source is not self._peer:
            return self._peer
        return self._card if is_roce(frame) else self._beside
