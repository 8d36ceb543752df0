"""Yosys' JSON netlist, read into plain Python."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sim.make.sta.cells import Cell
from sim.rtl.env import BuildError

__all__ = ["NAMED", "REGISTER", "Netlist", "component", "memory", "read"]

#: Attributes that the netlist must have: of wires with a name in the source, and of those that are
#: registers there.
NAMED, REGISTER = "named", "register"
#: What the name of a cell begins with in a design that was joined from its components.
_COMPONENT = re.compile(r"(?:\$flatten)?\\?(\w+(?:\.[A-Za-z]\w*)?)[.$]")


@dataclass
class Netlist:
    """One flat module. Nets are numbers; constants are strings ("0", "1", "x", "z").

    inputs, outputs: port -> nets. names: net -> its best name in the source, for those that have
    one: the register's, else the one nearest to the top.
    """

    name: str
    cells: list[Cell]
    inputs: dict[str, list[Any]]
    outputs: dict[str, list[Any]]
    names: dict[Any, str] = field(default_factory=dict)

    @cached_property
    def drivers(self) -> dict[Any, Cell]:
        """Net -> the cell that drives it."""
        return {net: cell for cell in self.cells for nets in cell.outputs.values() for net in nets}

    def label(self, net: Any) -> str:
        """Return a net's name, or that of the cell which drives it."""
        if net in self.names:
            return self.names[net]
        driver = self.drivers.get(net)
        return f"({driver.type} {driver.name})" if driver else f"(net {net})"


def read(text: bytes, top: str) -> Netlist:
    """Read the module ``top`` of a netlist; raises BuildError when it is not there or empty."""
    try:
        module = json.loads(text)["modules"][top]
    except (ValueError, KeyError, TypeError) as error:
        raise BuildError(f"{top}: no netlist ({error!r}), no figures") from None
    cells = [
        _cell(name, raw) for name, raw in module["cells"].items() if raw["type"] != "$scopeinfo"
    ]
    if not cells:
        raise BuildError(f"{top}: the netlist has no cells, no figures")
    ports: dict[str, dict[str, list[Any]]] = {"input": {}, "output": {}, "inout": {}}
    for name, port in module["ports"].items():
        ports[port["direction"]][name] = port["bits"]
    return Netlist(top, cells, ports["input"], ports["output"], _names(module["netnames"]))


def _cell(name: str, raw: dict[str, Any]) -> Cell:
    directions = raw.get("port_directions", {})
    pins: dict[str, dict[str, list[Any]]] = {"input": {}, "output": {}}
    for pin, nets in raw["connections"].items():
        if pin not in directions:
            raise BuildError(f"Cell {name} ({raw['type']}) is a black box")
        pins[directions[pin]][pin] = nets
    source = raw.get("attributes", {}).get("src", "")
    return Cell(name, raw["type"], pins["input"], pins["output"], raw.get("parameters", {}), source)


def _names(netnames: dict[str, Any]) -> dict[Any, str]:
    best: dict[Any, tuple[tuple[bool, int, int], str]] = {}
    for name, entry in netnames.items():
        if not {NAMED, REGISTER} & entry["attributes"].keys():
            continue
        rank = (REGISTER not in entry["attributes"], name.count("."), len(name))
        wide = len(entry["bits"]) > 1
        for bit, net in enumerate(entry["bits"]):
            if not isinstance(net, str) and (net not in best or rank < best[net][0]):
                best[net] = (rank, f"{name}[{bit}]" if wide else name)
    return {net: name for net, (_rank, name) in best.items()}


def memory(name: str) -> str:
    """The name of the memory that a RAM is a piece of; other names as they are."""
    return re.sub(r"(\.\d+\.\d+)(\.block\[\d+\]\.ram)?$", "", name) if " " in name else name


def component(cell: Cell) -> str:
    """The component that a cell was mapped in: its box and its name in it."""
    inside = _COMPONENT.match(cell.name)
    return inside[1] if inside else "(top)"
