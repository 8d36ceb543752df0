"""The wire between guest and endpoint: passes all frames on and writes them down."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sim.endpoint.frames import Deframer, FramingError
from sim.wire.pcap import write_pcap

__all__ = ["Relay"]

_CHUNK = 1 << 18


class Relay:
    """Joins two stream sockets, each with framed Ethernet frames, until one of them ends.

    Nothing is lost: what one side does not take holds the other one up. Time stamps of captures
    are wall time, taken when a frame passes here.
    """

    def __init__(self, one: socket.socket, other: socket.socket) -> None:
        self._sockets = (one, other)
        self._lock = threading.Lock()
        self._frames: list[tuple[int, bytes]] | None = None
        #: Why the wire does not pass frames any more; empty while it does.
        self.ended = ""
        self._threads = [
            threading.Thread(target=self._pass, args=ends, daemon=True)
            for ends in ((one, other), (other, one))
        ]
        for end in self._sockets:
            end.settimeout(None)
        for thread in self._threads:
            thread.start()

    @contextmanager
    def capture(self, path: Path) -> Iterator[list[tuple[int, bytes]]]:
        """Collect the frames that pass meanwhile; they are written to ``path`` in any case.

        Yields the list of (time stamp in ns, frame), which grows.
        """
        frames: list[tuple[int, bytes]] = []
        with self._lock:
            self._frames = frames
        try:
            yield frames
        finally:
            with self._lock:
                self._frames = None
            write_pcap(path, frames)

    def close(self) -> None:
        """End both connections."""
        for end in self._sockets:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it has ended by itself
        for thread in self._threads:
            thread.join()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        deframer = Deframer()
        try:
            while data := source.recv(_CHUNK):
                self._keep(deframer.feed(data))
                target.sendall(data)
            self.ended = self.ended or "a side has closed its end of the wire"
        except (OSError, FramingError) as error:
            self.ended = self.ended or str(error)

    def _keep(self, frames: list[bytes]) -> None:
        now = time.time_ns()
        with self._lock:
            if self._frames is not None:
                self._frames += [(now, frame) for frame in frames]
