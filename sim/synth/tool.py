"""Yosys: Verilog in, mapped netlist out.

It is a Python package of its own (``pyosys``) and runs in a process of its own, since it ends the
process that it fails in, and since a whole NIC takes gigabytes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sim.env import BuildError, ToolError

#: Family -> the synthesis command, without ``-top``. Out of context: no pads, no clock buffers.
FAMILIES = {
    "xcup": "synth_xilinx -family xcup -uram -noiopad -noclkbuf -flatten",
    "ecp5": "synth_ecp5",
}

#: Attributes that nets keep through synthesis: those named in the source, and of these registers.
NAMED, REGISTER = "named", "register"

NETLIST, LOG = "netlist.json", "yosys.log"

_RUN = """
import sys, pyosys
sys._pyosys_share_dirname = "share/"
from pyosys import libyosys
libyosys.run_pass("script " + sys.argv[1])
"""


def prepared(source: Path) -> str:
    """Return a Verilog file as Yosys gets it: names of nets without brackets.

    ``\\rows[1]``, an element of an array, would be taken for a bit of ``rows`` on the way to the
    mapper and back, where nets are known by their names.
    """

    def plain(name: re.Match[str]) -> str:
        return name[0].replace("[", ".").replace("]", "")

    return re.sub(r"\\\S+", plain, source.read_text())


@dataclass(frozen=True)
class Cuts:
    """Modules that are not just a part of the top.

    without: left out; their instances' connections become ports of the top. apart: mapped each by
    itself, as the mapper's time grows faster than what it maps; constants and unused ports pass
    between them before, and they are joined after, so that paths through several are whole.
    """

    without: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()


NO_CUTS = Cuts()


def script(sources: Sequence[str], top: str, family: str, cuts: Cuts = NO_CUTS) -> str:
    """Return the Yosys script: file names are relative to the folder that it runs in."""
    cut = [f"blackbox ={name}" for name in cuts.without]
    apart = " ".join(f"={name}" for name in cuts.apart)
    separate = [f"setattr -mod -set keep_hierarchy 1 {apart}"] if apart else []
    narrow = ["opt_clean", "opt_hier", "opt -fast", "opt_hier"] if apart else []
    join = [f"setattr -mod -unset keep_hierarchy {apart}", "flatten", "opt_clean"] if apart else []
    return "\n".join(
        [
            f"read_verilog -sv {' '.join(sources)}",
            f"hierarchy -check -top {top}",
            "proc",
            f"setattr -set {NAMED} 1 w:* w:$* %d",
            f"setattr -set {REGISTER} 1 a:init",
            *cut,
            *separate,
            "flatten",
            *narrow,
            *([f"expose -evert {top}/c:*"] if cut else []),
            f"{FAMILIES[family]} -top {top}",
            *join,
            "check -assert -noinit",
            f"write_json {NETLIST}",
            "",
        ]
    )


def synthesise(
    sources: Sequence[Path],
    top: str,
    family: str,
    folder: Path,
    say: Callable[[str], None] = lambda text: None,
    cuts: Cuts = NO_CUTS,
) -> Path:
    """Map ``sources`` to the cells of ``family``; returns the netlist (Yosys' JSON) in ``folder``.

    say: is told every few seconds what Yosys is doing.
    Raises ToolError when Yosys is not installed, BuildError with the end of its log when it fails
    or ends without a netlist (it has been seen to end with status 0 after its mapper had died).
    """
    _library(folder / "share")
    for source in sources:
        (folder / source.name).write_text(prepared(source))
    (folder / "synth.ys").write_text(script([path.name for path in sources], top, family, cuts))
    log = folder / LOG
    with log.open("w") as output, _watch(log, say):
        done = subprocess.run(
            [sys.executable, "-P", "-c", _RUN, "synth.ys"],
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    shutil.rmtree(folder / "share")
    netlist = folder / NETLIST
    if done.returncode or not netlist.is_file():
        end = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise BuildError(f"{top}: Yosys ended with status {done.returncode}, no figures\n{end}")
    return netlist


def _library(share: Path) -> None:
    """Link Yosys' cell libraries to ``share``, with an error in one of them put right.

    Its single-port memories of look-up tables for UltraScale+ (Yosys 0.70) include one of 65536
    rows, cheap and so often chosen, for which there is no cell: that cell, RAM512X1S, has 512.
    """
    package = importlib.util.find_spec("pyosys")
    if package is None or package.origin is None:
        raise ToolError("Python package pyosys is missing: pip install -r requirements.lock")
    installed = Path(package.origin).parent / "share"
    for folder, skipped in ((installed, "xilinx"), (installed / "xilinx", "lutrams_xcu.txt")):
        target = share / folder.relative_to(installed)
        target.mkdir()
        for entry in folder.iterdir():
            if entry.name != skipped:
                (target / entry.name).symlink_to(entry)
    text = (installed / "xilinx" / "lutrams_xcu.txt").read_text()
    wrong, right = (f'"ABITS" {bits} {{\n\t\tabits {bits};' for bits in (16, 9))
    (share / "xilinx" / "lutrams_xcu.txt").write_text(text.replace(wrong, right))


@contextlib.contextmanager
def _watch(log: Path, say: Callable[[str], None], period_s: float = 5) -> Iterator[None]:
    """Tell ``say`` the pass that the log has reached, until the block is left."""
    over = threading.Event()

    def watch() -> None:
        started = time.monotonic()
        while not over.wait(period_s):
            with log.open("rb") as text:
                text.seek(max(0, log.stat().st_size - 100_000))
                passes = [line for line in text.read().splitlines() if b". Executing " in line]
            doing = passes[-1].decode(errors="replace").rstrip(".") if passes else "reading"
            say(f"{doing} ({time.monotonic() - started:.0f} s)")

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
