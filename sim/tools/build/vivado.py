"""Boards whose bitstream AMD Vivado makes: their files, by what differs between them."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from sim.rtl.verilog import Rtl, sources
from sim.tools.core.command import write_core
from sim.tools.core.settings import CoreSettings
from sim.tools.synth import baseline

__all__ = ["BOARDS", "VivadoBoard", "write_board", "write_shell"]

#: What nobody has tried yet of any of them.
_UNVERIFIED = (
    "No tool of the vendor has read these files: no synthesis, placement or timing.",
    "Pins come from public constraint files, not from AMD's package file or the board's guide.",
    "Ports and settings of the vendor's blocks come from public designs and memory.",
)


@dataclass(frozen=True, kw_only=True)
class VivadoBoard:
    """``top``: a component without arguments; ``core``: Verilog and constraints of the core;
    ``clocks``: of each domain, Hz; ``properties``: of the design, in the constraints;
    ``resources``: what the part has; ``parts``: the pieces of the card that ``./rocinante synth``
    knows, whose figures may be recorded; ``facts``: more for the manifest; ``unverified``: beside
    ``_UNVERIFIED``."""

    name: str
    platform: type[XilinxPlatform]
    top: Callable[[], Any]
    config: NicConfig
    clocks: Mapping[str, int]
    script: Callable[[XilinxPlatform], str]
    core: Callable[[], Mapping[str, str]]
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    resources: Mapping[str, int] = dataclasses.field(default_factory=dict)
    parts: tuple[str, ...] = ()
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    unverified: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """All that nobody has tried yet."""
        return _UNVERIFIED + self.unverified

    def use(self) -> dict[str, Any]:
        """Return what the part has, and for each piece its recorded figures, or None."""
        known = baseline.load().get(baseline.title("xcup", self.config), {})
        pieces = {
            name: {kind: known[name][kind] for kind in self.resources} if name in known else None
            for name in self.parts
        }
        return {"part": self.resources, "pieces": pieces}


def _zcu106_core() -> dict[str, str]:
    """The core with AXI on both sides, in its wrapper."""
    settings = CoreSettings(
        config=zcu106.CONFIG,
        mac_clock_hz=zcu106.MAC_HZ,
        interrupts=IRQS,
        interrupt_window=zcu106.WINDOW,
    )
    with tempfile.TemporaryDirectory(prefix="rocinante-") as temporary:
        write_core(settings, Path(temporary), "rocinante")
        return {kind: Path(temporary, f"rocinante.{kind}").read_text() for kind in ("sv", "xdc")}


def _u55c_core() -> dict[str, str]:
    """The core for the PCIe block: it has one clock, so none of its paths needs a constraint."""
    paths = sources(Rtl(PcieNic, u55c.PARAMETERS, name="rocinante"))
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
        facts={"functions": u55c.CONFIG.functions + 2, "probes": u55c.COUNTERS},
        unverified=(
            "The top has been simulated with models of the MAC's streams, without PCIe and core.",
            "Public designs disagree about the MAC's place (CMACE4_X0Y2 or X0Y3).",
            "The core has paths of 10 levels of logic: 250 MHz has not been tried.",
            "Function 0 has no BAR; whether the block can be made so has not been tried.",
        ),
    ),
)
BOARDS = {board.name: board for board in _ALL}


def write_shell(board: VivadoBoard) -> dict[str, str]:
    """Return all but the core: Verilog of the top, constraints of its own, the script.

    Raises BuildError when the gateware does not elaborate.
    """
    top = "\n".join(path.read_text() for path in sources(Rtl(board.top, name=board.name)))
    platform = board.platform()
    design = "".join(
        f"set_property {name} {value} [current_design]\n"
        for name, value in board.properties.items()
    )
    crossings = xdc(clock_paths(board.top()), board.clocks)
    return {
        f"{board.name}.sv": top,
        f"{board.name}.xdc": design + pin_constraints(platform) + crossings,
        "build.tcl": board.script(platform),
    }


def write_board(board: VivadoBoard, folder: Path) -> list[Path]:
    """Write all files of the board into ``folder``; returns their names.

    Raises BuildError when the gateware does not elaborate.
    """
    files, core = write_shell(board), board.core()
    design = f"{board.name}.sv"
    for path in sources(Rtl(board.top, name=board.name))[1:]:  # written by hand
        if (text := path.read_text()) in core["sv"]:
            files[design] = files[design].replace(text, "")  # a module is there once
    for kind, text in core.items():
        files[f"{board.name}.{kind}"] += f"\n{text}" if text else ""
    manifest = {
        "board": board.name,
        "part": board.platform()._part,
        "configuration": dataclasses.asdict(board.config),
        "clocks": board.clocks,
        **board.facts,
        "resources": board.use() if board.parts else None,
        "unverified": board.warnings,
    }
    files["manifest.json"] = json.dumps(manifest, indent=2) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return [folder / name for name in files]
