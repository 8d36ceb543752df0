"""Mutants of gateware, made with Yosys's ``mutate``, and the proof that one of them is no fault.

All mutants of a room are in one copy of its Verilog. The plusarg ``+mutant=N`` of a simulation
chooses the one that is at work (0: none), so one compiled model serves all of them.
"""

from __future__ import annotations

import json
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
from typing import Any

from sim.rtl.env import REPO, ToolError, roomy
from sim.rtl.formal import installed

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
#: The module ``top`` with one mutant, since others may look at what nobody else does.
_FLATTEN = """
design -load netlist
{mutate}
hierarchy -top {top}
flatten
memory
opt -full -nodffe -nosdff
dffunmap
pmuxtree
simplemap
opt_clean -purge
"""
#: Yosys prints a multiplexer with several select lines as a case over these, and bits of a vector
#: apart, which looks like a loop when they depend on each other.
_LINT = "/* verilator lint_off CASEOVERLAP */\n/* verilator lint_off UNOPTFLAT */\n"
#: Both modules begin with the same state, which is 0 where nothing is said of it.
_COMPARE = """
setundef -init -zero
setundef -undriven -zero
delete -port w:{control}
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
techmap
opt -fast -nodffe -nosdff
aigmap
opt_clean
write_aiger -zinit miter.aig
"""
#: Any state is tried first. Then ABC finds by induction which registers are alike in both modules,
#: and leaves the rest to property-directed reachability.
_PROVE = "read_aiger miter.aig; dprove -F 2 -T {seconds}"
_PROVED = re.compile("^(UNSATISFIABLE|Networks are equivalent)", re.M)
#: Cells of the largest module in which a proof is tried: those take a minute or two.
_LARGEST = 80_000


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
    source: Path, top: str, commands: str, mutants: Sequence[Mutant], seconds: int = 60
) -> set[int]:
    """Return the numbers of those ``mutants`` that no input can tell from none, in any cycle.

    What cannot be told at the ports of a module cannot be told outside of it. So each proof is
    tried in the module that has the mutant, which is small, and then in those around it, up to
    ``top``: there it counts that nobody looks at some port, or that an input never has some value.
    ``commands`` are those that ``mutated`` returned. ``seconds``: for each proof; one that does not
    end in that time proves nothing.
    """
    lines, jobs = commands.splitlines(), []
    for one in mutants:
        path = one.module.removeprefix(top).split(".")
        for depth in range(len(path), 0, -1):
            around = top + ".".join(path[:depth])
            jobs.append({"number": one.number, "mutate": lines[one.number - 1], "top": around})
    jobs.sort(key=lambda job: -str(job["top"]).count("."))
    with tempfile.TemporaryDirectory(prefix="rocinante-mutants-") as name:
        folder = Path(name)
        (folder / "proofs.json").write_text(json.dumps({"seconds": seconds, "jobs": jobs}))
        _yosys(source, folder, _READ + "design -save netlist\n")
        return set(json.loads((folder / "proved.json").read_text()))


def _yosys(source: Path, folder: Path, script: str) -> None:
    """Run Yosys in ``folder``, and the proofs of ``proofs.json`` there behind that."""
    shutil.copy(source, folder / "room.sv")
    shutil.copy(REPO / "hdl" / "common" / "ram.v", folder)
    (folder / "commands.ys").write_text(script)
    command = [sys.executable, "-P", str(Path(__file__).absolute()), str(folder)]
    environment = {**os.environ, **roomy(), "PYTHONPATH": str(REPO)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolError(f"Yosys failed:\n{(done.stdout + done.stderr)[-3000:]}")


def _run(folder: Path) -> None:
    """Run Yosys (the process that ``_yosys`` starts)."""
    from pyosys import libyosys as yosys

    os.chdir(folder)
    design = yosys.Design()

    def run(script: str) -> None:
        Path("next.ys").write_text(script)
        yosys.run_pass("script next.ys", design)

    run(Path("commands.ys").read_text())
    if not Path("proofs.json").exists():
        return
    proofs, proved = json.loads(Path("proofs.json").read_text()), set()
    large: set[str] = set()
    for job in proofs["jobs"]:
        if job["number"] in proved or job["top"] in large:
            continue
        run(_FLATTEN.format(**job))
        module = design.top_module()
        if len(module.cells_) > _LARGEST:
            large.add(job["top"])
            continue
        _open_memories(yosys, module)
        run(_COMPARE.format(**job, control=_CONTROL))
        if _never_differ(proofs["seconds"]):
            proved.add(job["number"])
    Path("proved.json").write_text(json.dumps(sorted(proved)))


def _open_memories(yosys: Any, module: Any) -> None:
    """The large memories are taken out of the module, whose ports lead there: what two copies of it
    read is alike as long as they write and ask alike, and that is compared."""
    for cell in list(module.cells_.values()):
        if cell.type.str() != "\\rocinante_ram":
            continue
        for port, sig in list(cell.connections_.items()):
            name = f"\\memory {cell.name.str()} {port.str()}".replace(" ", ".")
            wire = module.addWire(yosys.IdString(name), sig.size())
            if port.str() == "\\read_row":
                wire.port_input = True
                module.connect(sig, yosys.SigSpec(wire))
            else:
                wire.port_output = True
                module.connect(yosys.SigSpec(wire), sig)
        module.remove(cell)
    module.fixup_ports()


def _never_differ(seconds: int) -> bool:
    """Whether ABC proves that the output of ``miter.aig`` is 0 in all cycles."""
    command = [str(installed() / "yosys-abc"), "-c", _PROVE.format(seconds=seconds)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return False
    return _PROVED.search(done.stdout) is not None


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
