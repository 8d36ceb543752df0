"""Requests to the bridge and its answers, over any line of bytes. Spec: docs/bridge.md."""

from __future__ import annotations

import binascii
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from hdl.bridge.protocol import ANSWER, MOST_WORDS, NO_BLOCK, SYNC, WORD_BYTES, Command, Status

__all__ = ["BridgeError", "Line", "Link"]

_HEAD_BYTES, _CHECK_BYTES = 4, 2


class BridgeError(Exception):
    """The bridge has refused a request, or its answer did not come or was damaged.

    ``status``: how it was refused (it was not executed then), None for the rest.
    """

    def __init__(self, text: str, status: Status | None = None):
        super().__init__(text)
        self.status = status


class Line(Protocol):
    """Bytes to and from the board."""

    async def send(self, octets: bytes) -> None:
        """Send bytes; drop what has come until now."""

    async def receive(self, count: int) -> bytes:
        """The next ``count`` bytes; fewer when they do not come in time."""

    def lock(self) -> AbstractAsyncContextManager[object]:
        """A new lock of the event loop that the line belongs to."""


def check(octets: bytes) -> bytes:
    """CRC-16/IBM-3740 of ``octets``, as it is sent."""
    return binascii.crc_hqx(octets, 0xFFFF).to_bytes(2, "little")


class Link:
    """One request at a time. Errors: BridgeError; nothing is sent again by itself, as a request
    whose answer was lost may have been executed."""

    def __init__(self, line: Line):
        self._line, self._alone = line, line.lock()

    def lock(self) -> AbstractAsyncContextManager[object]:
        """A new lock for those who need several requests in a row."""
        return self._line.lock()

    async def read_register(self, place: int, strobes: int) -> int:
        """The word at ``place`` ({function, BAR, offset}), of which ``strobes`` are accessed."""
        answer = await self._request(Command.READ_REGISTER, strobes, place)
        return int.from_bytes(answer, "little")

    async def write_register(self, place: int, strobes: int, value: int) -> None:
        """Write the bytes that ``strobes`` name of the word at ``place``."""
        await self._request(Command.WRITE_REGISTER, strobes, place, value.to_bytes(4, "little"))

    async def read_memory(self, addr: int, words: int) -> bytes:
        """``words`` words of 8 bytes from ``addr`` on."""
        octets = b""
        while words:
            count = min(words, MOST_WORDS)
            at = addr + len(octets)
            octets += await self._request(Command.READ_MEMORY, count, at)
            words -= count
        return octets

    async def write_memory(self, addr: int, octets: bytes, strobes: bytes) -> None:
        """Write whole words from ``addr`` on; bit n of strobe m: byte n of word m is written."""
        for first in range(0, len(strobes), MOST_WORDS):
            some = range(first, min(first + MOST_WORDS, len(strobes)))
            data = b"".join(
                octets[WORD_BYTES * n : WORD_BYTES * (n + 1)] + strobes[n : n + 1] for n in some
            )
            await self._request(Command.WRITE_MEMORY, len(some), addr + WORD_BYTES * first, data)

    async def poll(self) -> tuple[int, int | None, bytes]:
        """Interrupts since the last call, and a block that the card has written, if there is one:
        its number and what is in it now."""
        answer = await self._request(Command.POLL, 0, 0)
        interrupts, block = (int.from_bytes(answer[at : at + 4], "little") for at in (0, 4))
        return interrupts, None if block == NO_BLOCK else block, answer[8:]

    async def _request(
        self, command: Command, argument: int, address: int, data: bytes = b""
    ) -> bytes:
        text = bytes((command, argument)) + address.to_bytes(4, "little") + data
        async with self._alone:
            await self._line.send(bytes((SYNC,)) + text + check(text))
            head = await self._line.receive(_HEAD_BYTES)
            if len(head) < _HEAD_BYTES:
                raise BridgeError(f"{command.name} at {address:#x}: no answer")
            length = head[-1]
            rest = await self._line.receive(length + _CHECK_BYTES)
        answer, found = rest[:length], rest[length:]
        if head[0] != ANSWER or check(head[1:] + answer) != found:
            raise BridgeError(f"{command.name} at {address:#x}: a damaged answer {head.hex()}")
        if head[2] != Status.OK:
            status = Status(head[2])
            raise BridgeError(f"{command.name} at {address:#x}: {status.name}", status)
        if head[1] != command:
            raise BridgeError(f"{command.name} at {address:#x}: the answer to {head[1]}")
        return answer
