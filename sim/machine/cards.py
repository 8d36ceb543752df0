"""The served cards: ``rocinante card`` as a process of this one's."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from sim.rtl.env import ToolError

__all__ = ["SERVED", "SO_FAR", "Cards"]

#: What the command says when the sockets are there.
SERVED = "the card is served"
#: What it says behind an answer.
SO_FAR = " ns of simulated time so far"
#: Seconds for its end, in good order.
_END_S = 60
_CHUNK = 1 << 16


class Cards:
    """Running cards; close them. ``lines``: what they have said so far.

    folder: of the sockets. options: of the command.
    """

    def __init__(self, folder: Path, options: Sequence[str]) -> None:
        self.folder = folder
        self.lines: list[str] = []
        self._rest = b""
        command = [sys.executable, "-P", "-m", "sim.tools.cli", "card"]
        try:
            self.process = subprocess.Popen(
                # With its parent it ends in good order.
                ["setpriv", "--pdeathsig", "TERM", *command, "--socket", str(folder), *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for this process, which ends the cards
                # What it leaves behind when it is killed goes with this process's folder.
                env={**os.environ, "TMPDIR": str(folder.parent)},
            )
        except FileNotFoundError:
            raise ToolError("setpriv not found: apt-get install util-linux") from None
        assert self.process.stderr is not None
        self._errors = self.process.stderr
        os.set_blocking(self._errors.fileno(), False)

    def socket(self, card: int, function: int) -> Path:
        """Of a function, which counts from 0."""
        return self.folder / f"card{card}-function{1 + function}"

    def fileno(self) -> int:
        """Where lines come from."""
        return self._errors.fileno()

    def read(self) -> bool:
        """Take what has been said; whether more may come."""
        try:
            data = os.read(self.fileno(), _CHUNK)
        except BlockingIOError:
            return True
        self._take(data)
        return bool(data)

    @property
    def served(self) -> bool:
        """Whether the sockets are there."""
        return SERVED in self.lines

    def ask(self, stall: bool) -> None:
        """Have the cards say what they have counted, and before it what is not at rest in them.

        The last line that comes then ends with ``SO_FAR``.
        """
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGUSR1 if stall else signal.SIGUSR2)

    def end(self) -> int:
        """End them in good order, with their counters; the status."""
        if self.process.poll() is None:
            self.process.terminate()
        until = time.monotonic() + _END_S
        while (left := until - time.monotonic()) > 0:
            if select.select([self.fileno()], [], [], left)[0] and not self.read():
                break
        try:
            return self.process.wait(max(1.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def close(self) -> None:
        """End them, whatever they do."""
        if self.process.poll() is None:
            self.end()
        self._errors.close()

    def _take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.lines += [line.decode(errors="replace") for line in lines]
