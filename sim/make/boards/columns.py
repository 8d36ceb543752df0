"""Columns of memories that nobody needs, taken out of a netlist of Yosys before it maps memories.

Yosys maps a memory at the width that it was written with. A FIFO of wide rows, of which a card
without some operations reads a part, takes as many block RAMs as with them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import chain
from typing import Any

__all__ = ["narrow"]

#: Of a memory cell: parameters and ports that have a bit for each column of each port.
_READ = ("RD_DATA", "RD_ARST_VALUE", "RD_SRST_VALUE", "RD_INIT_VALUE")
_WRITE = ("WR_DATA", "WR_EN")
#: Cells of which a bit of the result comes from one bit of each of these inputs.
_BY_BIT = {
    **dict.fromkeys(("$not", "$pos"), ("A",)),
    **dict.fromkeys(("$and", "$or", "$xor", "$xnor", "$mux"), ("A", "B")),
    **dict.fromkeys(("$dff", "$dffe", "$sdff", "$sdffe", "$sdffce", "$adff", "$adffe"), ("D",)),
    "$pmux": ("A", "B"),
}

Cell = dict[str, Any]
#: A number of ``write_json``, or a constant.
Net = int | str


def narrow(design: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Take unneeded and doubled columns out of all memories of ``design``.

    design: as Yosys' ``write_json`` has it, before cells are mapped to those of the part.
    A column is needed when a port of the top or a cell of the part depends on what is read from it.
    It is double when another one always gets the same values: that one is read instead. It is a
    constant when it never gets anything but zeros.
    Returns the number of columns before and after of each memory that was changed, by module and
    cell.
    """
    changed = {}
    needed = _Needed(design["modules"])
    values = _Values(needed.cells)
    for name, module in design["modules"].items():
        instead: dict[int, Net] = {}
        for label, cell in module.get("cells", {}).items():
            if cell["type"] == "$mem_v2":
                width = _number(cell, "WIDTH")
                kept = _kept(cell, needed.nets[name], partial(values.of, name), instead)
                if len(kept) < width:
                    _keep(cell, kept)
                    changed[f"{name} {label}"] = (width, len(kept))
        if instead:
            _connect(module, instead)
    return changed


def _number(cell: Cell, parameter: str) -> int:
    return int(cell["parameters"][parameter], 2)


class _Needed:
    """The nets that a port of the top or a cell that is no function depends on.

    ``nets`` has those of each module. A module's port is needed where one of its instances is.
    """

    def __init__(self, modules: dict[str, Any]):
        self._modules = modules
        self.nets: dict[str, set[Net]] = {name: set() for name in modules}
        #: What drives a net: a bit of a cell's port, or of a port of instances of its module.
        self.cells: dict[tuple[str, Net], tuple[Cell, str, int]] = {}
        self._above: dict[tuple[str, Net], list[tuple[str, Net]]] = {}
        waiting: list[tuple[str, Net]] = []
        for name, module in modules.items():
            if int(module["attributes"].get("top", "0"), 2):
                waiting += self._ports(name, "output") + self._ports(name, "inout")
            for cell in module.get("cells", {}).values():
                waiting += self._roots(name, cell)
        while waiting:
            name, bit = waiting.pop()
            if bit not in self.nets[name]:
                self.nets[name].add(bit)
                waiting += self._behind(name, bit)

    def _ports(self, name: str, direction: str) -> list[tuple[str, Net]]:
        ports = self._modules[name]["ports"].values()
        return [
            (name, bit) for port in ports if port["direction"] == direction for bit in port["bits"]
        ]

    def _roots(self, name: str, cell: Cell) -> list[tuple[str, Net]]:
        """Note what the cell drives; returns what it needs whoever needs its outputs."""
        below = self._modules.get(cell["type"])
        outputs = False
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] == "output":
                outputs = True
                self.cells |= {(name, bit): (cell, port, n) for n, bit in enumerate(bits)}
            elif below:
                for inner, bit in zip(below["ports"][port]["bits"], bits, strict=True):
                    self._above.setdefault((cell["type"], inner), []).append((name, bit))
        if below or (outputs and cell["type"].startswith("$")):
            return []
        return [(name, bit) for bit in _inputs(cell)]

    def _behind(self, name: str, bit: Net) -> list[tuple[str, Net]]:
        """What a net depends on."""
        if (name, bit) not in self.cells:
            return self._above.get((name, bit), [])
        cell, port, n = self.cells[name, bit]
        if below := self._modules.get(cell["type"]):
            return [(cell["type"], below["ports"][port]["bits"][n])]
        return [(name, net) for net in _behind(cell, n)]


