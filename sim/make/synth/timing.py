"""An estimate of a design's clock before there is a placement: delays added up along each path.

A path takes the clock-to-output delay of what it begins at, for each cell on it a net and the cell,
the last net and the setup of what it ends at, and the uncertainty of the clock. This is worked out
for the corners of ``sim.make.synth.delays``. Placement decides: the figures say which paths
are in danger, and not what a device reaches.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from sim.make.synth.cells import Cell, kind
from sim.make.synth.delays import Delays
from sim.make.synth.levels import Walk
from sim.make.synth.netlist import Netlist

#: Ends of the range, and what lies between them, by which paths are ranked.
CORNERS = ("near", "narrow", "usual", "far")
USUAL = "usual"

#: A net with more inputs than this is listed.
FAN_OUT = 64
#: A net is a reset when more than this share of its inputs are reset pins.
RESETS = 0.9
#: How many of the worst paths, nets, memories and pairs of components are kept.
WORST = 10
LISTED = 20

_FLIP_FLOPS = ("FD", "TRELLIS_FF")
_WIDE = ("MUXF", "PFUMX", "L6MUX21")
#: Pins that a cell of the same slice drives, by what types begin with: the delay of the cell holds
#: the net.
_INSIDE = {"MUXF": ("I0", "I1"), "PFUMX": ("ALUT", "BLUT"), "L6MUX21": ("D0", "D1"),
           "CARRY4": ("S", "CI"), "CCU2C": ("CIN",)}  # fmt: skip
#: Rows of a block RAM with its widest ports, and its data bits without parity.
_BLOCKS = {"RAMB36E2": (1024, 32768), "RAMB18E2": (1024, 16384), "DP16KD": (1024, 16384)}
_WIDTHS = ("READ_WIDTH_A", "READ_WIDTH_B", "WRITE_WIDTH_A", "WRITE_WIDTH_B",
           "DATA_WIDTH_A", "DATA_WIDTH_B")  # fmt: skip
#: What the name of a cell begins with in a design that was joined from its components.
_COMPONENT = re.compile(r"(?:\$flatten)?\\?(\w+(?:\.[A-Za-z]\w*)?)[.$]")
_RESETS = {"R", "S", "CLR", "PRE", "LSR"}
_RESET = re.compile(r"(^|[._])(rst|reset)(\[\d+\])?$")


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


@dataclass(frozen=True)
class Net:
    """A net with many inputs. driver: flip-flop, LUT, LUT RAM, carry, RAM or port. pin: which pin
    most of the inputs are, and how many."""

    name: str
    fan_out: int
    driver: str
    pin: str
    pins: int


@dataclass(frozen=True)
class Memory:
    """A memory deeper than a block. rows: of a column or block; blocks: all; column: how many
    behind one another."""

    name: str
    type: str
    rows: int
    blocks: int
    column: int


class Timing:
    """The estimate of one netlist. ``arrival``: corner -> net -> ps."""

    def __init__(self, netlist: Netlist, family: str, delays: Delays) -> None:
        self._netlist, self._family, self._delays = netlist, family, delays
        self.walk = Walk(netlist, family)
        self.fan_out = fan_out(netlist)
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
                wire = 0.0 if (cell.name, net) in self._inside else self._net(net, corner)
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

    def _net(self, net: Any, corner: str) -> float:
        return self._delays.net(self.fan_out[net], corner)

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
        wire = delays.beside.near if beside else self._net(net, corner)
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


def memory(name: str) -> str:
    """The name of the memory that a RAM is a piece of; other names as they are."""
    return re.sub(r"(\.\d+\.\d+)(\.block\[\d+\]\.ram)?$", "", name) if " " in name else name


def component(cell: Cell) -> str:
    """The component that a cell was mapped in: its box and its name in it."""
    inside = _COMPONENT.match(cell.name)
    return inside[1] if inside else "(top)"


def fan_out(netlist: Netlist) -> Counter[Any]:
    """Return net -> the number of inputs of cells and outputs of the module that it drives."""
    sinks = Counter[Any]()
    for cell in netlist.cells:
        for nets in cell.inputs.values():
            sinks.update(net for net in nets if not isinstance(net, str))
    for nets in netlist.outputs.values():
        sinks.update(net for net in nets if not isinstance(net, str))
    return sinks


def wide_nets(netlist: Netlist, family: str, sinks: Counter[Any]) -> list[Net]:
    """Return the nets of more than ``FAN_OUT`` inputs, widest first.

    Clocks are left out, and resets: nets of such a name, or of hardly anything but reset pins.
    """
    wide = {net for net, count in sinks.items() if count > FAN_OUT}
    pins: defaultdict[Any, Counter[str]] = defaultdict(Counter)
    clocks = set()
    for cell in netlist.cells:
        known = kind(cell, family)
        for pin, nets in cell.inputs.items():
            for net in nets:
                if pin in known.clocks:
                    clocks.add(net)
                elif not isinstance(net, str) and net in wide:
                    pins[net][pin] += 1
    found = []
    for net in wide - clocks:
        resets = sum(pins[net][pin] for pin in _RESETS)
        if _resets(netlist, net) or resets > RESETS * sinks[net]:
            continue
        (pin, count), *_rest = pins[net].most_common(1) or [("port", sinks[net])]
        driver = _driver(netlist, family, net)
        found.append(Net(_name(netlist, net), sinks[net], driver, pin, count))
    return sorted(found, key=lambda net: (-net.fan_out, net.name))


def _name(netlist: Netlist, net: Any) -> str:
    """A net's name, or the component of the cell that drives it."""
    driver = netlist.drivers.get(net)
    if net in netlist.names or driver is None:
        return netlist.label(net)
    return f"({driver.type} of {component(driver)})"


