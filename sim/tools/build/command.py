"""``./rocinante build``: writes what a vendor's tool needs to make a bitstream for a board."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path

import click

from boards.vivado import pin_constraints
from boards.zcu106.blocks import IRQS
from boards.zcu106.platform import Zcu106Platform
from boards.zcu106.script import script
from boards.zcu106.top import CONFIG, MAC_HZ, SLOW_HZ, WINDOW, Zcu106Top
from hdl.axi_nic import MAC_RX, MAC_TX
from hdl.common.constraints import clock_paths, xdc
from sim.rtl.env import BuildError, build_root
from sim.rtl.verilog import Rtl, sources
from sim.tools import console
from sim.tools.build import ecpix5
from sim.tools.core.command import write_core
from sim.tools.core.settings import CoreSettings

__all__ = ["BOARDS", "UNVERIFIED", "build", "write_board", "write_shell"]

BOARDS = ("zcu106", ecpix5.NAME)
#: The frequency of each clock, Hz.
CLOCKS = {"sync": CONFIG.clock_hz, MAC_TX: MAC_HZ, MAC_RX: MAC_HZ}
#: What nobody has tried yet.
UNVERIFIED = (
    "No tool of the vendor has read these files: no synthesis, placement or timing.",
    "Pins come from public constraint files, not from AMD's package file or the board's guide.",
    "Ports and settings of the vendor's blocks come from public designs and memory.",
    "The top has not been simulated; lint has read it with empty models of the vendor's blocks.",
    "S_AXI_HP0_FPD is not coherent: queues and buffers must be uncached memory of the processor.",
    "No figures of synthesis are recorded for this configuration.",
)


def write_shell() -> dict[str, str]:
    """Return all but the core: Verilog of the top, constraints of its own, the script.

    Raises BuildError when the gateware does not elaborate.
    """
    top = "\n".join(path.read_text() for path in sources(Rtl(Zcu106Top, name="zcu106")))
    platform = Zcu106Platform()
    return {
        "zcu106.sv": top,
        "zcu106.xdc": pin_constraints(platform) + xdc(clock_paths(Zcu106Top()), CLOCKS),
        "build.tcl": script(platform._part, platform.board_part),
    }


def write_board(folder: Path) -> list[Path]:
    """Write all files of the board into ``folder``; returns their names.

    Raises BuildError when the gateware does not elaborate.
    """
    files = write_shell()
    settings = CoreSettings(
        config=CONFIG,
        mac_clock_hz=MAC_HZ,
        interrupts=IRQS,
        interrupt_window=WINDOW,
    )
    with tempfile.TemporaryDirectory(prefix="rocinante-") as temporary:
        write_core(settings, Path(temporary), "rocinante")
        for kind in ("sv", "xdc"):
            files[f"zcu106.{kind}"] += Path(temporary, f"rocinante.{kind}").read_text()
    manifest = {
        "board": "zcu106",
        "part": Zcu106Platform()._part,
        "configuration": dataclasses.asdict(CONFIG),
        "clocks": CLOCKS | {"transceiver registers": SLOW_HZ},
        "resources": None,
        "unverified": UNVERIFIED,
    }
    files["manifest.json"] = json.dumps(manifest, indent=2) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return [folder / name for name in files]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("board", type=click.Choice(BOARDS))
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    metavar="DIR",
    help="Where the files go; default .build/boards/BOARD.",
)
@click.option(
    "--bitstream",
    "complete",
    is_flag=True,
    help="Of ecpix5 also the bitstream, by Yosys and nextpnr: an hour or more.",
)
def build(board: str, output: Path | None, complete: bool) -> None:
    """Write Verilog, constraints and the vendor tool's script for a board.

    docs/boards.md says how a bitstream comes of them, and what is unverified. With --bitstream the
    status is 1 when a clock is not met; the bitstream is there all the same.
    """
    open_tools = board == ecpix5.NAME
    if complete and not open_tools:
        raise click.UsageError(f"--bitstream is for {ecpix5.NAME}: {board} needs Vivado")
    folder = output or build_root() / "boards" / board
    met = True
    try:
        with console.progress(f"Generating {board}") as show:
            paths = (ecpix5.write_board if open_tools else write_board)(folder)
            if complete:
                ecpix5.netlist(folder, show)
                paths.append(ecpix5.route(folder, show))
    except BuildError as error:
        raise click.ClickException(str(error)) from None
    click.echo("\n".join(map(str, paths)))
    click.echo("Unverified:")
    unverified = ecpix5.UNVERIFIED if open_tools else UNVERIFIED
    click.echo("\n".join(f"  {line}" for line in unverified))
    if complete:
        lines, met = ecpix5.summary(json.loads((folder / "report.json").read_text()))
        click.echo("\n".join(lines))
    if not met:
        raise click.ClickException("Timing is not met")
