"""The far end of a UART in a cocotb simulation: bytes, and a line for ``sim.guest.bridge``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cocotb
from cocotb.triggers import Event, FallingEdge, First, Lock, Timer

__all__ = ["UartEnd", "UartLine"]


class UartEnd:
    """Bytes to the input ``rx`` and from the output ``tx`` of a board.

    bit_ps: duration of a bit. arrived: called with each byte of the board; AssertionError in the
    simulation when one has no stop bit.
    """

    def __init__(self, rx: Any, tx: Any, *, bit_ps: int, arrived: Callable[[int], None]):
        self._rx, self._tx, self._bit_ps, self._arrived = rx, tx, bit_ps, arrived
        rx.value = 1
        cocotb.start_soon(self._listen())

    async def send(self, octets: bytes, stop: int = 1) -> None:
        """Send bytes, each with the given stop bit."""
        for octet in octets:
            bits, now = (0, *(octet >> n & 1 for n in range(8)), stop), -1
            waits = 0
            for bit in bits:
                if bit != now:
                    if waits:
                        await Timer(waits, "ps")
                    self._rx.value, now, waits = bit, bit, 0
                waits += self._bit_ps
            await Timer(waits, "ps")
            self._rx.value = 1

    async def _listen(self) -> None:
        while True:
            await FallingEdge(self._tx)
            await Timer(self._bit_ps // 2, "ps")
            octet = 0
            for n in range(8):
                await Timer(self._bit_ps, "ps")
                octet |= int(self._tx.value) << n
            await Timer(self._bit_ps, "ps")
            assert int(self._tx.value) == 1, "a byte of the bridge has no stop bit"
            self._arrived(octet)


class UartLine:
    """Bytes to the input ``rx`` and from the output ``tx`` of a bridge; implements ``Line``.

    bit_ps: duration of a bit. patience: bytes that an answer may pause for, in their duration.
    """

    def __init__(self, rx: Any, tx: Any, *, bit_ps: int, patience: int = 200):
        self._patience_ps = 10 * bit_ps * patience
        self._came, self._event = bytearray(), Event()
        self._end = UartEnd(rx, tx, bit_ps=bit_ps, arrived=self._take)
        #: Bytes in both directions until now.
        self.count = 0

    def lock(self) -> Lock:
        """A new lock."""
        return Lock()

    async def send(self, octets: bytes, stop: int = 1) -> None:
        """Send bytes, each with the given stop bit; drop what has come until now."""
        self._came.clear()
        await self._end.send(octets, stop)
        self.count += len(octets)

    async def receive(self, count: int) -> bytes:
        """The next ``count`` bytes; fewer when they do not come in time."""
        while len(self._came) < count:
            self._event.clear()
            timeout = Timer(self._patience_ps, "ps")
            if await First(self._event.wait(), timeout) is timeout:
                break
        octets = bytes(self._came[:count])
        del self._came[:count]
        self.count += len(octets)
        return octets

    def _take(self, octet: int) -> None:
        self._came.append(octet)
        self._event.set()
