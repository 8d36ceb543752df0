"""The U55C's part, pins and clocks.

Sources, which agree about each ball: ``board_files/Xilinx/au55c/part0_pins.xml`` and
``constr/au55c`` of the repository Xilinx/open-nic-shell, and
``fpga/mqnic/Alveo/fpga_25g/fpga_au55.xdc`` of corundum/corundum. ``pins.csv`` has the function of
each ball. The board's own guide (UG1469) and AMD's package file of the part have not been compared
with them yet.
"""

from typing import ClassVar

from amaranth.build import Attrs, Clock, Connector, Pins, Resource, Subsignal
from amaranth.vendor import XilinxPlatform

__all__ = ["CONFIGURATION", "RESOURCES", "U55cPlatform"]

_LVCMOS18 = Attrs(IOSTANDARD="LVCMOS18")
_LED = Attrs(IOSTANDARD="LVCMOS18", SLEW="SLOW", DRIVE="8")
_LVDS = Attrs(IOSTANDARD="LVDS")

#: Properties of the design, for the flash that the card is configured from: as in the AMD
#: repository. The other one has a faster clock of the flash (85.0).
CONFIGURATION = {
    "CONFIG_VOLTAGE": "1.8",
    "CONFIG_MODE": "SPIx4",
    "BITSTREAM.CONFIG.CONFIGFALLBACK": "ENABLE",
    "BITSTREAM.GENERAL.COMPRESS": "TRUE",
    "BITSTREAM.CONFIG.SPI_BUSWIDTH": "4",
    "BITSTREAM.CONFIG.CONFIGRATE": "63.8",
    "BITSTREAM.CONFIG.EXTMASTERCCLK_EN": "DISABLE",
    "BITSTREAM.CONFIG.SPI_FALL_EDGE": "YES",
    "BITSTREAM.CONFIG.UNUSEDPIN": "PULLUP",
    "BITSTREAM.CONFIG.SPI_32BIT_ADDR": "YES",
}
#: What the part has, by the names of ``./rocinante synth``: 162,960 CLBs of eight look-up tables
#: and sixteen flip-flops, and its RAMs (DS890, of the same die as XCU280 and XCVU37P).
RESOURCES = {"lut": 1_303_680, "ff": 2_607_360, "bram": 2_016, "uram": 960, "dsp": 9_024}


class U55cPlatform(XilinxPlatform):
    """Resources are those that ``U55cTop`` uses. A port of the top is resource_subsignal.

    A wide resource has its lanes in order. No connector of the card has pins that are free.
    """

    device = "xcu55c"
    package = "fsvh2892"
    speed = "2L-e"
    resources = [
        Resource(
            "pcie",
            0,
            Subsignal("rx_p", Pins("AL2 AM4 AN6 AN2 AP4 AR2 AT4 AU2 AV4 AW6 AW2 AY4 BA6 BA2 BB4 "
                                   "BC2", dir="i")),
            Subsignal("rx_n", Pins("AL1 AM3 AN5 AN1 AP3 AR1 AT3 AU1 AV3 AW5 AW1 AY3 BA5 BA1 BB3 "
                                   "BC1", dir="i")),
            Subsignal("tx_p", Pins("AL11 AM9 AN11 AP9 AR11 AR7 AT9 AU11 AU7 AV9 AW11 AY9 BA11 BB9 "
                                   "BC11 BC7", dir="o")),
            Subsignal("tx_n", Pins("AL10 AM8 AN10 AP8 AR10 AR6 AT8 AU10 AU6 AV8 AW10 AY8 BA10 BB8 "
                                   "BC10 BC6", dir="o")),
            Subsignal("perst_n", Pins("BF41", dir="i"), _LVCMOS18, Attrs(PULLUP="TRUE")),
        ),
        Resource(
            "pcie_refclk",
            0,
            Subsignal("p", Pins("AR15", dir="i"), Clock(100e6)),
            Subsignal("n", Pins("AR14", dir="i")),
        ),
        Resource(
            "qsfp",
            0,
            Subsignal("rx_p", Pins("AD51 AC53 AC49 AB51", dir="i")),
            Subsignal("rx_n", Pins("AD52 AC54 AC50 AB52", dir="i")),
            Subsignal("tx_p", Pins("AD46 AC44 AB46 AA48", dir="o")),
            Subsignal("tx_n", Pins("AD47 AC45 AB47 AA49", dir="o")),
        ),
        Resource(
            "qsfp_refclk",
            0,
            Subsignal("p", Pins("AD42", dir="i"), Clock(161.1328125e6)),
            Subsignal("n", Pins("AD43", dir="i")),
        ),
        Resource(
            "sysclk",
            0,
            Subsignal("p", Pins("BK43", dir="i"), Clock(100e6), _LVDS),
            Subsignal("n", Pins("BK44", dir="i"), _LVDS),
        ),
        Resource(
            "led",
            0,
            Subsignal("running", Pins("BL13", dir="o"), _LED),
            Subsignal("link", Pins("BK11", dir="o"), _LED),
            Subsignal("no_link", Pins("BJ11", dir="o"), _LED),
        ),
        # High would tell the card's controller that the memory in the package is too hot.
        Resource("hbm", 0, Subsignal("cattrip", Pins("BE45", dir="o"), _LVCMOS18)),
    ]  # fmt: skip
    connectors: ClassVar[list[Connector]] = []
