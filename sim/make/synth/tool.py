"""Yosys: Verilog in, mapped netlist out.

It is a Python package of its own (``pyosys``) and runs in a process of its own, since it ends the
process that it fails in, and since a whole NIC takes gigabytes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sim.make.sta.netlist import NAMED, REGISTER
from sim.rtl import env
from sim.rtl.env import BuildError, ToolError
from sim.tools import console

#: Family -> the synthesis command, without ``-top``. Out of context: no pads, no clock buffers.
FAMILIES = {
    "xcup": "synth_xilinx -family xcup -uram -noiopad -noclkbuf -flatten",
    "ecp5": "synth_ecp5",
}

#: Family -> what the cells look like that its command maps to.
_CELLS = {
    "xcup": ("+/xilinx/cells_sim.v", "+/xilinx/cells_xtra.v"),
    "ecp5": ("+/ecp5/cells_sim.v", "+/ecp5/cells_bb.v"),
}

#: UltraRAMs: as ``memory_libmap`` takes them, and as the device's cells.
URAMS = tuple(Path(__file__).with_name(name) for name in ("urams.txt", "urams_map.v"))

#: What lets constants and unused ports pass between modules that are mapped one by one.
ACROSS = ("opt_clean", "opt_hier", "opt -fast", "opt_hier")

NETLIST = "netlist.json"
_WRITE = ("check -assert -noinit", f"write_json {NETLIST}")

_PROGRAM = """
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


def named(cuts: Cuts, texts: Sequence[str]) -> Cuts:
    """Return the cuts with their modules' names in the Verilog, ``nic.gids$12`` for ``nic.gids``.

    The generator adds a number where a signal has the name of a submodule. Raises BuildError for a
    module that is not there.
    """
    written = {}
    for name in itertools.chain.from_iterable(re.findall(r"(?m)^module \\(\S+)", t) for t in texts):
        written[re.sub(r"\$\d+$", "", name)] = name
    if missing := [name for name in (*cuts.without, *cuts.apart) if name not in written]:
        raise BuildError(f"No module {', '.join(missing)} in the Verilog, no figures")
    return Cuts(*(tuple(written[name] for name in names) for names in (cuts.without, cuts.apart)))


@dataclass(frozen=True)
class Step:
    """One run of Yosys: the script ``name.ys``, with its log beside it, and the file it leaves."""

    name: str
    commands: str
    result: str


def scripts(
    sources: Sequence[str], top: str, family: str, cuts: Cuts = NO_CUTS
) -> list[list[Step]]:
    """Return what Yosys runs, one list after the other, those of a list in any order."""
    if cuts.apart:
        return _apart(sources, top, family, cuts.apart)
    ports = [f"expose -evert {top}/c:*"] if cuts.without else []
    commands = (
        *_read(sources, top),
        *(f"blackbox ={name}" for name in cuts.without),
        "flatten",
        *ports,
        f"{FAMILIES[family]} -top {top}",
        *_WRITE,
    )
    return [[_step("synth", commands, NETLIST)]]


def _apart(sources: Sequence[str], top: str, family: str, apart: Sequence[str]) -> list[list[Step]]:
    pieces = [*apart, top]
    kept = " ".join(f"={name}" for name in apart)
    take = (
        *_read(sources, top),
        f"setattr -mod -set keep_hierarchy 1 {kept}",
        "flatten",
        *ACROSS,
        f"setattr -mod -unset keep_hierarchy {kept}",
        *(line for name in pieces for line in _write_piece(name, f"{name}.il")),
    )
    # Of the pieces the top needs to know the ports.
    known = [line for name in apart for line in (f"read_rtlil {name}.il", f"blackbox ={name}")]
    each = [
        _step(
            name,
            (
                f"read_rtlil {name}.il",
                *(known if name == top else ()),
                f"{FAMILIES[family]} -top {name}",
                *_write_piece(name, f"{name}.mapped.il"),
            ),
            f"{name}.mapped.il",
        )
        for name in pieces
    ]
    join = (
        *(f"read_verilog -lib {library}" for library in _CELLS[family]),
        *(f"read_rtlil {name}.mapped.il" for name in pieces),
        "blackbox =A:whitebox",
        f"hierarchy -top {top}",
        *("flatten", "opt_clean"),
        *_WRITE,
    )
    return [[_step("apart", take, f"{top}.il")], each, [_step("join", join, NETLIST)]]


