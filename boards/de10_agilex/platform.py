"""The DE10-Agilex's part, pins and clocks.

Source: ``fpga/mqnic/DE10_Agilex/fpga_100g/fpga.qsf`` of corundum/corundum, which names the function
of each transceiver's ball; ``pins.csv`` has it. It is the only source: the board's own manual and
Intel's pin-out file of the part have not been compared with it.
"""

from typing import ClassVar

from amaranth.build import Attrs, Clock, Connector, Pins, Resource, Subsignal
from amaranth.vendor import AlteraPlatform

__all__ = ["CONFIGURATION", "De10AgilexPlatform"]

_SERIAL = Attrs(io_standard="HIGH SPEED DIFFERENTIAL I/O")
_REFCLK = Attrs(io_standard="HCSL")
_LVPECL = Attrs(io_standard="DIFFERENTIAL LVPECL")
_LVDS = Attrs(io_standard="True Differential Signaling")
_1V2 = Attrs(io_standard="1.2 V")

#: Assignments of the whole design: how the part is configured and how its supply is managed.
CONFIGURATION = {
    "USE_CONF_DONE": "SDM_IO16",
    "VID_OPERATION_MODE": "PMBUS MASTER",
    "USE_PWRMGT_SCL": "SDM_IO0",
    "USE_PWRMGT_SDA": "SDM_IO12",
    "PWRMGT_BUS_SPEED_MODE": "400 KHZ",
    "PWRMGT_SLAVE_DEVICE_TYPE": "OTHER",
    "PWRMGT_SLAVE_DEVICE0_ADDRESS": "4F",
    "PWRMGT_PAGE_COMMAND_ENABLE": "ON",
    "STRATIXV_CONFIGURATION_SCHEME": "AVST X16",
    "ACTIVE_SERIAL_CLOCK": "AS_FREQ_100MHZ",
    "DEVICE_INITIALIZATION_CLOCK": "OSC_CLK_1_125MHZ",
    "ON_CHIP_BITSTREAM_DECOMPRESSION": "ON",
    "GENERATE_COMPRESSED_SOF": "ON",
    "PRESERVE_UNUSED_XCVR_CHANNEL": "ON",
}


class De10AgilexPlatform(AlteraPlatform):
    """Resources are those that ``De10AgilexTop`` uses. A port of the top is resource_subsignal.

    A wide resource has its lanes in order. Of the first QSFP-DD cage the lower four lanes are used.
    """

    device = "AGFB014"
    package = "R24B"
    speed = "2"
    suffix = "E2V"
    resources = [
        Resource(
            "pcie",
            0,
            Subsignal(
                "rx_p",
                Pins(
                    "BP61 BN58 BK61 BJ58 BF61 BE58 BB61 BA58 AV61 AU58 AP61 AN58 AK61 "
                    "AJ58 AF61 AE58",
                    dir="i",
                ),
                _SERIAL,
            ),
            Subsignal(
                "rx_n",
                Pins(
                    "BR62 BM59 BL62 BH59 BG62 BD59 BC62 AY59 AW62 AT59 AR62 AM59 AL62 "
                    "AH59 AG62 AD59",
                    dir="i",
                ),
                _SERIAL,
            ),
            Subsignal(
                "tx_p",
                Pins(
                    "BP55 BN52 BK55 BJ52 BF55 BE52 BB55 BA52 AV55 AU52 AP55 AN52 AK55 "
                    "AJ52 AF55 AE52",
                    dir="o",
                ),
                _SERIAL,
            ),
            Subsignal(
                "tx_n",
                Pins(
                    "BR56 BM53 BL56 BH53 BG56 BD53 BC56 AY53 AW56 AT53 AR56 AM53 AL56 "
                    "AH53 AG56 AD53",
                    dir="o",
                ),
                _SERIAL,
            ),
            Subsignal("refclk_p", Pins("AJ48 AE48", dir="i"), Clock(100e6), _REFCLK),
            Subsignal("perst_n", Pins("BU58", dir="i"), Attrs(io_standard="1.8 V")),
        ),
        Resource(
            "qsfp",
            0,
            Subsignal("rx_p", Pins("BF7 BK7 BG10 BL10", dir="i"), _SERIAL),
            Subsignal("rx_n", Pins("BE8 BJ8 BH11 BM11", dir="i"), _SERIAL),
            Subsignal("tx_p", Pins("BF1 BK1 BG4 BL4", dir="o"), _SERIAL),
            Subsignal("tx_n", Pins("BE2 BJ2 BH5 BM5", dir="o"), _SERIAL),
            Subsignal("rst_n", Pins("DA20", dir="o"), _1V2),
            Subsignal("mod_sel_n", Pins("DB19", dir="o"), _1V2),
            Subsignal("initmode", Pins("DB21", dir="o"), _1V2),
        ),
        # Both cages' transceivers can have this clock; the part's other E-tile channels, which are
        # unused, are kept alive by the one below.
        Resource(
            "qsfp_refclk",
            0,
            Subsignal("p", Pins("AT13", dir="i"), Clock(156.25e6), _LVPECL),
            Subsignal(
                "bti_p",
                Pins("AJ12", dir="i"),
                Clock(156.25e6),
                _LVPECL,
                Attrs(
                    hssi_parameter="refclk_divider_use_as_BTI_clock=TRUE "
                    "refclk_divider_input_freq=156250000"
                ),
            ),
        ),
        Resource("sysclk", 0, Subsignal("p", Pins("CU50", dir="i"), Clock(100e6), _LVDS)),
        Resource(
            "led",
            0,
            Subsignal("running", Pins("CR54", dir="o"), _1V2),
            Subsignal("link", Pins("DB57", dir="o"), _1V2),
            Subsignal("no_link", Pins("CY57", dir="o"), _1V2),
        ),
    ]
    connectors: ClassVar[list[Connector]] = []
