"""Joins a simulation that serves others to this process: standard input and output, sockets."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sim.endpoint import peer

__all__ = ["listening", "serve"]

_CHUNK = 1 << 16


@contextlib.contextmanager
def listening(path: str) -> Iterator[socket.socket]:
    """A listening socket whose file goes when it does; raises OSError."""
    with peer.listen(path) as listener:
        try:
            yield listener
        finally:
            Path(path).unlink(missing_ok=True)


def serve(
    model: Any,
    test_module: str,
    spec: dict[str, Any],
    listener: socket.socket | None,
    *,
    requests: bool = True,
    asks: Mapping[signal.Signals, bytes] | None = None,
) -> Any:
    """Run the simulation; its results. Standard input and output are the client's meanwhile.

    test_module: a bench that begins with ``sim.endpoint.control.Control``. spec: what it is
    told. listener: where its wire's peers connect. requests: False leaves standard input alone.
    asks: lines that the simulation gets when a signal comes.
    """
    from sim.rtl.build import run

    with tempfile.TemporaryDirectory(prefix="rocinante") as folder:
        relay = Relay(Path(folder) / "control", listener, requests=requests)
        with relay.stopped_by_signals(), relay.asked_by_signals(asks or {}):
            try:
                return run(
                    model,
                    test_module=test_module,
                    extra_env={
                        "ROCINANTE_ENDPOINT": json.dumps({**spec, "control": relay.path}),
                        "COCOTB_REWRITE_ASSERTION_FILES": "",  # for tests; here it takes time
                    },
                    timeout_s=math.inf,
                )
            finally:
                relay.close()


class Relay:
    """Joins standard input and output to the simulation's end of a socket.

    A simulation's own output goes to a log; and whatever happens to this process, the simulation
    sees its socket close, and ends.
    """

    def __init__(self, path: Path, listener: socket.socket | None, *, requests: bool = True):
        self.path = str(path)
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._door.bind(self.path)
        self._door.listen(1)
        self._descriptors = [2] if listener is None else [2, listener.fileno()]
        self._connection: socket.socket | None = None
        self._stopping = False
        self._takes_requests = requests
        self._replies = threading.Thread(target=self._serve, daemon=True)
        self._replies.start()

    def stop(self) -> None:
        """Tell the simulation that nobody is there any more."""
        self._stopping = True
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def stopped_by_signals(self) -> Iterator[None]:
        """End in good order when told to."""
        signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, lambda *_: self.stop()) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def asked_by_signals(self, asks: Mapping[signal.Signals, bytes]) -> Iterator[None]:
        """Pass a line on to the simulation for each signal."""

        def ask(number: int, _frame: Any) -> None:
            if self._connection is not None:
                with contextlib.suppress(OSError):
                    self._connection.sendall(asks[signal.Signals(number)])

        before = {number: signal.signal(number, ask) for number in asks}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def close(self) -> None:
        """The simulation has ended: pass on what it still had to say."""
        with contextlib.suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)  # wakes accept
        self._replies.join()
        self._door.close()

    def _serve(self) -> None:
        try:
            self._connection, _ = self._door.accept()
        except OSError:
            return  # the simulation has ended before it began
        with self._connection as connection:
            socket.send_fds(connection, [b"+"], self._descriptors)
            if self._stopping:
                self.stop()
            if self._takes_requests:
                threading.Thread(target=self._requests, args=(connection,), daemon=True).start()
            with contextlib.suppress(OSError):
                while data := connection.recv(_CHUNK):
                    _write(1, data)
            self.stop()

    def _requests(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(0, _CHUNK):
                connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