def _step(name: str, commands: Sequence[str], result: str) -> Step:
    return Step(name, "\n".join([*commands, ""]), result)


def _read(sources: Sequence[str], top: str) -> tuple[str, ...]:
    return (
        f"read_verilog -sv {' '.join(sources)}",
        f"hierarchy -check -top {top}",
        "proc",
        f"setattr -set {NAMED} 1 w:* w:$* %d",
        f"setattr -set {REGISTER} 1 a:init",
    )


def _write_piece(name: str, file: str) -> tuple[str, ...]:
    return f"select ={name}", f"write_rtlil -selected {file}", "select -clear"


def synthesise(
    sources: Sequence[Path],
    top: str,
    family: str,
    folder: Path,
    say: Callable[[str], None] = lambda text: None,
    cuts: Cuts = NO_CUTS,
) -> Path:
    """Map ``sources`` to the cells of ``family``; returns the netlist (Yosys' JSON) in ``folder``.

    say: is told what is done; on a terminal every few seconds what Yosys is doing.
    Raises ToolError when Yosys is not installed, BuildError with the end of its log when it fails
    or ends without a netlist (it has been seen to end with status 0 after its mapper had died).
    """
    _library(folder / "share")
    for source in sources:
        (folder / source.name).write_text(prepared(source))
    for steps in scripts([source.name for source in sources], top, family, cuts):
        # The largest first, or the end would wait for it alone.
        steps.sort(key=lambda step: _size(folder / f"{step.name}.il"), reverse=True)
        with ThreadPoolExecutor(env.compile_jobs()) as pool:
            list(pool.map(lambda step: _run(step, folder, say), steps))
    shutil.rmtree(folder / "share")
    for piece in folder.glob("*.il"):
        piece.unlink()
    return folder / NETLIST


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _run(step: Step, folder: Path, say: Callable[[str], None]) -> None:
    (folder / f"{step.name}.ys").write_text(step.commands)
    log = folder / f"{step.name}.log"
    # A file does not need to know every few seconds what a terminal shows in one line.
    watched = _watch(log, lambda text: say(f"{step.name}: {text}"))
    with log.open("w") as output, watched if console.err.is_terminal else contextlib.nullcontext():
        done = subprocess.run(
            [sys.executable, "-P", "-c", _PROGRAM, f"{step.name}.ys"],
            cwd=folder,
            env={**os.environ, **env.roomy()},
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode or not (folder / step.result).is_file():
        end = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise BuildError(
            f"{step.name}: Yosys ended with status {done.returncode}, no figures\n{end}"
        )


def _library(share: Path) -> None:
    """Link Yosys' cell libraries to ``share``, with what is wrong or missing in them put right.

    Its single-port memories of look-up tables for UltraScale+ (Yosys 0.70) include one of 65536
    rows, cheap and so often chosen, for which there is no cell: that cell, RAM512X1S, has 512.
    Its UltraRAMs do not stand behind one another: ``urams.txt``.
    """
    package = importlib.util.find_spec("pyosys")
    if package is None or package.origin is None:
        raise ToolError("Python package pyosys is missing: pip install -r requirements.lock")
    installed = Path(package.origin).parent / "share"
    changed = ("xilinx", "lutrams_xcu.txt", *(file.name for file in URAMS))
    for folder in (installed, installed / "xilinx"):
        target = share / folder.relative_to(installed)
        target.mkdir()
        for entry in folder.iterdir():
            if entry.name not in changed:
                (target / entry.name).symlink_to(entry)
    theirs, ours = installed / "xilinx", share / "xilinx"
    text = (theirs / "lutrams_xcu.txt").read_text()
    wrong, right = (f'"ABITS" {bits} {{\n\t\tabits {bits};' for bits in (16, 9))
    (ours / "lutrams_xcu.txt").write_text(text.replace(wrong, right))
    for file in URAMS:
        (ours / file.name).symlink_to(file)


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
