"""Levels of logic on every path of a mapped netlist, by a walk of our own.

A path begins at the output of a register, of a RAM or at an input port, passes cells, each one
level, and ends at an input of a register or RAM (its clock excepted) or at an output port. Of all
paths to an end the longest counts, whether or not values exist that use it.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from sim.make.sta.cells import Arc, Cell, arcs, kind
from sim.make.sta.netlist import Netlist
from sim.rtl.env import BuildError

#: Where a path begins: a register (or memory of look-up tables), a block RAM, a port. Paths that
#: begin or end at a port are "port" paths: in the whole NIC their other half is in another part.
Class = Literal["register", "ram", "port"]
CLASSES: tuple[Class, ...] = ("register", "ram", "port")

_FLIP_FLOPS = ("FD", "TRELLIS_FF")  # what their types begin with
_NONE = -1  # the level of a net that no path of a class reaches


@dataclass(frozen=True)
class Path:
    """A longest path to one register (all its bits). levels: cells on it; carry: of these, carry
    blocks; names: of the nets on it that have one in the source, start and end included.
    sources: where in the generated Verilog its carry blocks came from, in order.
    """

    levels: int
    carry: int
    start: str
    end: str
    names: tuple[str, ...]
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Levels:
    """The paths of one class, longest first, one for each register, RAM or port they end at."""

    paths: tuple[Path, ...]

    @property
    def worst(self) -> int:
        """Levels of the longest path; 0 when there is none."""
        return self.paths[0].levels if self.paths else 0

    def above(self, limit: int) -> int:
        """How many registers have a path of more than ``limit`` levels."""
        return sum(path.levels > limit for path in self.paths)


class Walk:
    """The levels of one netlist. family: of the cells.

    pairs: count two carry blocks that follow one another as one, as the device's own have it.
    arcs: net -> its arc; order: the nets of all arcs, each after what it follows.
    Raises ValueError for cells not known here, BuildError for a combinational loop.
    """

    def __init__(self, netlist: Netlist, family: str, *, pairs: bool = False) -> None:
        self._netlist, self._family = netlist, family
        self.arcs: dict[Any, Arc] = {}
        self._free: set[Any] = set()  # outputs which the carry input reaches at no cost
        self._starts: dict[Class, dict[Any, int]] = {one: {} for one in CLASSES}
        for cell in netlist.cells:
            self._enter(cell)
        if pairs:
            self._pair()
        for nets in netlist.inputs.values():
            self._starts["port"] |= {net: 0 for net in nets}
        self.order = self._sorted()
        self._level = {one: self._levels(one) for one in CLASSES}

    def levels(self, one: Class) -> Levels:
        """Return the longest path to every register, RAM or port that paths of a class reach."""
        longest: dict[str, tuple[int, Any, Class]] = {}
        for end, net, _cell, _pin in self.ends():
            for begins in CLASSES:
                if one != ("port" if end.startswith("port ") else begins):
                    continue
                level = self._level[begins].get(net, _NONE)
                if level > longest.get(end, (_NONE,))[0]:
                    longest[end] = (level, net, begins)
        ordered = sorted(longest.items(), key=lambda item: (-item[1][0], item[0]))
        return Levels(tuple(self._path(end, *found) for end, found in ordered))

    def _enter(self, cell: Cell) -> None:
        known = kind(cell, self._family)
        for arc in arcs(cell, known):
            self.arcs[arc.output] = arc
        if known.sort != "comb":
            begins: Class = "ram" if known.sort == "ram" else "register"
            level = int(known.sort == "lutram")  # its contents pass its look-up tables
            outputs = [net for nets in cell.outputs.values() for net in nets]
            self._starts[begins] |= {net: level for net in outputs}

    def _pair(self) -> None:
        """Note the upper of each two carry blocks in a chain (they are listed in any order)."""
        below: dict[str, Cell | None] = {}
        carries = [cell for cell in self._netlist.cells if kind(cell, self._family).carry]
        for cell in carries:
            chain = [net for pin in ("CI", "CIN") for net in cell.inputs.get(pin, ())]
            driver = self._netlist.drivers.get(chain[0]) if chain else None
            below[cell.name] = driver if driver and kind(driver, self._family).carry else None
        for cell in carries:
            position, lower = 0, below[cell.name]
            while lower is not None:
                position, lower = position + 1, below[lower.name]
            if position % 2:
                self._free |= {net for nets in cell.outputs.values() for net in nets}

    def _sorted(self) -> list[Any]:
        """Outputs of arcs, each after all that it follows; raises BuildError for a loop."""
        waits: dict[Any, int] = {}
        followers: dict[Any, list[Any]] = defaultdict(list)
        for output, arc in self.arcs.items():
            before = {net for net in arc.inputs if net in self.arcs}
            waits[output] = len(before)
            for net in before:
                followers[net].append(output)
        ready = [output for output, count in waits.items() if not count]
        for output in ready:  # grows while it is read
            for follower in followers[output]:
                waits[follower] -= 1
                if not waits[follower]:
                    ready.append(follower)
        if len(ready) < len(self.arcs):
            self._refuse({*self.arcs} - {*ready})
        return ready

    def _refuse(self, left: set[Any]) -> None:
        """Raise BuildError with the names on one loop: all nets of ``left`` follow one of it."""
        net, seen = next(iter(left)), []
        while net not in seen:
            seen.append(net)
            net = next(one for one in self.arcs[net].inputs if one in left)
        loop = [self._netlist.label(one) for one in (net, *reversed(seen[seen.index(net) :]))]
        raise BuildError(f"{self._netlist.name}: combinational loop: {' -> '.join(loop)}")

    def _levels(self, begins: Class) -> dict[Any, int]:
        """Levels of the longest path of a class to each net that one reaches."""
        level = dict(self._starts[begins])
        for output in self.order:
            arc, most = self.arcs[output], level.get(output, _NONE)
            for net in arc.inputs:
                if (before := level.get(net, _NONE)) != _NONE:
                    most = max(most, before + self._cost(arc, net))
            if most != _NONE:
                level[output] = most
        return level

    def _cost(self, arc: Arc, net: Any) -> int:
        return 0 if arc.output in self._free and net in arc.chain else 1

    def ends(self) -> Iterator[tuple[str, Any, Cell | None, str]]:
        """Yield every end of paths, named as ``Path.end`` names it, its net, and cell and pin.

        A port has no cell.
        """
        for cell in self._netlist.cells:
            known = kind(cell, self._family)
            if known.sort == "comb":
                continue
            name = self.register(cell)
            for pin, nets in cell.inputs.items():
                if pin not in known.clocks:
                    end = name if pin in ("D", "DI") else f"{name}.{pin}"
                    yield from ((end, net, cell, pin) for net in nets if not isinstance(net, str))
        for port, nets in self._netlist.outputs.items():
            end = f"port {port}"
            yield from ((end, net, None, port) for net in nets if not isinstance(net, str))

    def register(self, cell: Cell) -> str:
        """The name of what a cell is a bit of."""
        if cell.type.startswith(_FLIP_FLOPS):
            return re.sub(
                r"\[\d+\]$", "", self._netlist.label(next(iter(cell.outputs.values()))[0])
            )
        return f"{cell.type} {cell.name}"

    def _path(self, end: str, level: int, net: Any, begins: Class) -> Path:
        """Follow the longest path back from ``net``."""
        levels, trail = self._level[begins], [net]
        while (now := levels[trail[-1]]) != self._starts[begins].get(trail[-1]):
            arc = self.arcs[trail[-1]]
            trail.append(
                next(n for n in arc.inputs if levels.get(n, _NONE) == now - self._cost(arc, n))
            )
        drivers, carries = self._netlist.drivers, []
        for one, before in itertools.pairwise(trail):
            cell = drivers[one]
            if kind(cell, self._family).carry and self._cost(self.arcs[one], before):
                carries.append(cell)
        names = [self._netlist.names[one] for one in reversed(trail) if one in self._netlist.names]
        # Of a cell's places the design's own: those in Yosys' library have a folder.
        sources = [
            next((place for place in cell.source.split("|") if "/" not in place), "")
            for cell in reversed(carries)
        ]
        return Path(
            levels=level,
            carry=len(carries),
            start=self.start(trail[-1], begins),
            end=end,
            names=tuple(dict.fromkeys(names)),
            sources=tuple(dict.fromkeys(filter(None, sources))),
        )

    def start(self, net: Any, begins: Class) -> str:
        """The name of what a path begins at."""
        label = self._netlist.label(net)
        if begins == "port":
            return f"port {label}"
        driver = self._netlist.drivers[net]
        return label if driver.type.startswith(_FLIP_FLOPS) else f"{driver.type} {driver.name}"
