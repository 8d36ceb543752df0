"""What the tests of the vendors' boards share: stand-ins for their commands, and lint with stubs.

No tool of a vendor is needed. ``properties.csv`` has the properties that scripts and constraints
may name, with their values and where each is known from: ``corundum``, ``open-nic``, ``taxi`` and
``ndk`` are the repositories corundum/corundum, Xilinx/open-nic-shell, fpganinja/taxi and
CESNET/ndk-fpga; ``ofs`` is Intel's Open FPGA Stack; ``oc-accel`` is OpenCAPI/oc-accel; ``au50`` is
a public script for AMD's U50, ``avmm`` one for Intel's P-Tile with a memory-mapped interface;
``rtl``: public Verilog that Quartus wrote for P-Tile; ``memory``: no source was at hand.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from boards.blocks import Block
from sim.make.boards.vendor import VendorBoard
from sim.rtl import env, runner
from sim.rtl.build import WAIVERS
from sim.rtl.verilog import module_ports

__all__ = ["Bench", "needs_tclsh"]

HERE = env.REPO / "tests" / "boards"
needs_tclsh = pytest.mark.skipif(shutil.which("tclsh") is None, reason="tclsh is not installed")


@dataclass(frozen=True)
class Bench:
    """``board``; ``uses``: pattern of a port's bits -> pattern of functions that their balls may
    have, the first that fits counts; ``blocks``: what the top joins; ``standins``: for the commands
    of the vendor's tool."""

    board: VendorBoard
    uses: Mapping[str, str]
    blocks: tuple[Block, ...]
    standins: str = "vivado.tcl"

    def balls(self) -> dict[str, str]:
        """Return the function of each ball that ``pins.csv`` of the board names."""
        with (env.REPO / "boards" / self.board.name / "pins.csv").open() as table:
            return {row["ball"]: row["function"] for row in csv.DictReader(table)}

    def script(
        self, files: Mapping[str, str], folder: Path, facts: Iterable[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Write the files and run the script with the stand-ins; returns what tclsh says. Its
        status is 1 when a name or value is wrong, 2 when the script itself ends with an error."""
        for name, text in files.items():
            (folder / name).write_text(text)
        top = files.get(f"{self.board.name}.sv", "")
        lines = [
            f"set part {self.board.part}",
            f"set ports {{{' '.join(self._bits(top))}}}",
            f"set modules {{{' '.join(re.findall(r'^module ([a-z0-9_]+) ?[(]', top, re.M))}}}",
            _words("array set ball", (word for one in self.balls().items() for word in one)),
            _words("set uses", (word for one in self.uses.items() for word in one)),
            _words("set cells", self._registers(top)),
            _words("array set values", _properties()),
            *facts,
        ]
        (folder / "facts.tcl").write_text("\n".join(lines))
        command = ["tclsh", str(HERE / self.standins), "facts.tcl", "build.tcl"]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

    def _bits(self, top: str) -> Iterator[str]:
        """The bits of the top's ports; a port of one bit has no index."""
        ports = module_ports(top, self.board.name) if top else {}
        for name, (_, width) in ports.items():
            yield from [name] if width == 1 else (f"{name}[{n}]" for n in range(width))

    def _registers(self, text: str) -> list[str]:
        """Paths of all registers, as Vivado names them: instances, the register and _reg."""
        modules = {
            found[1].strip("\\ "): found[0]
            for found in re.finditer(r"^module (\S+) ?\(.*?^endmodule", text, re.M | re.S)
        }

        def below(module: str, place: str) -> Iterator[str]:
            body = modules[module]
            for name in re.findall(r"^  reg (?:\[\d+:\d+\] )?(\w+)", body, re.M):
                yield f"{place}{name}_reg[0]"
            for kind, name in re.findall(r"^  (\\?[\w.]+) +(\w+) \($", body, re.M):
                if kind.strip("\\") in modules:
                    yield from below(kind.strip("\\"), f"{place}{name}/")

        return list(below(self.board.name, "/")) if text else []

    def lint(
        self, folder: Path, text: str, blocks: Iterable[Block]
    ) -> subprocess.CompletedProcess[str]:
        """Lint the top with stubs of ``blocks``; returns what Verilator says."""
        off = "".join(f"/* verilator lint_off {rule} */\n" for rule in WAIVERS)
        stubs = "/* verilator lint_off UNDRIVEN */\n" + "".join(block.stub() for block in blocks)
        (folder / "top.sv").write_text(off + "/* verilator lint_off SYNCASYNCNET */\n" + text)
        (folder / "stubs.sv").write_text(off + stubs)
        with runner.wheel(env.work_root()) as tools:
            command = [*env.verilator_command(tools.verilator), "--lint-only", *runner.LINT]
            command += ["-Wwarn-WIDTH", "--top-module", self.board.name, "top.sv", "stubs.sv"]
            environment = {**os.environ, **env.make_environment(tools.verilator)}
            return subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, check=False
            )

    def finds_a_missing_port(self, folder: Path, text: str, block: Block) -> bool:
        """Tell whether lint finds it when a port of the block is not there."""
        port = list(block.ports)[-1]
        less = Block(block.name, {n: p for n, p in block.ports.items() if n != port}, "")
        done = self.lint(folder, text, [less if one is block else one for one in self.blocks])
        return bool(done.returncode) and f"'{port}'" in done.stderr


def _words(command: str, words: Iterable[str]) -> str:
    return f"{command} {{{' '.join(f'{{{word}}}' for word in words)}}}"


def _properties() -> Iterator[str]:
    with (HERE / "properties.csv").open() as table:
        for row in csv.DictReader(table):
            yield from (f"{row['owner']},{row['property']}", row["values"])
