"""The ZCU106's part, pins and clocks.

Sources: ``src/cndm/board/ZCU106/fpga/fpga.xdc`` of the repository fpganinja/taxi, and
``litex_boards/platforms/xilinx_zcu106.py`` of litex-hub/litex-boards. ``pins.csv`` has the source
of each ball. The board's own guide (UG1244) and AMD's package file of the part have not been
compared with them yet.
"""

from typing import ClassVar

from amaranth.build import Attrs, Clock, Connector, Pins, Resource, Subsignal
from amaranth.vendor import XilinxPlatform

__all__ = ["Zcu106Platform"]

_LVCMOS12 = Attrs(IOSTANDARD="LVCMOS12", SLEW="SLOW", DRIVE="8")


class Zcu106Platform(XilinxPlatform):
    """Resources are those that ``Zcu106Top`` uses. A port of the top is resource_subsignal."""

    device = "xczu7ev"
    package = "ffvc1156"
    speed = "2-e"
    #: Vivado's name of the board, whose preset configures DDR4 and MIO of the processor.
    board_part = "xilinx.com:zcu106:part0:*"
    resources = [
        Resource(
            "sfp",
            0,
            Subsignal("rx_p", Pins("AA2", dir="i")),
            Subsignal("rx_n", Pins("AA1", dir="i")),
            Subsignal("tx_p", Pins("Y4", dir="o")),
            Subsignal("tx_n", Pins("Y3", dir="o")),
            # The name ends in _b on the board: high lets the laser shine.
            Subsignal("tx_disable_b", Pins("AE22", dir="o"), _LVCMOS12),
        ),
        Resource(
            "mgt_refclk",
            0,
            Subsignal("p", Pins("U10", dir="i"), Clock(156.25e6)),
            Subsignal("n", Pins("U9", dir="i")),
        ),
        Resource(
            "led",
            0,
            Subsignal("link", Pins("AL11", dir="o"), _LVCMOS12),
            Subsignal("running", Pins("AL13", dir="o"), _LVCMOS12),
        ),
    ]
    connectors: ClassVar[list[Connector]] = []