def _resets(netlist: Netlist, net: Any) -> bool:
    ports = [name for name, nets in netlist.inputs.items() if net in nets]
    return any(_RESET.search(name) for name in (*ports, netlist.names.get(net, "")))


def _driver(netlist: Netlist, family: str, net: Any) -> str:
    cell = netlist.drivers.get(net)
    if cell is None:
        return "port"
    known = kind(cell, family)
    if known.carry:
        return "carry"
    return {"register": "flip-flop", "comb": "LUT", "ram": "RAM", "lutram": "LUT RAM"}[known.sort]


def columns(netlist: Netlist) -> dict[str, int]:
    """Return name of an UltraRAM -> how many blocks its column has, itself included."""
    sizes = Counter(_column(cell.name) for cell in netlist.cells if cell.type == "URAM288")
    return {
        cell.name: sizes[_column(cell.name)] for cell in netlist.cells if cell.type == "URAM288"
    }


def _column(name: str) -> str:
    """What the blocks of a column have in common (``urams_map.v`` numbers them)."""
    return re.sub(r"\.block\[\d+\]\.ram$", "", name)


def memories(netlist: Netlist, family: str) -> list[Memory]:
    """Return the memories that are deeper than one block, those of most blocks first.

    Of UltraRAMs the column is counted. A block RAM whose ports are narrower than it could have is a
    slice of a memory with more rows; the blocks stand side by side.
    """
    found: defaultdict[tuple[str, str, int, int], int] = defaultdict(int)
    column = columns(netlist)
    for cell in netlist.cells:
        if kind(cell, family).sort != "ram":
            continue
        if cell.type == "URAM288":
            depth, rows = column[cell.name], 4096 * column[cell.name]
            deep = depth > 1
        else:
            least, bits = _BLOCKS[cell.type]
            depth, rows = 1, bits // _data_bits(cell)
            deep = rows > least
        if deep:
            name = memory(f"{cell.type} {cell.name}")
            found[name, cell.type, rows, depth] += 1
    listed = [
        Memory(name.partition(" ")[2], type_, rows, blocks, depth)
        for (name, type_, rows, depth), blocks in found.items()
        if blocks > 1
    ]
    return sorted(listed, key=lambda memory: (-memory.blocks, memory.name))


def _data_bits(cell: Cell) -> int:
    """Width of a block RAM's widest port, without the parity bits: a power of two."""
    values = [cell.parameters[name] for name in _WIDTHS if name in cell.parameters]
    widths = [int(value, 2) if isinstance(value, str) else int(value) for value in values]
    return 1 << (max([*widths, 1]).bit_length() - 1)


def estimate(netlist: Netlist, family: str, delays: Delays, clock_hz: int) -> dict[str, Any]:
    """Return the facts of a board's design, as the JSON has them. clock_hz: of the board."""
    timing = Timing(netlist, family, delays)
    paths, period = timing.paths(), 1e12 / clock_hz
    nets = wide_nets(netlist, family, timing.fan_out)
    levels = {
        one: dict(sorted(Counter(path.levels for path in timing.walk.levels(one).paths).items()))
        for one in ("register", "ram")
    }
    deep = memories(netlist, family)
    slowest = {corner: max(getattr(path, corner) for path in paths) for corner in CORNERS}
    return {
        "clock_mhz": clock_hz / 1e6,
        "fmax_mhz": {corner: round(1e6 / slowest[corner]) for corner in CORNERS},
        "ends": len(paths),
        "missed": {
            corner: sum(getattr(path, corner) > period for path in paths) for corner in CORNERS
        },
        "levels": {
            one: {str(level): count for level, count in some.items()}
            for one, some in levels.items()
        },
        "paths": [asdict(path) for path in paths[:WORST]],
        "first": pipelined_first(paths, period)[:WORST],
        "wide": len(nets),
        "wide_by_driver": dict(sorted(Counter(net.driver for net in nets).items())),
        "nets": [asdict(net) for net in nets[:LISTED]],
        "deep": len(deep),
        "memories": [asdict(memory) for memory in deep[:LISTED]],
    }


def pipelined_first(paths: Iterable[Slow], period: float) -> list[dict[str, Any]]:
    """Return the components in which paths end that miss ``period`` (ps) in the usual case.

    They are ordered by the latest. near, narrow, usual, far: how many registers and memories of the
    component miss it.
    """
    found: defaultdict[str, list[Slow]] = defaultdict(list)
    for path in paths:
        found[path.component].append(path)
    rows = []
    for name, some in found.items():
        late = {corner: sum(getattr(path, corner) > period for path in some) for corner in CORNERS}
        if late[USUAL]:
            worst = max(some, key=lambda path: path.usual)
            rows.append(
                {"component": name, **late, "worst": worst.usual, "levels": worst.levels,
                 "start": worst.start, "end": worst.end}
            )  # fmt: skip
    return sorted(rows, key=lambda row: (-row["worst"], row["component"]))
