"""Boards whose bitstream Intel Quartus makes: their files, by what differs between them."""

from __future__ import annotations

from dataclasses import dataclass

from boards.de10_agilex import top as de10
from boards.de10_agilex.platform import CONFIGURATION, De10AgilexPlatform
from boards.de10_agilex.script import IPS
from boards.quartus import Ip, assignments, clocks, part, project_script
from hdl.common.constraints import clock_paths, sdc
from hdl.config import NicConfig
from hdl.pcie_nic import PTileNic
from sim.make.boards.vendor import VendorBoard
from sim.rtl.verilog import Rtl, sources

__all__ = ["BOARDS", "QuartusBoard"]


@dataclass(frozen=True, kw_only=True)
class QuartusBoard(VendorBoard):
    """``ips``: the IP cores, each with a script of its own."""

    ips: tuple[Ip, ...]

    @property
    def part(self) -> str:
        """The part, as Quartus names it."""
        return part(self.platform())

    def tool_files(self) -> dict[str, str]:
        """Return assignments, constraints and scripts."""
        platform = self.platform()
        crossings = sdc(clock_paths(self.top()), self.clocks)
        return {
            f"{self.name}.qsf": assignments(
                platform, self.name, ips=self.ips, design=self.properties
            ),
            f"{self.name}.sdc": clocks(platform) + crossings,
            "build.tcl": project_script(self.name, self.ips),
            **{f"{ip.module}.tcl": ip.script(self.part) for ip in self.ips},
        }


def _de10_core(config: NicConfig) -> dict[str, str]:
    """The core for P-Tile: it has one clock, so none of its paths needs a constraint."""
    paths = sources(Rtl(PTileNic, {**de10.PARAMETERS, "config": config}, name="rocinante"))
    return {"sv": "\n".join(path.read_text() for path in paths)}


_ALL = (
    QuartusBoard(
        name="de10_agilex",
        platform=De10AgilexPlatform,
        top=de10.De10AgilexTop,
        config=de10.CONFIG,
        clocks=de10.CLOCKS,
        core=_de10_core,
        properties=CONFIGURATION,
        ips=IPS,
        facts={"functions": de10.CONFIG.functions + 2},
        unverified=(
            "The top has been simulated with models of the MAC's streams, without PCIe and core.",
            "Each ball is known from one public file alone.",
            "The receivers' start is that of a public design for this tile.",
            "The MAC's streams run at 403 MHz, which has not been tried.",
            "No figures of synthesis are recorded for this family.",
            "Function 0 has no BAR; whether P-Tile can be made so has not been tried.",
        ),
    ),
)
BOARDS = {board.name: board for board in _ALL}