class _Values:
    """What a net always has the value of: another net or a constant, where a multiplexer has the
    same on all its ways. A way that is undefined may have any value, so that one as well."""

    def __init__(self, cells: Mapping[tuple[str, Net], tuple[Cell, str, int]]):
        self._cells = cells
        self._known: dict[tuple[str, Net], Net] = {}

    def of(self, module: str, net: Net) -> Net:
        """The net or constant for ``net`` of ``module``."""
        if (module, net) not in self._known:
            self._known[module, net] = net  # ends at a loop
            self._known[module, net] = self._behind(module, net)
        return self._known[module, net]

    def _behind(self, module: str, net: Net) -> Net:
        cell, port, bit = self._cells.get((module, net), ({"type": ""}, "", 0))
        if cell["type"] not in ("$mux", "$pmux"):
            return net
        width = len(cell["connections"][port])
        ways = (cell["connections"][way][bit::width] for way in ("A", "B"))
        values = {self.of(module, way) for nets in ways for way in nets} - {"x"}
        return values.pop() if len(values) == 1 else net


def _inputs(cell: Cell, without: Collection[str] = ()) -> list[Net]:
    """All nets that the cell reads, but for those of some ports."""
    return [
        bit
        for port, bits in cell["connections"].items()
        if cell["port_directions"][port] != "output" and port not in without
        for bit in bits
    ]


def _behind(cell: Cell, bit: int) -> list[Net]:
    """The inputs that bit ``bit`` of the cell's output depends on."""
    ports = cell["connections"]
    if cell["type"] == "$mem_v2":
        width = _number(cell, "WIDTH")
        columns = [net for port in _WRITE for net in ports[port][bit % width :: width]]
        return columns + _inputs(cell, _WRITE)
    if (some := _BY_BIT.get(cell["type"])) is None:
        return _inputs(cell)
    width = len(ports["Q" if "D" in some else "Y"])
    # An input that is shorter is extended with its last bit or with zeros; one of a multiplexer of
    # many is longer.
    single = [net for port in some for net in ports[port][min(bit, len(ports[port]) - 1) :: width]]
    return single + _inputs(cell, some)


def _columns(cell: Cell, name: str) -> list[tuple[Any, ...]]:
    """What each column has of a port or parameter: a value for each port of the memory."""
    width = _number(cell, "WIDTH")
    ports = cell["connections"]
    # Parameters are strings with the last bit first.
    bits = ports[name] if name in ports else cell["parameters"][name][::-1]
    return [tuple(bits[column::width]) for column in range(width)]


def _initial(cell: Cell) -> list[str]:
    """The first contents of each column."""
    width, bits = _number(cell, "WIDTH"), cell["parameters"]["INIT"][::-1]
    return ["x" if set(bits) == {"x"} else bits[column::width] for column in range(width)]


def _kept(
    cell: Cell, needed: set[Net], value: Callable[[Net], Net], instead: dict[int, Net]
) -> list[int]:
    """The columns that are needed, at least one; ``instead`` gets what is read for the others.
    value: what a net always has the value of."""
    written = [tuple(map(value, column)) for column in _columns(cell, "WR_DATA")]
    alike = zip(
        *(_columns(cell, name) for name in (*_READ[1:], "WR_EN")),
        written,
        _initial(cell),
        strict=True,
    )
    outputs = _columns(cell, "RD_DATA")
    first: dict[Any, int] = {}
    for column, key in enumerate(alike):
        if needed.isdisjoint(outputs[column]):
            instead |= dict.fromkeys(outputs[column], "x")
            continue
        *reset, _, ever, start = key
        if set(ever) == {"0"} and {*start, *chain(*reset)} <= {"0", "x"}:
            instead |= dict.fromkeys(outputs[column], "0")
            continue
        there = first.setdefault(key, column)
        if there != column:
            instead |= zip(outputs[column], outputs[there], strict=True)
    kept = sorted(first.values()) or [0]
    for net in chain(*(outputs[column] for column in kept)):
        instead.pop(net, None)
    return kept


def _keep(cell: Cell, kept: list[int]) -> None:
    """Take all other columns out of the memory."""
    width = _number(cell, "WIDTH")

    def of(bits: Any) -> list[Any]:
        rows = range(0, len(bits), width)
        return [bits[row + column] for row in rows for column in kept]

    parameters, ports = cell["parameters"], cell["connections"]
    for name in (*_READ, *_WRITE, "INIT"):
        if name in ports:
            ports[name] = of(ports[name])
        elif len(parameters[name]) > 1:
            parameters[name] = "".join(of(parameters[name][::-1]))[::-1]
    parameters["WIDTH"] = f"{len(kept):032b}"


def _connect(module: dict[str, Any], instead: dict[int, Net]) -> None:
    """Join the nets of ``module`` that are the same now. A constant has no first value."""
    for holder in (*module["ports"].values(), *module["netnames"].values()):
        first = holder.get("attributes", {}).get("init")
        if first:
            holder["attributes"]["init"] = "".join(
                "x" if isinstance(instead.get(bit), str) else value
                for bit, value in zip(holder["bits"], reversed(first), strict=True)
            )[::-1]
        holder["bits"] = [instead.get(bit, bit) for bit in holder["bits"]]
    for cell in module["cells"].values():
        for port, bits in cell["connections"].items():
            cell["connections"][port] = [instead.get(bit, bit) for bit in bits]
