"""The figures of one part: Yosys run, cells counted, paths walked; each step cached by content."""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from sim.make import sta
from sim.make.sta.cells import RESOURCES, kind
from sim.make.sta.levels import CLASSES, Walk
from sim.make.sta.netlist import Netlist, read
from sim.make.synth import tool
from sim.make.synth.parts import Part
from sim.rtl import env
from sim.rtl.env import BuildError
from sim.rtl.verilog import digest, sources

#: The longest register and RAM paths allowed, levels.
LIMITS = {"register": 8, "ram": 3}

_LONGEST = 20  # paths of each class that a report keeps
#: What the name of a cell begins with when its component was mapped by itself.
_COMPONENT = re.compile(r"(?:\$flatten)?\\?(\w+)\.")
_COUNTING = (
    __file__,
    *(f"{sta.__path__[0]}/{name}.py" for name in ("cells", "levels", "netlist")),
)


@dataclass(frozen=True)
class Report:
    """What a part costs.

    resources: name -> amount (``sim.make.sta.cells.RESOURCES``). cells: type -> number.
    levels: class of paths -> ``worst`` (levels), ``worst_pairs`` (the same with two carry blocks of
    four bits as one of eight), ``above`` (how many registers have a path above the limit), ``ends``
    (how many there are), ``paths`` (the longest, as ``sim.make.sta.levels.Path``).
    inside: of the whole, component -> its resources; "" is what joins them.
    of: what all of it follows from, as ``identity`` gives it.
    seconds: Yosys' time when it ran. folder: its log, script and netlist.
    """

    name: str
    room: str
    family: str
    resources: dict[str, float]
    cells: dict[str, int]
    levels: dict[str, dict[str, Any]]
    inside: dict[str, dict[str, float]]
    of: str
    seconds: float
    folder: Path

    def figures(self) -> dict[str, float]:
        """Return what baselines compare: resources and the two depths."""
        return {
            **self.resources,
            "levels": self.levels["register"]["worst"],
            "ram_levels": self.levels["ram"]["worst"],
        }


def measure(part: Part, family: str, say: Callable[[str], None] = lambda text: None) -> Report:
    """Return the figures of ``part``, mapped to ``family``.

    say: is told what happens now. Raises BuildError when there are no figures, ToolError when a
    tool is missing.
    """
    folder, seconds = mapped(part, family, say)
    figures = folder / f"figures-{_counting()}.json"
    if not figures.exists():
        say("counting")
        counted = count(netlist_of(folder, part.name), family, folder, apart=bool(part.cuts.apart))
        temporary = figures.with_suffix(".tmp")
        temporary.write_text(json.dumps(counted, indent=1))
        temporary.replace(figures)
    counted = json.loads(figures.read_text())
    of = identity(part, family)
    return Report(part.name, part.room, family, **counted, of=of, seconds=seconds, folder=folder)


def identity(part: Part, family: str) -> str:
    """Return a hash of all that the figures of ``part`` follow from: its Verilog, the scripts and
    the version of Yosys, the code that counts. Nothing is mapped."""
    return digest(_work(part, family).key, _counting())


@dataclass(frozen=True)
class _Work:
    """What Yosys is to do for a part, and the hash of all that it depends on."""

    files: list[Path]
    cuts: tool.Cuts
    key: str


def _work(part: Part, family: str) -> _Work:
    files = sources(part.rtl)
    contents = [tool.prepared(source) for source in files]
    cuts = tool.named(part.cuts, contents)
    text = repr(tool.scripts([source.name for source in files], part.name, family, cuts))
    library = [file.read_text() for file in tool.URAMS]
    return _Work(files, cuts, digest(text, env.package_version("pyosys"), *library, *contents))


def _counting() -> str:
    return digest(*(Path(file).read_bytes() for file in _COUNTING))


def mapped(part: Part, family: str, say: Callable[[str], None]) -> tuple[Path, float]:
    """Map ``part`` to cells, unless it was; returns the folder of the netlist and Yosys' time."""
    say("generating")
    work = _work(part, family)
    folder = env.build_root() / "synth" / f"{part.name}-{family}-{work.key}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    done, packed = folder / "seconds", folder / f"{tool.NETLIST}.gz"
    with FileLock(folder.with_suffix(".lock")):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            started = time.monotonic()
            netlist = tool.synthesise(work.files, part.name, family, folder, say, work.cuts)
            seconds = time.monotonic() - started
            with netlist.open("rb") as source, gzip.open(packed, "wb", compresslevel=3) as target:
                shutil.copyfileobj(source, target)
            netlist.unlink()
            done.write_text(f"{seconds:.1f}\n")
    return folder, float(done.read_text())


def netlist_of(folder: Path, top: str) -> Netlist:
    """Read the netlist of the part ``top`` that ``mapped`` left in ``folder``.

    Raises BuildError when there is none.
    """
    file = folder / f"{tool.NETLIST}.gz"
    if not file.is_file():
        raise BuildError(f"{top}: no {file.name} in {folder.name}, no figures")
    with gzip.open(file) as packed:
        return read(packed.read(), top)


def count(netlist: Netlist, family: str, folder: Path, *, apart: bool = False) -> dict[str, Any]:
    """Return the counted fields of a ``Report``; raises BuildError for a netlist without figures.

    folder: holds the generated Verilog, of which paths quote lines. apart: components were mapped
    one by one, so each cell bears the name of its own.
    """
    inside: defaultdict[str, Counter[str]] = defaultdict(Counter)
    try:
        for cell in netlist.cells:
            component = _COMPONENT.match(cell.name) if apart else None
            inside[component[1] if component else ""].update(dict(kind(cell, family).counts))
        walk, paired = Walk(netlist, family), Walk(netlist, family, pairs=True)
    except ValueError as error:
        raise BuildError(f"{netlist.name}: {error}, no figures") from None
    levels = {}
    for one in CLASSES:
        found = walk.levels(one)
        levels[one] = {
            "worst": found.worst,
            "worst_pairs": paired.levels(one).worst,
            "above": found.above(LIMITS.get(one, LIMITS["register"])),
            "ends": len(found.paths),
            "paths": [
                {**dataclasses.asdict(path), "sources": [_quote(at, folder) for at in path.sources]}
                for path in found.paths[:_LONGEST]
            ],
        }
    total = sum(inside.values(), Counter[str]())
    return {
        "resources": _all(total),
        "inside": {name: _all(some) for name, some in inside.items()} if apart else {},
        "cells": dict(sorted(Counter(cell.type for cell in netlist.cells).items())),
        "levels": levels,
    }


def _all(counted: Counter[str]) -> dict[str, float]:
    return {name: counted.get(name, 0) for name in RESOURCES}


def _quote(place: str, folder: Path) -> str:
    """Return the text at ``file.sv:line.column-line.column`` of the generated Verilog."""
    match = re.fullmatch(r"([^:/]+):(\d+)\.\d+-\d+\.\d+", place)
    if not match or not (folder / match[1]).is_file():
        return place
    line = (folder / match[1]).read_text().splitlines()[int(match[2]) - 1]
    return f"line {match[2]}: {line.strip()}"
