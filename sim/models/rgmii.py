"""A PHY's side of RGMII in a cocotb simulation. Spec: RGMII 2.0, 3.0 to 3.4.1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cocotb
from cocotb.queue import Queue
from cocotb.triggers import FallingEdge, RisingEdge

from sim.models.gmii import GAP_CYCLES, frame_of, text_of

__all__ = ["RgmiiPhy", "RgmiiSignals"]

#: What a PHY tells between frames: the link is up, 1 Gb/s, full duplex.
_STATUS = 0b1101


@dataclass(frozen=True)
class RgmiiSignals:
    """The pins, seen from the board's FPGA. ``rx_clk`` has a driver of its own, 125 MHz."""

    tx_clk: Any
    tx_ctl: Any
    tx_data: Any
    rx_clk: Any
    rx_ctl: Any
    rx_data: Any


class RgmiiPhy:
    """Takes the FPGA's frames and sends others to it, both on both edges of their clock.

    The FPGA's bits are sampled at the edges of TXC. Those to it change at the edges of RXC, behind
    what samples there, as with a PHY that delays RXC. arrived: called with each frame of the FPGA;
    AssertionError in the simulation for one with TX_ER, a wrong preamble or check sequence.
    ``inject`` sends a frame to the FPGA.
    """

    def __init__(self, pins: RgmiiSignals, arrived: Callable[[bytes], None]):
        self._pins, self._arrived, self._frames = pins, arrived, Queue[bytes]()
        pins.rx_ctl.value = 0
        pins.rx_data.value = _STATUS
        #: Frames that have been injected and not sent yet.
        self.waiting = 0
        cocotb.start_soon(self._take())
        cocotb.start_soon(self._send())

    def inject(self, frame: bytes) -> None:
        """Send a frame, behind those before it."""
        self.waiting += 1
        self._frames.put_nowait(frame)

    async def _take(self) -> None:
        pins = self._pins
        while True:
            if not int(pins.tx_ctl.value):
                await RisingEdge(pins.tx_ctl)
            text = bytearray()
            while True:
                await RisingEdge(pins.tx_clk)
                low, enable = int(pins.tx_data.value), int(pins.tx_ctl.value)
                if not enable:
                    break
                await FallingEdge(pins.tx_clk)
                assert int(pins.tx_ctl.value), "The card spoils a frame"
                text.append(int(pins.tx_data.value) << 4 | low)
            self._arrived(frame_of(bytes(text)))

    async def _send(self) -> None:
        while True:
            frame = await self._frames.get()
            for octet in text_of(frame):
                await self._half(FallingEdge, 1, octet & 15)
                await self._half(RisingEdge, 1, octet >> 4)
            self.waiting -= 1
            for _ in range(GAP_CYCLES):
                await self._half(FallingEdge, 0, _STATUS)
                await self._half(RisingEdge, 0, _STATUS)

    async def _half(self, edge: Any, control: int, data: int) -> None:
        await edge(self._pins.rx_clk)
        self._pins.rx_ctl.value = control
        self._pins.rx_data.value = data
