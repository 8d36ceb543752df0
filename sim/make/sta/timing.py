"""The delay of the slowest path to each register of a netlist, before there is a placement.

A path takes the clock-to-output delay of what it begins at, for each cell on it a net and the cell,
the last net and the setup of what it ends at, and the uncertainty of the clock. This is worked out
for the corners of ``sim.make.sta.delays``. Placement decides: the figures say which paths are in
danger, and not what a device reaches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sim.make.sta.cells import Cell, kind
from sim.make.sta.delays import Delays
from sim.make.sta.levels import Walk
from sim.make.sta.netlist import Netlist, component, memory
from sim.make.sta.nets import Sinks, columns, fan_out

__all__ = ["CORNERS", "USUAL", "Slow", "Timing"]

#: Ends of the range, and what lies between them, by which paths are ranked.
CORNERS = ("near", "narrow", "usual", "far")
USUAL = "usual"

_FLIP_FLOPS = ("FD", "TRELLIS_FF")
_WIDE = ("MUXF", "PFUMX", "L6MUX21")
#: Pins that a cell of the same slice drives, by what types begin with: the delay of the cell holds
#: the net.
_INSIDE = {"MUXF": ("I0", "I1"), "PFUMX": ("ALUT", "BLUT"), "L6MUX21": ("D0", "D1"),
           "CARRY4": ("S", "CI"), "CCU2C": ("CIN",)}  # fmt: skip


@dataclass(frozen=True)
class Slow:
    """The slowest path to one register or RAM.

    near, narrow, usual, far: ps of the slowest path in each corner. start, end, levels and through
    (the components that it passes) are of ``usual``. component: that of the end.
    """

    start: str
    end: str
    levels: int
    near: float
    narrow: float
    usual: float
    far: float
    through: tuple[str, ...]
    component: str


class Timing:
    """The estimate of one netlist. ``arrival``: corner -> net -> ps."""

    def __init__(self, netlist: Netlist, family: str, delays: Delays) -> None:
        self._netlist, self._family, self._delays = netlist, family, delays
        self.walk = Walk(netlist, family)
        self.fan_out = fan_out(netlist)
        self._sinks = Sinks(netlist, family)
        self.column = columns(netlist)
        self._inside = set(self._local())
        self._before: dict[str, dict[Any, Any]] = {corner: {} for corner in CORNERS}
        self.arrival = {corner: self._arrive(corner) for corner in CORNERS}

    def paths(self) -> list[Slow]:
        """Return the slowest path to every register and memory, the slowest of all first."""
        slowest: defaultdict[str, dict[str, tuple[float, Any, str, Cell]]] = defaultdict(dict)
        for end, net, cell, pin in self.walk.ends():
            if cell is None or net not in self.arrival[USUAL]:
                continue
            register = self.walk.register(cell)
            name = memory(register)
            at = name if end == register else f"{name}.{pin}"
            for corner in CORNERS:
                time = self.arrival[corner][net] + self._ending(net, cell, pin, corner)
                if time > slowest[name].get(corner, (0.0,))[0]:
                    slowest[name][corner] = time, net, at, cell
        found = [self._slow(some) for some in slowest.values()]
        return sorted(found, key=lambda path: (-path.usual, path.end))

    def _local(self) -> Iterator[tuple[str, Any]]:
        """Yield a cell and an input net of it that does not leave the slice."""
        for cell in self._netlist.cells:
            inside = (pins for type_, pins in _INSIDE.items() if cell.type.startswith(type_))
            for pin in next(inside, ()):
                for net in cell.inputs.get(pin, ()):
                    driver = self._netlist.drivers.get(net)
                    if driver and kind(driver, self._family).sort == "comb":
                        yield cell.name, net

    def _arrive(self, corner: str) -> dict[Any, float]:
        arrival = dict(self._starts(corner))
        before = self._before[corner]
        for output in self.walk.order:
            arc, cell = self.walk.arcs[output], self._netlist.drivers[output]
            latest = arrival.get(output, -1.0)
            for net in arc.inputs:
                if net not in arrival:
                    continue
                through = self._through(cell, net in arc.chain, corner)
                wire = 0.0
                if (cell.name, net) not in self._inside:
                    wire = self._delays.net(self._sinks.of_kind(net, "logic"), corner)
                if (time := arrival[net] + wire + through) > latest:
                    latest, before[output] = time, net
            if latest >= 0:
                arrival[output] = latest
        return arrival

    def _starts(self, corner: str) -> Iterator[tuple[Any, float]]:
        for cell in self._netlist.cells:
            known, delays = kind(cell, self._family), self._delays
            if known.sort == "comb":
                continue
            if known.sort == "ram":
                ultra = cell.type == "URAM288"
                time = getattr(delays.uram if ultra else delays.bram, corner)
                further = self.column.get(cell.name, 1) - 1
                time += further * getattr(delays.column, corner)
            else:
                began = delays.lutram if known.sort == "lutram" else delays.clock_to_out
                time = getattr(began, corner)
            for nets in cell.outputs.values():
                yield from ((net, time) for net in nets if not isinstance(net, str))

    def _through(self, cell: Cell, chain: bool, corner: str) -> float:
        delays = self._delays
        if kind(cell, self._family).carry:
            delay = delays.chain if chain else delays.carry
        else:
            delay = delays.mux if cell.type.startswith(_WIDE) else delays.lut
        return getattr(delay, corner)

    def _ending(self, net: Any, cell: Cell, pin: str, corner: str) -> float:
        """The last net and the setup. A flip-flop stands beside the logic that it alone follows,
        when all is near."""
        delays = self._delays
        driver = self._netlist.drivers.get(net)
        beside = (
            cell.type.startswith(_FLIP_FLOPS)
            and pin in ("D", "DI")
            and corner == "near"
            and self.fan_out[net] == 1
            and driver is not None
            and kind(driver, self._family).sort == "comb"
        )
        wire = delays.net(self._sinks.to(net, cell, pin), corner)
        if beside:
            wire = delays.beside.near
        ram = kind(cell, self._family).sort == "ram"
        setup = delays.ram_setup if ram else delays.setup
        return wire + getattr(setup, corner) + getattr(delays.margin, corner)

    def _slow(self, times: dict[str, tuple[float, Any, str, Cell]]) -> Slow:
        _time, net, end, last = times[USUAL]
        before, trail = self._before[USUAL], [net]
        while trail[-1] in before:
            trail.append(before[trail[-1]])
        cells = [self._netlist.drivers[one] for one in reversed(trail)]
        known = kind(cells[0], self._family)
        start = self.walk.start(trail[-1], "ram" if known.sort == "ram" else "register")
        through = tuple(dict.fromkeys(component(cell) for cell in (*cells, last)))
        levels = len(trail) - 1 + (known.sort == "lutram")
        near, narrow, usual, far = (round(times[corner][0]) for corner in CORNERS)
        return Slow(memory(start), end, levels, near, narrow, usual, far, through, component(last))
