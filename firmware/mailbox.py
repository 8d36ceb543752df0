"""A mailbox of the card, through which a control queue asks the firmware."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from firmware.device import HardwareError, Request
from firmware.identity import Bus
from firmware.requests import HEAD_WORDS
from hdl.csr.mailbox_block import MAILBOX_WORDS
from hdl.csr.map import CsrMap

__all__ = ["Mailbox", "OnBus"]


class OnBus(Protocol):
    """Whatever has registers on a bus, which may be replaced."""

    bus: Bus


class Mailbox:
    """The registers of the block ``name``. ``needed`` says which words of a request are read, of
    how many there are, by the first ``HEAD_WORDS``."""

    def __init__(
        self,
        owner: OnBus,
        csr: CsrMap,
        needed: Callable[[bytes, int], set[int]],
        name: str = "mailbox",
    ):
        self._owner, self._map, self._needed, self._name = owner, csr, needed, name

    def _address(self, register: str, word: int = 0) -> int:
        return self._map.address(f"{self._name}.{register}", word)

    async def _read(self, register: str, word: int = 0) -> int:
        return await self._owner.bus.read(self._address(register, word))

    async def request(self, function: int) -> Request:
        """The request that waits, of this PCI function."""
        length = await self._read("request_length")
        writable = await self._read("writable_length")
        kept = min(length, 4 * self._map.words(f"{self._name}.request"))
        words = [bytes(4)] * -(-kept // 4)

        async def take(numbers: Iterable[int]) -> None:
            for i in numbers:
                words[i] = (await self._read("request", i)).to_bytes(4, "little")

        head = range(min(HEAD_WORDS, len(words)))
        await take(head)
        needed = self._needed(b"".join(words[: len(head)]), len(words))
        await take(sorted(needed.difference(head)))
        return Request(function, b"".join(words)[:kept], length, writable)

    async def respond(self, response: bytes) -> None:
        """Write the response and say that it is complete. HardwareError if it does not fit."""
        if len(response) > 4 * MAILBOX_WORDS:
            raise HardwareError(f"A response of {len(response)} bytes does not fit the mailbox")
        for i in range(0, len(response), 4):
            word = int.from_bytes(response[i : i + 4], "little")
            await self._owner.bus.write(self._address("response", i // 4), word)
        bus, size = self._owner.bus, self._map.encode
        length = size(f"{self._name}.response_length", value=len(response))
        await bus.write(self._address("response_length"), length)
        await bus.write(self._address("control"), size(f"{self._name}.control", done=1))
