"""Boards whose bitstream AMD Vivado makes: their files, by what differs between them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from amaranth.vendor import XilinxPlatform

from boards.u55c import script as u55c_script
from boards.u55c import top as u55c
from boards.u55c.platform import CONFIGURATION, RESOURCES, U55cPlatform
from boards.vivado import pin_constraints
from boards.zcu106 import script as zcu106_script
from boards.zcu106 import top as zcu106
from boards.zcu106.blocks import IRQS
from boards.zcu106.platform import Zcu106Platform
from hdl.axi_nic import MAC_RX, MAC_TX
from hdl.common.constraints import clock_paths, xdc
from hdl.config import NicConfig
from hdl.pcie_nic import PcieNic
from sim.make.boards.vendor import VendorBoard
from sim.make.core.command import write_core
from sim.make.core.settings import CoreSettings
from sim.rtl.verilog import Rtl, sources

__all__ = ["BOARDS", "VivadoBoard"]


@dataclass(frozen=True, kw_only=True)
class VivadoBoard(VendorBoard):
    """``script``: of the platform, the text for Vivado."""

    script: Callable[[XilinxPlatform], str]

    @property
    def part(self) -> str:
        """The part, as Vivado names it."""
        return self.platform()._part

    def tool_files(self) -> dict[str, str]:
        """Return the constraints and the script."""
        platform = self.platform()
        design = "".join(
            f"set_property {name} {value} [current_design]\n"
            for name, value in self.properties.items()
        )
        crossings = xdc(clock_paths(self.top()), self.clocks)
        return {
            f"{self.name}.xdc": design + pin_constraints(platform) + crossings,
            "build.tcl": self.script(platform),
        }


def _zcu106_core(config: NicConfig) -> dict[str, str]:
    """The core with AXI on both sides, in its wrapper."""
    settings = CoreSettings(
        config=config,
        mac_clock_hz=zcu106.MAC_HZ,
        interrupts=IRQS,
        interrupt_window=zcu106.WINDOW,
    )
    with tempfile.TemporaryDirectory(prefix="rocinante-") as temporary:
        write_core(settings, Path(temporary), "rocinante")
        return {kind: Path(temporary, f"rocinante.{kind}").read_text() for kind in ("sv", "xdc")}


def _u55c_core(config: NicConfig) -> dict[str, str]:
    """The core for the PCIe block: it has one clock, so none of its paths needs a constraint."""
    paths = sources(Rtl(PcieNic, {**u55c.PARAMETERS, "config": config}, name="rocinante"))
    return {"sv": "\n".join(path.read_text() for path in paths), "xdc": ""}


_ALL = (
    VivadoBoard(
        name="zcu106",
        platform=Zcu106Platform,
        top=zcu106.Zcu106Top,
        config=zcu106.CONFIG,
        clocks={"sync": zcu106.CONFIG.clock_hz, MAC_TX: zcu106.MAC_HZ, MAC_RX: zcu106.MAC_HZ},
        script=lambda one: zcu106_script.script(one._part, one.board_part),
        core=_zcu106_core,
        facts={"transceiver_registers_hz": zcu106.SLOW_HZ},
        unverified=(
            "The top has not been simulated; lint has read it with empty models of the vendor's "
            "blocks.",
            "S_AXI_HP0_FPD is not coherent: queues and buffers must be uncached memory of the "
            "processor.",
            "No figures of synthesis are recorded for this configuration.",
        ),
    ),
    VivadoBoard(
        name="u55c",
        platform=U55cPlatform,
        top=u55c.U55cTop,
        config=u55c.CONFIG,
        clocks=u55c.CLOCKS,
        script=lambda one: u55c_script.script(one._part),
        core=_u55c_core,
        properties=CONFIGURATION,
        resources=RESOURCES,
        parts=("nic", "pcie_host", "cmac_crossing"),
        facts={"functions": u55c.CONFIG.functions + 2},
        unverified=(
            "The top has been simulated with models of the MAC's streams, without PCIe and core.",
            "Public designs disagree about the MAC's place (CMACE4_X0Y2 or X0Y3).",
            "Function 0 has no BAR; whether the block can be made so has not been tried.",
        ),
    ),
)
BOARDS = {board.name: board for board in _ALL}
