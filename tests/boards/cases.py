"""The vendors' boards as their tests know them: uses of balls, and what is broken on purpose."""

from collections.abc import Mapping
from dataclasses import dataclass

from boards.blocks import Block
from boards.de10_agilex import blocks as de10_blocks
from boards.de10_agilex import top as de10_top
from boards.u55c import blocks as u55c_blocks
from boards.u55c import top as u55c_top
from boards.zcu106 import blocks as zcu106_blocks
from boards.zcu106 import top as zcu106_top
from hdl.axi_nic import AxiNic
from hdl.pcie_nic import PcieNic, PTileNic
from sim.make.boards import quartus, vivado
from sim.rtl.verilog import Rtl
from tests.boards.bench import Bench

__all__ = ["CASES", "Case"]


@dataclass(frozen=True)
class Case:
    """A board's ``bench``, whose blocks begin with the core; ``made``: what the scripts make;
    ``files``: all that ``build`` writes; ``broken``: a file, a text in it, what a test makes of it
    and what the stand-ins then say; ``failing``: facts with which the tool fails, and how the
    script ends; ``core``: the core, with what its ports' names have between their parts."""

    bench: Bench
    made: frozenset[str]
    files: frozenset[str]
    broken: tuple[tuple[str, str, str, str], ...]
    failing: Mapping[str, str]
    core: Rtl
    joint: str = "__"

    @property
    def name(self) -> str:
        """The board's name."""
        return self.bench.board.name

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks but for the core."""
        return self.bench.blocks[1:]


#: Lane n of PCI Express begins at the top of quad 227, lane n of the cage is channel n of quad 130.
_U55C_USES = {
    **{f"pcie_{way}_{pole}\\[{n}\\]": f"MGTY{way}{pole}{3 - n % 4}_{227 - n // 4}".upper()
       for way in ("rx", "tx") for pole in "pn" for n in range(16)},
    **{f"qsfp_{way}_{pole}\\[{n}\\]": f"MGTY{way}{pole}{n}_130".upper()
       for way in ("rx", "tx") for pole in "pn" for n in range(4)},
    **{f"pcie_refclk_{pole}": f"MGTREFCLK0{pole.upper()}_225" for pole in "pn"},
    **{f"qsfp_refclk_{pole}": f"MGTREFCLK0{pole.upper()}_130" for pole in "pn"},
    **{f"sysclk_{pole}": f"SYSCLK3_{pole.upper()} LVDS" for pole in "pn"},
    "pcie_perst_n": "PERST LVCMOS18",
    "hbm_cattrip": "HBM_CATTRIP LVCMOS18",
    "led_running": "QSFP0_ACTIVITY_LED LVCMOS18",
    "led_link": "QSFP0_LINK_LEDG LVCMOS18",
    "led_no_link": "QSFP0_LINK_LEDY LVCMOS18",
}  # fmt: skip
_ZCU106_USES = {
    **{f"sfp_{way}_{pole}": f"MGTH{way.upper()}{pole.upper()}2_225"
       for way in ("rx", "tx") for pole in "pn"},
    **{f"mgt_refclk_{pole}": f"MGTREFCLK1{pole.upper()}_226" for pole in "pn"},
    "*": "IO LVCMOS12",
}  # fmt: skip
#: Lanes are channels in order; the cage's middle two lanes are crossed on the board.
_DE10_USES = {
    **{f"pcie_{way}_{pole}\\[{n}\\]": f"GXPL10A_{way}_CH{n}{pole}".upper()
       for way in ("rx", "tx") for pole in "pn" for n in range(16)},
    **{f"qsfp_{way}_{pole}\\[{n}\\]": f"GXER9A_{way}_CH{channel}{pole}".upper()
       for way in ("rx", "tx") for pole in "pn" for n, channel in enumerate((12, 14, 13, 15))},
    "pcie_refclk_p\\[0\\]": "REFCLK_GXPL10A_CH0P",
    "pcie_refclk_p\\[1\\]": "REFCLK_GXPL10A_CH2P",
    "pcie_perst_n": "I_PIN_PERST_N_U10_P",
    "qsfp_refclk_p": "REFCLK_GXER9A_CH0P",
    "qsfp_refclk_bti_p": "REFCLK_GXER9A_CH2P",
    "qsfp_rst_n": "QSFPDDA_RST_N",
    "qsfp_mod_sel_n": "QSFPDDA_MOD_SEL_N",
    "qsfp_initmode": "QSFPDDA_INITMODE",
    "sysclk_p": "CLK_100_B2A",
    "led_running": "LED0",
    "led_link": "LED1",
    "led_no_link": "LED2",
}  # fmt: skip

_U55C_BROKEN = (
    ("u55c.xdc", "PACKAGE_PIN AL2 ", "PACKAGE_PIN AL99 ", "no ball AL99"),
    ("u55c.xdc", "PACKAGE_PIN AL2 ", "PACKAGE_PIN AM4 ", "ball AM4 is MGTYRXP2_227"),
    ("u55c.xdc", "PACKAGE_PIN AD51 ", "PACKAGE_PIN AA53 ", "ball AA53 is MGTYRXP0_131"),
    ("u55c.xdc", "PACKAGE_PIN AR15 ", "PACKAGE_PIN AP13 ", "ball AP13 is MGTREFCLK1P_225"),
    ("u55c.xdc", "PACKAGE_PIN BL13 ", "PACKAGE_PIN BK11 ", "ball BK11 is QSFP0_LINK_LEDG"),
    ("u55c.xdc", "{pcie_rx_p[15]}", "{pcie_rx_p[16]}", "no port pcie_rx_p[16]"),
    ("u55c.xdc", "[get_ports hbm_cattrip]", "[get_ports hbm_trip]", "no port hbm_trip"),
    ("u55c.xdc", "LVCMOS18", "LVCMOS81", "IOSTANDARD of pin cannot be LVCMOS81"),
    (
        "u55c.xdc",
        "SPI_BUSWIDTH 4",
        "SPI_BUSWIDTH 5",
        "BITSTREAM.CONFIG.SPI_BUSWIDTH of design cannot",
    ),
    ("u55c.xdc", "UNUSEDPIN", "UNUSEDPINS", "no property of design BITSTREAM.CONFIG.UNUSEDPINS"),
    ("u55c.xdc", "from_mac/fifo/produce_w_gry", "from_mac/fifo/produce_w_gray", "no cell"),
    ("u55c.xdc", "tx_drop_count/gray", "tx_drop_count/grey", "no cell"),
    ("u55c.xdc", "runs_mac", "rans_mac", "no pin"),
    ("build.tcl", "here u55c.sv", "here u50.sv", "no file"),
    ("build.tcl", "xcu55c", "xcu55n", "part xcu55n"),
    ("build.tcl", "-name cmac_usplus", "-name cmac_us", "no IP cmac_us"),
    ("build.tcl", "[get_ips pcie]", "[get_ips pci]", "no IP pci"),
    ("build.tcl", "axisten_if_width", "axisten_width", "no property of pcie4c_uscale_plus"),
    ("build.tcl", "{8.0_GT/s}", "{8_GT/s}", "PL_LINK_CAP_MAX_LINK_SPEED of pcie4c_uscale_plus"),
    ("build.tcl", "{X0Y24~X0Y27}", "{X0Y28~X0Y31}", "GT_GROUP_SELECT of cmac_usplus cannot be"),
    ("build.tcl", "PF1_MSIX_CAP_TABLE_BIR {BAR_0}", "PF1_MSIX_CAP_TABLE_BIR {0}", "PF1_MSIX_CAP"),
    ("build.tcl", "top u55c", "top u50", "no module u50"),
    ("build.tcl", "-delay_type", "-delay", "-delay_type is missing"),
)
_ZCU106_BROKEN = (
    ("zcu106.xdc", "PACKAGE_PIN AA2 ", "PACKAGE_PIN AA99 ", "no ball AA99"),
    ("zcu106.xdc", "PACKAGE_PIN AA2 ", "PACKAGE_PIN W2 ", "ball W2 is MGTHRXP3_225"),
    ("zcu106.xdc", "PACKAGE_PIN AE22 ", "PACKAGE_PIN AL11 ", "ball AL11 twice"),
    ("zcu106.xdc", "[get_ports sfp_tx_p]", "[get_ports sfp_tx]", "no port sfp_tx"),
    ("zcu106.xdc", "runs_sync", "rans_sync", "no pin"),
    ("zcu106.xdc", "IOSTANDARD", "IOSTANDART", "no property of pin IOSTANDART"),
    ("build.tcl", "here zcu106.sv", "here zcu107.sv", "no file"),
    ("build.tcl", "xczu7ev", "xczu9eg", "part xczu9eg"),
    ("build.tcl", "ps/pl_clk1]", "ps/pl_clock]", "no pin of ps pl_clock"),
    ("build.tcl", "ps/S_AXI_HP0_FPD", "ps/S_AXI_HP9_FPD", "no bus of ps S_AXI_HP9_FPD"),
    ("build.tcl", "[get_bd_ports irq]", "[get_bd_ports iqr]", "no port of the block design iqr"),
    ("build.tcl", "CONFIG.LANE1_GT_LOC", "CONFIG.LANE_LOC", "no property of xxv_ethernet LANE_LOC"),
    ("build.tcl", "[get_ips mac]", "[get_ips mack]", "no IP mack"),
    ("build.tcl", "CONFIG.LINE_RATE {10}", "CONFIG.LINE_RATE {100}", "LINE_RATE of xxv_ethernet"),
    ("build.tcl", "top zcu106", "top zcu107", "no module zcu107"),
)
_DE10_BROKEN = (
    ("de10_agilex.qsf", "PIN_BP61 ", "PIN_BP99 ", "no ball BP99"),
    ("de10_agilex.qsf", "PIN_BP61 ", "PIN_BN58 ", "ball BN58 is GXPL10A_RX_CH1P"),
    ("de10_agilex.qsf", "PIN_BF1 ", "PIN_BG4 ", "ball BG4 is GXER9A_TX_CH13P"),
    ("de10_agilex.qsf", "PIN_BF1 ", "PIN_AK1 ", "ball AK1 is GXER9A_TX_CH0P"),
    ("de10_agilex.qsf", "PIN_AJ48 ", "PIN_AE48 ", "ball AE48 is REFCLK_GXPL10A_CH2P"),
    ("de10_agilex.qsf", "PIN_AT13 ", "PIN_AJ12 ", "ball AJ12 is REFCLK_GXER9A_CH2P"),
    ("de10_agilex.qsf", "PIN_DA20 ", "PIN_CU22 ", "ball CU22 is QSFPDDB_RST_N"),
    ("de10_agilex.qsf", "-to pcie_rx_p[15]", "-to pcie_rx_p[16]", "no port pcie_rx_p[16]"),
    ("de10_agilex.qsf", "-to led_link", "-to led_lonk", "no port led_lonk"),
    ("de10_agilex.qsf", '"HCSL"', '"HSCL"', "IO_STANDARD of instance cannot be HSCL"),
    ("de10_agilex.qsf", "input_freq=156250000", "input_freq=1", "HSSI_PARAMETER of instance"),
    ("de10_agilex.qsf", "USE_CONF_DONE", "USES_CONF_DONE", "no property of global USES_CONF_DONE"),
    ("de10_agilex.qsf", "AGFB014R24B2E2V", "AGFB014R24A2E2V", "part AGFB014R24A2E2V"),
    ("de10_agilex.qsf", '"de10_agilex.sv"', '"de5.sv"', "no file de5.sv"),
    ("de10_agilex.qsf", '"mac.ip"', '"mag.ip"', "no IP mag.ip"),
    ("de10_agilex.qsf", 'ENTITY "de10_agilex"', 'ENTITY "de5"', "no module de5"),
    ("de10_agilex.sdc", "produce_w_gry", "produce_w_gray", "no register"),
    ("de10_agilex.sdc", "runs_mac", "rans_mac", "no register"),
    ("de10_agilex.sdc", "get_ports {sysclk_p}", "get_ports {sysclk}", "no port sysclk"),
    ("de10_agilex.sdc", "-period", "-time", "-period is missing"),
    ("build.tcl", "{pcie mac reset", "{pcie mag reset", "no file mag.tcl"),
    ("build.tcl", "project_open de10", "project_open de11", "no file de11_agilex.qsf"),
    ("build.tcl", "-tool ipg", "-tool igp", "no tool igp"),
    ("pcie.tcl", "DEVICE {AGFB014R24B2E2V}", "DEVICE {AGFB014R24A2E2V}", "part AGFB014R24A2E2V"),
    ("pcie.tcl", "intel_pcie_ptile_ast\n", "intel_pcie_rtile_ast\n", "no IP intel_pcie_rtile"),
    ("pcie.tcl", "{Gen3 1x16}", "{Gen3 x16}", "top_topology_hwtcl of intel_pcie_ptile_ast"),
    (
        "pcie.tcl",
        "pf1_virtio_capability_present",
        "pf1_virtio_present",
        "no property of intel_pcie",
    ),
    ("pcie.tcl", "{32-bit non-prefetchable memory}", "{32-bit memory}", "core16_pf1_bar0_type"),
    ("mac.tcl", "{first_lane0}", "{lane0}", "RSFEC_FIRST_LANE_SEL of alt_ehipc3_fm cannot be"),
    ("mac.tcl", "save_system {mac.ip}", "save_system {mag.ip}", "system mag.ip"),
)
_VIVADO_FAILS = {
    "set slack -0.01": "Timing is not met (max): slack -0.01 ns",
    "set progress 35%": "synth_1 has failed",
}


def _files(name: str, *more: str) -> frozenset[str]:
    return frozenset({f"{name}.sv", "build.tcl", "manifest.json", *more})


CASES = {
    case.name: case
    for case in (
        Case(
            Bench(
                vivado.BOARDS["u55c"],
                _U55C_USES,
                (
                    u55c_top.CORE, u55c_blocks.PCIE, u55c_blocks.CMAC,
                    u55c_blocks.GT_BUFFER, u55c_blocks.IN_BUFFER, u55c_blocks.BUFG,
                ),
            ),
            frozenset({"pcie.xci", "cmac.xci"}),
            _files("u55c", "u55c.xdc"),
            _U55C_BROKEN,
            _VIVADO_FAILS,
            Rtl(PcieNic, u55c_top.PARAMETERS, name="rocinante"),
        ),
        Case(
            Bench(
                vivado.BOARDS["zcu106"],
                _ZCU106_USES,
                (zcu106_top.CORE, zcu106_blocks.PROCESSOR, zcu106_blocks.MAC),
            ),
            frozenset({"processor.bd", "mac.xci"}),
            _files("zcu106", "zcu106.xdc"),
            _ZCU106_BROKEN,
            _VIVADO_FAILS,
            Rtl(AxiNic, zcu106_top.PARAMETERS, name="rocinante_core"),
            joint="_",
        ),
        Case(
            Bench(
                quartus.BOARDS["de10_agilex"],
                _DE10_USES,
                (
                    de10_top.CORE, de10_blocks.PCIE, de10_blocks.MAC_BLOCK, de10_blocks.RELEASE,
                ),
                "quartus.tcl",
            ),
            frozenset({"pcie.ip", "mac.ip", "reset_release.ip"}),
            _files(
                "de10_agilex", "de10_agilex.qsf", "de10_agilex.sdc", "pcie.tcl", "mac.tcl",
                "reset_release.tcl",
            ),
            _DE10_BROKEN,
            {
                "set slack -0.01": "Timing is not met: slack -0.01 ns",
                "set fails 1": "the flow has failed",
            },
            Rtl(PTileNic, de10_top.PARAMETERS, name="rocinante"),
        ),
    )
}  # fmt: skip
