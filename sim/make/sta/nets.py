"""What a netlist holds that costs time wherever it is placed: wide nets and deep memories."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from sim.make.sta.cells import Cell, kind
from sim.make.sta.netlist import Netlist, component, memory

__all__ = ["FAN_OUT", "Memory", "Net", "Sinks", "columns", "fan_out", "memories", "wide_nets"]

#: A net with more inputs than this is listed.
FAN_OUT = 64
#: A net is a reset when more than this share of its inputs are reset pins.
RESETS = 0.9
#: Rows of a block RAM with its widest ports, and its data bits without parity.
_BLOCKS = {"RAMB36E2": (1024, 32768), "RAMB18E2": (1024, 16384), "DP16KD": (1024, 16384)}
_WIDTHS = ("READ_WIDTH_A", "READ_WIDTH_B", "WRITE_WIDTH_A", "WRITE_WIDTH_B",
           "DATA_WIDTH_A", "DATA_WIDTH_B")  # fmt: skip
_RESETS = {"R", "S", "CLR", "PRE", "LSR"}
_ENABLES = {"CE"}
#: Flip-flops of a slice that share a pin for their enable and one for their reset.
_SHARED = 4
_RESET = re.compile(r"(^|[._])(rst|reset)(\[\d+\])?$")


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


def fan_out(netlist: Netlist) -> Counter[Any]:
    """Return net -> the number of inputs of cells and outputs of the module that it drives."""
    sinks = Counter[Any]()
    for cell in netlist.cells:
        for nets in cell.inputs.values():
            sinks.update(net for net in nets if not isinstance(net, str))
    for nets in netlist.outputs.values():
        sinks.update(net for net in nets if not isinstance(net, str))
    return sinks


class Sinks:
    """How many inputs of each kind a net drives: logic, RAMs, enables and resets.

    A placer sets the logic that a path goes through beside its driver, whatever the net's other
    inputs are; the delay to a pin therefore counts the inputs of its own kind. Four flip-flops
    share an enable and a reset."""

    def __init__(self, netlist: Netlist, family: str) -> None:
        self._family = family
        self._counts: defaultdict[str, Counter[Any]] = defaultdict(Counter)
        for cell in netlist.cells:
            for pin, nets in cell.inputs.items():
                counted = self._counts[self._kind(cell, pin)]
                counted.update(net for net in nets if not isinstance(net, str))

    def to(self, net: Any, cell: Cell, pin: str) -> int:
        """Return how many inputs of the kind of this one ``net`` has."""
        return self.of_kind(net, self._kind(cell, pin))

    def of_kind(self, net: Any, sort: str) -> int:
        """Return how many inputs of a kind ``net`` has: "logic", "ram" or "control"."""
        count = self._counts[sort][net]
        return -(-count // _SHARED) if sort == "control" else count

    def _kind(self, cell: Cell, pin: str) -> str:
        sort = kind(cell, self._family).sort
        if sort == "ram":
            return "ram"
        return "control" if sort == "register" and pin in _RESETS | _ENABLES else "logic"


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
