"""The ECPIX-5's clocks, button, UART and PHY in a running simulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge

from boards.ecpix5.card import CONFIG
from boards.ecpix5.top import MAC_HZ, VCO_HZ
from sim.models.rgmii import RgmiiPhy, RgmiiSignals
from sim.models.uart import UartEnd

__all__ = ["DIVISOR", "Board"]

#: Cycles of a bit of the UART, fewer than on the board: it is most of the simulated time.
DIVISOR = 4
INPUT_HZ = 100_000_000
#: Cycles of RXC that the button is held, and that a reset may last.
HELD, RESET_CYCLES = 20, 2000


class Board:
    """The pins of a simulated board. ``phy`` is its PHY, ``bit_ps`` a bit of its UART.

    arrived: called with each frame that the board sends.
    """

    bit_ps = DIVISOR * 1_000_000_000_000 // CONFIG.clock_hz

    def __init__(self, dut: Any, arrived: Callable[[bytes], None]):
        self._dut = dut
        pins = ("tx_clk", "tx_ctl", "tx_data", "rx_clk", "rx_ctl", "rx_data")
        self.phy = RgmiiPhy(
            RgmiiSignals(**{pin: getattr(dut, f"rgmii_{pin}") for pin in pins}), arrived
        )

    async def start(self) -> None:
        """Clocks, and the button pressed once; returns when the board's LED says that it runs."""
        dut = self._dut
        dut.button_n.value = 0
        dut.uart_rx.value = 1
        # Each edge of ``vco`` is a cycle of the PLL's oscillator.
        for name, hertz in (("clk100", INPUT_HZ), ("vco", VCO_HZ // 2), ("rgmii_rx_clk", MAC_HZ)):
            Clock(getattr(dut, name), 10**12 // hertz, unit="ps").start()
        await ClockCycles(dut.rgmii_rx_clk, HELD)
        dut.button_n.value = 1
        for _ in range(RESET_CYCLES):
            await RisingEdge(dut.rgmii_rx_clk)
            if not int(dut.led_running_n.value):
                return
        raise AssertionError("The board stays in reset: does its PLL lock?")

    def uart(self, arrived: Callable[[int], None]) -> UartEnd:
        """The PC's end of the UART; ``arrived`` is called with each byte of the board."""
        return UartEnd(self._dut.uart_rx, self._dut.uart_tx, bit_ps=self.bit_ps, arrived=arrived)
