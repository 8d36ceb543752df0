"""A board whose bitstream a vendor's tool makes: its files, by what differs between them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amaranth.build import Platform

from hdl.config import NicConfig
from sim.make.synth import baseline
from sim.rtl.env import FILES
from sim.rtl.verilog import Rtl, sources
from sim.tools import outputs

__all__ = ["VendorBoard", "write_board", "write_shell"]

#: Estimates of the boards' clocks, as ``./rocinante timing BOARD --update`` records them.
TIMING = FILES / "tests" / "data" / "timing.json"
#: What nobody has tried yet of any of them.
_UNVERIFIED = (
    "No tool of the vendor has read these files: no synthesis, placement or timing.",
    "Pins come from public constraint files, not from the vendor's package file or the board's "
    "guide.",
    "Ports and settings of the vendor's blocks come from public designs and memory.",
)


@dataclass(frozen=True, kw_only=True)
class VendorBoard:
    """``top``: a component without arguments; ``core``: Verilog (and constraints) of the core of a
    configuration;
    ``clocks``: of each domain, Hz; ``properties``: of the design, in the constraints;
    ``resources``: what the part has; ``parts``: the pieces of the card that ``./rocinante synth``
    knows, whose figures may be recorded; ``facts``: more for the manifest; ``unverified``: beside
    ``_UNVERIFIED``."""

    name: str
    platform: type[Platform]
    top: Callable[[], Any]
    config: NicConfig
    clocks: Mapping[str, int]
    core: Callable[[NicConfig], Mapping[str, str]]
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    resources: Mapping[str, int] = dataclasses.field(default_factory=dict)
    parts: tuple[str, ...] = ()
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    unverified: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """All that nobody has tried yet."""
        return (*_UNVERIFIED, _clock(self.name), *self.unverified)

    @property
    def part(self) -> str:
        """The part, as the vendor's tool names it."""
        raise NotImplementedError

    def tool_files(self) -> dict[str, str]:
        """Return what the vendor's tool needs beside the Verilog, but for the core's own."""
        raise NotImplementedError

    def use(self) -> dict[str, Any]:
        """Return what the part has, and the recorded figures of each piece that has some.

        For the others, it has the command that measures them.
        """
        known = baseline.load().get(baseline.title("xcup", self.config), {})
        pieces = {
            name: {kind: known[name][kind] for kind in self.resources}
            for name in self.parts
            if name in known
        }
        missing = {
            name: f"./rocinante synth --config qps={self.config.qps} --room {name}"
            for name in self.parts
            if name not in known
        }
        return {"part": self.resources, "pieces": pieces, "not_recorded": missing}


def _clock(board: str) -> str:
    """What is known about the clock of a board's core: the recorded estimate."""
    found = json.loads(TIMING.read_text())[board]
    fmax, levels = found["fmax_mhz"], max(map(int, found["levels"]["register"]))
    return (
        f"{found['clock_mhz']:g} MHz has not been tried for the core, whose paths have up to "
        f"{levels} levels of logic. The estimate of docs/timing.md is {fmax['usual']:.0f} MHz in "
        f"the usual case, {fmax['near']:.0f} at best."
    )


def write_shell(board: VendorBoard) -> dict[str, str]:
    """Return all but the core: Verilog of the top, constraints of its own, the script.

    Raises BuildError when the gateware does not elaborate.
    """
    top = "\n".join(path.read_text() for path in sources(Rtl(board.top, name=board.name)))
    return {f"{board.name}.sv": top, **board.tool_files()}


def write_board(board: VendorBoard, folder: Path, *, commit: int = 0) -> list[Path]:
    """Write all files of the board into ``folder``; returns their names.

    commit: see ``NicConfig``. Raises BuildError when the gateware does not elaborate.
    """
    config = dataclasses.replace(board.config, commit=commit)
    files, core = write_shell(board), board.core(config)
    design = f"{board.name}.sv"
    for path in sources(Rtl(board.top, name=board.name))[1:]:  # written by hand
        if (text := path.read_text()) in core["sv"]:
            files[design] = files[design].replace(text, "")  # a module is there once
    for kind, text in core.items():
        files[f"{board.name}.{kind}"] += f"\n{text}" if text else ""
    manifest = {
        "board": board.name,
        "part": board.part,
        "configuration": dataclasses.asdict(board.config),
        "commit": f"{commit:08x}",
        "clocks": board.clocks,
        **board.facts,
        **({"resources": board.use()} if board.parts else {}),
        "unverified": board.warnings,
    }
    files["manifest.json"] = json.dumps(manifest, indent=2) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        outputs.write_text(folder / name, text)
    return [folder / name for name in files]
