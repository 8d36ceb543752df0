"""A serial port as the line to the bridge, under asyncio."""

from __future__ import annotations

import asyncio
import contextlib

import serial

__all__ = ["SerialLine"]


class SerialLine:
    """A serial port of this machine; implements ``Line``.

    path: as /dev/ttyUSB1; baud: bits per second; timeout_s: longest wait for an answer. A USB
    adapter is asked to pass on each byte at once, where it can be asked.
    Errors: ``serial.SerialException`` when the port is not there or goes away.
    """

    def __init__(self, path: str, baud: int, *, timeout_s: float = 1.0):
        self.path = path
        self._port = serial.Serial(path, baud, timeout=timeout_s)
        with contextlib.suppress(NotImplementedError, ValueError):  # no such setting
            self._port.set_low_latency_mode(True)

    def lock(self) -> asyncio.Lock:
        """A new lock."""
        return asyncio.Lock()

    async def send(self, octets: bytes) -> None:
        """Send bytes; drop what has come until now."""
        self._port.reset_input_buffer()
        await asyncio.to_thread(self._port.write, octets)

    async def receive(self, count: int) -> bytes:
        """The next ``count`` bytes; fewer when they do not come in time."""
        return await asyncio.to_thread(self._port.read, count)

    def close(self) -> None:
        """Give the port back."""
        self._port.close()
