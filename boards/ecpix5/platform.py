"""The ECPIX-5's part and pins.

Source of the pins: ``amaranth_boards/ecpix5.py`` of the repository amaranth-lang/amaranth-boards.
"""

from typing import ClassVar

from amaranth.build import Attrs, Clock, Connector, Pins, PinsN, Resource, Subsignal
from amaranth.vendor import LatticeECP5Platform

__all__ = ["Ecpix5Platform"]

_LVCMOS33 = Attrs(IO_TYPE="LVCMOS33")
_PULLED_UP = Attrs(IO_TYPE="LVCMOS33", PULLMODE="UP")


class Ecpix5Platform(LatticeECP5Platform):
    """Resources are those that ``Ecpix5Top`` uses."""

    device = "LFE5UM5G-85F"
    package = "BG554"
    speed = "8"
    resources = [
        Resource("clk100", 0, Pins("K23", dir="i"), Clock(100e6), _LVCMOS33),
        Resource("rst", 0, PinsN("AB1", dir="i"), _LVCMOS33),
        Resource(
            "uart",
            0,
            Subsignal("rx", Pins("R26", dir="i")),
            Subsignal("tx", Pins("R24", dir="o")),
            _PULLED_UP,
        ),
        Resource(
            "led",
            0,
            Subsignal("running", PinsN("R21", dir="o")),
            Subsignal("phy", PinsN("W21", dir="o")),
            _PULLED_UP,
        ),
        Resource(
            "eth_rgmii",
            0,
            Subsignal("rst", PinsN("C13", dir="o")),
            Subsignal("tx_clk", Pins("A12", dir="o")),
            Subsignal("tx_ctl", Pins("C9", dir="o")),
            Subsignal("tx_data", Pins("D8 C8 B8 A8", dir="o")),
            Subsignal("rx_clk", Pins("E11", dir="i"), Clock(125e6)),
            Subsignal("rx_ctl", Pins("A11", dir="i")),
            Subsignal("rx_data", Pins("B11 A10 B10 A9", dir="i")),
            _LVCMOS33,
        ),
    ]
    connectors: ClassVar[list[Connector]] = []
