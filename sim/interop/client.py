"""The guest's verbs, with the calls of the endpoint's client."""

from __future__ import annotations

import math
import socket
import time
from typing import Any

__all__ = ["AgentError", "GuestClient", "ProtocolError", "encode", "parse"]

#: What a socket may take at once, bytes.
_CHUNK = 1 << 20
_LISTS = {"gids", "wc"}
_TEXTS = {"mac", "data", "state"}


class ProtocolError(RuntimeError):
    """The agent does not answer, or not as agreed."""


class AgentError(RuntimeError):
    """The agent refused: ``errno`` and its message."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.errno = number


def encode(op: str, fields: dict[str, Any]) -> bytes:
    """A request as the agent takes it: one line of words, ``name.part`` for the parts of an object.

    ValueError for what no word can hold.
    """
    words = [op]
    for name, value in fields.items():
        parts = value if isinstance(value, dict) else {"": value}
        words += [f"{name}{part and '.'}{part}={_text(one)}" for part, one in parts.items()]
    for word in words:
        if not word or any(character.isspace() for character in word):
            raise ValueError(f"Not a word of a request: {word!r}")
    return " ".join(words).encode() + b"\n"


def _text(value: Any) -> str:
    """Lists as a,b; [mr, offset, length] in them as mr:offset:length; bytes in hexadecimal."""
    if isinstance(value, (list, tuple)):
        return ",".join(
            ":".join(map(str, one)) if isinstance(one, (list, tuple)) else str(one) for one in value
        )
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    return str(int(value)) if isinstance(value, bool) else str(value)


def parse(line: str) -> dict[str, Any]:
    """What an answer holds. AgentError for a refusal, ProtocolError for what is no answer."""
    kind, _, rest = line.partition(" ")
    if kind == "error":
        number, _, message = rest.partition(" ")
        if number.isdigit():
            raise AgentError(int(number), message)
    if kind != "ok":
        raise ProtocolError(f"Not an answer of the agent: {line[:80]!r}")
    found: dict[str, Any] = {}
    for word in rest.split():
        name, equals, value = word.partition("=")
        if not equals:
            raise ProtocolError(f"Not a word of an answer: {word[:80]!r}")
        if name in _LISTS:
            parts = value.split(",") if value else []
            found[name] = [_completion(one) for one in parts] if name == "wc" else parts
        else:
            found[name] = value if name in _TEXTS else int(value, 0)
    return found


def _completion(text: str) -> dict[str, Any]:
    wr_id, status, opcode, byte_len, imm, rkey, qpn, src_qp, flags = text.split(":")
    return {
        "wr_id": int(wr_id),
        "status": status,
        "opcode": opcode or None,
        "byte_len": int(byte_len),
        "imm": int(imm),
        "invalidated_rkey": int(rkey),
        "qp_num": int(qpn),
        "src_qp": int(src_qp),
        "flags": flags.split("+") if flags else [],
    }


class GuestClient:
    """Requests to the agent, one at a time, each with a deadline in wall time."""

    def __init__(self, control: socket.socket, *, patience: float = 20.0) -> None:
        self._control = control
        self._patience = patience
        #: When nothing is waited for any more (``time.monotonic``), whatever a request allows.
        self.until = math.inf
        self._rest = bytearray()

    def call(self, op: str, *, patience: float | None = None, **fields: Any) -> dict[str, Any]:
        """The answer to one request.

        patience: seconds for it. Raises AgentError when it is refused, ProtocolError when the
        connection ends or nothing comes in time.
        """
        limit = self._patience if patience is None else patience
        deadline = time.monotonic() + limit + fields.get("timeout_ms", 0) / 1000
        deadline = min(deadline, self.until)
        self._send(encode(op, fields), op, deadline)
        return parse(self._line(op, deadline))

    def write(self, mr: int, data: bytes, offset: int = 0) -> None:
        """Put bytes into a region."""
        self.call("write_mem", mr=mr, offset=offset, data=data)

    def read(self, mr: int, length: int, offset: int = 0) -> bytes:
        """Bytes of a region."""
        return bytes.fromhex(self.call("read_mem", mr=mr, offset=offset, length=length)["data"])

    def _send(self, data: bytes, op: str, deadline: float) -> None:
        view = memoryview(data)
        while view:
            view = view[self._within(op, deadline, self._control.send, view[:_CHUNK]) :]

    def _line(self, op: str, deadline: float) -> str:
        while (end := self._rest.find(b"\n")) < 0:
            data = self._within(op, deadline, self._control.recv, _CHUNK)
            if not data:
                raise ProtocolError(f"{op}: the guest has closed the connection")
            self._rest += data
        line = self._rest[:end].decode(errors="replace")
        del self._rest[: end + 1]
        return line

    def _within(self, op: str, deadline: float, step: Any, argument: Any) -> Any:
        left = deadline - time.monotonic()
        try:
            if left <= 0:
                raise TimeoutError
            self._control.settimeout(left)
            return step(argument)
        except TimeoutError:
            raise ProtocolError(f"{op}: no answer of the guest in time") from None
        except OSError as error:
            raise ProtocolError(f"{op}: {error.strerror}") from None
