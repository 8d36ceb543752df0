"""A program's side of the endpoint's protocol: starts one as a child process and asks it.

    with EndpointClient("--wire", "unix:/tmp/wire", "--listen") as nic:
        mr = nic.call("reg_mr", length=4096, access=["LOCAL_WRITE"])
        qp = nic.call("create_qp", type="RC", max_send_wr=16, max_recv_wr=16)

Standard library only, so that it can be copied.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

__all__ = ["EndpointClient", "EndpointError", "EndpointGone", "OtherFunction"]

_SCRIPT = Path(__file__).resolve().parents[2] / "rocinante"
#: The command line: a checkout's, or that of the installation that runs this.
PROGRAM = (_SCRIPT,) if _SCRIPT.is_file() else (sys.executable, "-P", "-m", "sim.tools.cli")


class EndpointError(OSError):
    """The endpoint's reply is a failure: ``errno`` and ``strerror`` as it has sent them."""


class EndpointGone(RuntimeError):
    """The endpoint has ended, or does not answer in time; the text has its last lines."""


class EndpointClient:
    """One endpoint. ``arguments`` are those of ``rocinante endpoint``.

    command: another one with the same protocol, as bridge. program: how to start the command line,
    by default that of this file. timeout: s that a reply may take, beside what a poll itself may
    wait; the first one includes a build when there is none yet.
    """

    def __init__(
        self,
        *arguments: str,
        command: str = "endpoint",
        program: Sequence[str | os.PathLike[str]] = PROGRAM,
        timeout: float = 3600,
    ):
        self._timeout = timeout
        self._farewell = 600 if "--waves" in arguments else 20
        #: When nothing is waited for any more (``time.monotonic``), whatever a request allows.
        self.until = math.inf
        self._replies: queue.Queue[bytes] = queue.Queue()
        #: Lines of its standard error.
        self.messages: list[str] = []
        self.process = subprocess.Popen(
            [*program, command, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdout and self.process.stderr
        self._threads = [
            threading.Thread(target=self._read_replies, args=(self.process.stdout,), daemon=True),
            threading.Thread(target=self._read_messages, args=(self.process.stderr,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def call(self, op: str, **fields: Any) -> dict[str, Any]:
        """One request; its reply. Raises EndpointError, EndpointGone."""
        self.send_line(json.dumps({"op": op, **fields}).encode())
        return self.reply(self._timeout + fields.get("timeout_ms", 0) / 1000)

    def send_line(self, line: bytes) -> None:
        """Any bytes as a request, without waiting for the reply."""
        assert self.process.stdin
        try:
            self.process.stdin.write(line + b"\n")
            self.process.stdin.flush()
        except OSError:
            raise EndpointGone(self._last_words("has ended")) from None

    def reply(self, timeout: float | None = None) -> dict[str, Any]:
        """The next reply, within ``timeout`` s; errors as ``call``."""
        limit = self._timeout if timeout is None else timeout
        try:
            line = self._replies.get(timeout=max(0, min(limit, self.until - time.monotonic())))
        except queue.Empty:
            raise EndpointGone(self._last_words("does not answer")) from None
        if not line:
            self._replies.put(line)
            raise EndpointGone(self._last_words("has ended"))
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise EndpointError(reply["error"]["errno"], reply["error"]["message"])
        return reply

    # Common sequences ---------------------------------------------------------------------------

    def wait(self, count: int, timeout_ms: int = 60_000) -> list[dict[str, Any]]:
        """Exactly ``count`` completions; EndpointGone when they do not come in time."""
        found: list[dict[str, Any]] = self.call("poll", n=count, timeout_ms=timeout_ms)["wc"]
        if len(found) < count:
            raise EndpointGone(self._last_words(f"has {found} of {count} completions"))
        return found

    def write(self, mr: int, data: bytes, offset: int = 0) -> None:
        """Put bytes into a region."""
        self.call("write_mem", mr=mr, offset=offset, data=data.hex())

    def read(self, mr: int, length: int, offset: int = 0) -> bytes:
        """Bytes of a region."""
        return bytes.fromhex(self.call("read_mem", mr=mr, offset=offset, length=length)["data"])

    # The end ------------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> int:
        """Close its input, which ends it; its exit status. It is killed after ``timeout`` s.

        By default it has 20 s, and ten minutes when it records waves, which it writes at its end.
        """
        timeout = timeout or self._farewell
        assert self.process.stdin and self.process.stdout and self.process.stderr
        with contextlib.suppress(OSError):  # it has gone already, with something unread
            self.process.stdin.close()
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        for thread in self._threads:
            thread.join(timeout)
        self.process.stdout.close()
        self.process.stderr.close()
        return status

    def __enter__(self) -> EndpointClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read_replies(self, stream: IO[bytes]) -> None:
        for line in stream:
            self._replies.put(line)
        self._replies.put(b"")

    def _read_messages(self, stream: IO[bytes]) -> None:
        for line in stream:
            self.messages.append(line.decode(errors="replace").rstrip())

    def _last_words(self, what: str) -> str:
        return "\n".join([f"The endpoint {what}. It said:", *self.messages[-30:]])


class OtherFunction:
    """Another guest function of an endpoint's card (``--function-ip``): function ``number``."""

    def __init__(self, endpoint: EndpointClient, number: int):
        self._endpoint, self._number = endpoint, number

    def call(self, op: str, **fields: Any) -> dict[str, Any]:
        """One request; its reply. Raises EndpointError, EndpointGone."""
        return self._endpoint.call(op, **fields, function=self._number)

    def write(self, mr: int, data: bytes, offset: int = 0) -> None:
        """Put bytes into a region."""
        self.call("write_mem", mr=mr, offset=offset, data=data.hex())

    def read(self, mr: int, length: int, offset: int = 0) -> bytes:
        """Bytes of a region."""
        return bytes.fromhex(self.call("read_mem", mr=mr, offset=offset, length=length)["data"])
