"""Amaranth's assertions, proved or refuted by ABC's property-directed reachability.

Yosys (``pyosys``) makes an and-inverter graph of a harness: each assertion is an output that must
stay 0, each assumption a constraint. ABC, which comes with Yosys, then looks for an invariant that
holds at all times, or for the cycles that lead to a violation. Reset is an input like any other:
what is proved is proved with a reset in any cycle.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import Fragment

from sim.rtl.env import ToolError, roomy

__all__ = ["Verdict", "installed", "prove"]

_PROGRAM = """
import sys, pyosys
sys._pyosys_share_dirname = sys.argv[1]
from pyosys import libyosys
libyosys.run_pass("script model.ys")
"""

#: ``techmap`` leaves gates of one bit; ``-zinit``: ABC's registers begin with 0; ``-B``: assertions
#: are outputs that say "wrong", as ABC wants them.
_SCRIPT = """
read_rtlil model.il
hierarchy -top top
proc
flatten
memory_map -formal
async2sync
chformal -lower
opt -full
setundef -undriven -anyseq
formalff -setundef -clk2ff -ff2anyinit -hierarchy
opt_clean
delete -output
async2sync
techmap
dffunmap
aigmap
opt_clean
write_aiger -I -B -zinit model.aig
"""


#: Registers that are alike in all cycles become one, which leaves a third of them where much of the
#: data is constant. ABC refuses circuits without registers.
_SWEEP = "scleanup; scorr -F 4; dc2;"

#: Property-directed reachability. ``-n -c``: a clause is generalised in the face of states that
#: contradict it, which finds fewer and stronger ones; ``-s -f``: with the SAT solver of rIC3, the
#: cheapest registers first. The largest proof takes a fifth of the time that it takes without.
_PDR = "pdr -n -c -s -f"


@dataclass(frozen=True)
class Verdict:
    """``holds``: proved. ``depth``: the cycles that were looked at, None: an invariant was found.
    ``cycle``: of the violation. ``text``: what the tools said."""

    holds: bool
    depth: int | None
    cycle: int | None
    seconds: float
    text: str


def prove(
    harness: Any, *, depth: int | None = None, sweep: bool = False, seconds: int = 120
) -> Verdict:
    """Prove that the assertions in ``harness``, an elaboratable without ports, always hold.

    Signals of it that nothing drives may have any value in any cycle. ``depth``: look at that many
    cycles from the start only. ``sweep``: registers that are alike become one first. Raises
    ToolError when the tools fail or find no answer in the time.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rocinante-proof-") as name:
        folder = Path(name)
        fragment = Fragment.get(harness, None)
        (folder / "model.il").write_text(rtlil.convert(fragment, name="top", ports=[]))
        (folder / "model.ys").write_text(_SCRIPT)
        tools = installed()
        _call([sys.executable, "-P", "-c", _PROGRAM, f"{tools / 'share'}/"], folder, seconds)
        engine = _PDR if depth is None else f"bmc3 -F {depth}"
        reduce = _SWEEP if sweep else ""
        commands = f"read_aiger model.aig; fold; strash; {reduce} {engine} -T {seconds}"
        text = _call([str(tools / "yosys-abc"), "-c", commands], folder, 2 * seconds)
    return _verdict(text, depth, time.monotonic() - started)


def _verdict(text: str, depth: int | None, seconds: float) -> Verdict:
    if found := re.search(r"asserted in frame (\d+)", text):
        return Verdict(False, depth, int(found[1]), seconds, text)
    done = "Property proved" in text if depth is None else f"No output asserted in {depth}" in text
    if not done:
        raise ToolError(f"No verdict from ABC:\n{text[-2000:]}")
    return Verdict(True, depth, None, seconds, text)


def installed() -> Path:
    """Return the folder of Yosys, with ABC. Raises ToolError when there is none."""
    found = importlib.util.find_spec("pyosys")
    if found is None or found.origin is None:
        raise ToolError("pyosys is not installed: pip install -r requirements.lock")
    return Path(found.origin).parent


def _call(command: list[str], folder: Path, seconds: int) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **roomy()},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ToolError(f"{Path(command[0]).name} did not end in {seconds} s") from None
    if done.returncode:
        raise ToolError(f"{Path(command[0]).name} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout
