"""Mutants of gateware, made with Yosys's ``mutate``, and the proof that one of them is no fault.

All mutants of a room are in one copy of its Verilog. The plusarg ``+mutant=N`` of a simulation
chooses the one that is at work (0: none), so one compiled model serves all of them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from sim.rtl.env import REPO, ToolError

__all__ = ["Mutant", "equivalent", "mutated"]

_CONTROL = "rocinante_mutant"
#: The files have the same names everywhere: the names of cells hold them, and the sample hangs on
#: those. The memories of ram.v stay what they are.
_READ = """
read_verilog -lib ram.v
read_verilog -sv room.sv
proc
opt_clean
"""
_LIST = """
select -set parts {chosen}
select -set chosen @parts t:$mem* %d
mutate -list {count} -seed {seed} -o list.ys @chosen
"""
_APPLY = """
script mutants.ys
write_verilog -noattr mutated.sv
"""
_FLATTEN = """
script mutants.ys
hierarchy -top {top}
flatten
memory
opt -full -nodffe -nosdff
dffunmap
opt_clean -purge
"""
#: What has state, with its outputs. These become inputs of the room and its inputs outputs, so what
#: has to be equal in two of them is what goes into their states, in any state.
_STATES = {"$dff": ("Q",), "rocinante_ram": ("read_row",)}
_SAVE = """
delete -port w:{control}
design -save room
"""
#: Yosys prints a multiplexer with several select lines as a case over these, and bits of a vector
#: apart, which looks like a loop when they depend on each other.
_LINT = "/* verilator lint_off CASEOVERLAP */\n/* verilator lint_off UNOPTFLAT */\n"
_COMPARE = """
log MUTANT {number}
design -load room
rename {top} gold
copy gold gate
cd gold
connect -set {control} 16'd0
cd ..
cd gate
connect -set {control} 16'd{number}
cd ..
miter -equiv -flatten gold gate miter
hierarchy -top miter
opt -full
sat -prove trigger 0 -timeout {seconds} miter
"""


@dataclass(frozen=True)
class Mutant:
    """One change of the netlist: ``mode`` at one bit of a cell's port. The modes are Yosys's: inv,
    const0, const1, and cnot0, cnot1 (inverted while another bit of the cell is 0 or 1)."""

    number: int
    mode: str
    module: str
    cell: str
    port: str
    wire: str

    @property
    def where(self) -> str:
        """Return the module and the place in it, for a reader."""
        return f"{self.module}: {self.port} of {self.cell}" + (f", {self.wire}" * bool(self.wire))


def mutated(
    source: Path, top: str, chosen: Sequence[str], count: int, seed: int
) -> tuple[str, str, list[Mutant]]:
    """Make ``count`` mutants of the Verilog file ``source``, sampled by ``seed``.

    chosen: submodules of ``top`` by their path in it; what is below them counts too.
    Returns Verilog with all of them, the commands that made them, and what they are.
    """
    names = [f"{top}.{path}{below}" for path in chosen for below in ("", ".*")]
    chosen_cells = " ".join(f"{name}/t:*" for name in names)
    with tempfile.TemporaryDirectory(prefix="rocinante-mutants-") as name:
        folder = Path(name)
        listed = _LIST.format(chosen=chosen_cells, count=2 * count + 20, seed=seed)
        _yosys(source, folder, _READ + listed)
        lines = (folder / "list.ys").read_text().splitlines()
        # A clock with logic in it is no fault of the design, and simulators do not agree on it.
        fit = [line for line in lines if not re.search(r"-port (CLK|clk) ", line)][:count]
        commands = "".join(
            line.replace("mutate ", f"mutate -ctrl {_CONTROL} 16 {number} ", 1) + "\n"
            for number, line in enumerate(fit, 1)
        )
        (folder / "mutants.ys").write_text(commands)
        _yosys(source, folder, _READ + _APPLY)
        text = _selectable((folder / "mutated.sv").read_text(), top)
    mutants = [_mutant(number, line) for number, line in enumerate(commands.splitlines(), 1)]
    return text, commands, mutants


def equivalent(
    source: Path, top: str, commands: str, numbers: Sequence[int], seconds: int = 60
) -> set[int]:
    """Return those of the mutants ``numbers`` that no input and no state can tell from none.

    ``commands`` are those that ``mutated`` returned. ``seconds``: for each proof; one that does not
    end in that time proves nothing.
    """
    script = _SAVE.format(control=_CONTROL)
    for number in numbers:
        script += _COMPARE.format(top=top, control=_CONTROL, number=number, seconds=seconds)
    with tempfile.TemporaryDirectory(prefix="rocinante-mutants-") as name:
        folder = Path(name)
        (folder / "mutants.ys").write_text(commands)
        log = _yosys(source, folder, _READ + _FLATTEN.format(top=top), script)
    answers = re.split(r"^MUTANT (\d+)\s*$", log, flags=re.MULTILINE)[1:]
    proved = "SAT proof finished - no model found: SUCCESS!"
    return {int(n) for n, text in zip(answers[::2], answers[1::2], strict=True) if proved in text}


def _yosys(source: Path, folder: Path, script: str, further: str = "") -> str:
    """Run Yosys in ``folder``; before ``further`` the states become ports. Returns what it says."""
    shutil.copy(source, folder / "room.sv")
    shutil.copy(REPO / "hdl" / "common" / "ram.v", folder)
    (folder / "commands.ys").write_text(script)
    (folder / "further.ys").write_text(further)
    command = [sys.executable, "-P", str(Path(__file__).absolute()), str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(REPO)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolError(f"Yosys failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def _run(folder: Path) -> None:
    """Run Yosys (the process that ``_yosys`` starts)."""
    from pyosys import libyosys as yosys

    os.chdir(folder)
    design = yosys.Design()
    yosys.run_pass("script commands.ys", design)
    if not Path("further.ys").stat().st_size:
        return
    module = design.top_module()
    for cell in list(module.cells_.values()):
        kind = cell.type.str().lstrip("\\")
        for port, sig in list(cell.connections_.items()) if kind in _STATES else ():
            name = f"\\state {cell.name.str()} {port.str()}".replace(" ", ".")
            wire = module.addWire(yosys.IdString(name), sig.size())
            if port.str().lstrip("\\") in _STATES[kind]:
                wire.port_input = True
                module.connect(sig, yosys.SigSpec(wire))
            else:
                wire.port_output = True
                module.connect(yosys.SigSpec(wire), sig)
        if kind in _STATES:
            module.remove(cell)
    module.fixup_ports()
    yosys.run_pass("script further.ys", design)


def _selectable(text: str, top: str) -> str:
    """Let the plusarg drive the control input of the top module, which is a port no longer."""
    head, module, rest = text.partition(f"module {top}(")
    body, end, tail = rest.partition("endmodule")
    body = re.sub(rf",\s*{_CONTROL}(?=\s*\);)", "", body, count=1)
    body = body.replace(f"  input [15:0] {_CONTROL};\n", "", 1)
    chosen = f"reg [15:0] {_CONTROL} = 0;\n"
    chosen += f'  initial if (!$value$plusargs("mutant=%d", {_CONTROL})) {_CONTROL} = 0;\n'
    body = body.replace(f"wire [15:0] {_CONTROL};\n", chosen, 1)
    text = head + module + body + end + tail
    return _LINT + re.sub(r"\balways @\*", "always_comb", text)


def _mutant(number: int, line: str) -> Mutant:
    """Read one line of Yosys's list of mutants."""
    words = line.split()
    options: dict[str, str] = {}
    for name, value in pairwise(words):
        if name in ("-mode", "-module", "-cell", "-port", "-portbit", "-wire", "-wirebit"):
            options.setdefault(name[1:], value.lstrip("\\"))
    wire = options.get("wire", "")
    return Mutant(
        number=number,
        mode=options["mode"],
        module=options["module"],
        cell=re.sub(r"\$room\.sv:\d+", "", options["cell"]),
        port=f"{options['port']}[{options['portbit']}]",
        wire=f"{wire}[{options['wirebit']}]" if wire and wire[0] != "$" else "",
    )


if __name__ == "__main__":
    _run(Path(sys.argv[1]))
