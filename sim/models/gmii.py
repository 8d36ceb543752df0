"""A PHY's side of GMII in a cocotb simulation: frames out of the wire's text, and back."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import cocotb
from cocotb.queue import Queue
from cocotb.triggers import FallingEdge, RisingEdge

__all__ = ["GAP_CYCLES", "GmiiPhy", "frame_of", "text_of"]

_PREAMBLE = b"\x55" * 7 + b"\xd5"
#: Between two frames.
GAP_CYCLES = 12
_LEAST = 60


def text_of(frame: bytes) -> bytes:
    """What the wire carries of a frame: preamble, padding, check sequence."""
    body = frame.ljust(_LEAST, b"\0")
    return _PREAMBLE + body + zlib.crc32(body).to_bytes(4, "little")


def frame_of(text: bytes) -> bytes:
    """The frame of a wire's text; AssertionError when preamble or check sequence are wrong."""
    assert text.startswith(_PREAMBLE), f"No preamble: {text[:8].hex()}"
    body, found = text[len(_PREAMBLE) : -4], text[-4:]
    assert zlib.crc32(body).to_bytes(4, "little") == found, "A wrong frame check sequence"
    return body


class GmiiPhy:
    """Takes the card's frames and sends others to it.

    tx, rx: signals data, en, er of the card's two directions; tx_clk, rx_clk: their clocks.
    arrived: called with each frame of the card. ``inject`` sends a frame to it.
    """

    def __init__(
        self,
        tx: tuple[Any, Any, Any],
        rx: tuple[Any, Any, Any],
        clocks: tuple[Any, Any],
        arrived: Callable[[bytes], None],
    ):
        self._tx, self._rx, (self._tx_clk, self._rx_clk) = tx, rx, clocks
        self._arrived, self._frames = arrived, Queue[bytes]()
        for signal in rx:
            signal.value = 0
        cocotb.start_soon(self._take())
        cocotb.start_soon(self._send())

    def inject(self, frame: bytes) -> None:
        """Send a frame, behind those before it."""
        self._frames.put_nowait(frame)

    async def _take(self) -> None:
        data, enable, error = self._tx
        while True:
            if not int(enable.value):
                await RisingEdge(enable)
            text = bytearray()
            while True:
                await FallingEdge(self._tx_clk)
                if not int(enable.value):
                    break
                assert not int(error.value), "The card spoils a frame"
                text.append(int(data.value))
            self._arrived(frame_of(bytes(text)))

    async def _send(self) -> None:
        data, enable, _ = self._rx
        while True:
            frame = await self._frames.get()
            await FallingEdge(self._rx_clk)
            enable.value = 1
            for octet in text_of(frame):
                data.value = octet
                await FallingEdge(self._rx_clk)
            enable.value = 0
            for _ in range(GAP_CYCLES):
                await FallingEdge(self._rx_clk)
