"""Finds every path between two clocks in a design: in its netlist, whatever it says of itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Fragment, Signal
from amaranth.hdl._ir import PortDirection, build_netlist
from amaranth.hdl._nir import FlipFlop, Memory, Net, SyncReadPort, SyncWritePort, Top

__all__ = ["Found", "crossings"]


@dataclass(frozen=True)
class Found:
    """A path from one register (or memory) to another that has another clock. ``reset``: it ends
    at an asynchronous set."""

    launch: str
    capture: str
    reset: bool


def crossings(design: Any, *, inputs: Mapping[str, Signal]) -> set[Found]:
    """Return all paths between registers of different clocks. Inputs of the design have none."""
    ports = [(name, signal, PortDirection.Input) for name, signal in inputs.items()]
    netlist = build_netlist(Fragment.get(design, "netlist"), ports=ports)
    names = dict(reversed([*_names(netlist)]))  # a signal that is its copy comes behind a register
    found = set()
    for index, cell in enumerate(netlist.cells):
        if isinstance(cell, FlipFlop):
            own = names[Net.from_cell(index, 0)]
            ends = [(net, False) for net in cell.data] + [(cell.arst, True)]
        elif isinstance(cell, SyncWritePort | SyncReadPort):
            own = _memory(netlist, cell.memory)
            ends = [(net, False) for net in cell.input_nets() if net != cell.clk]
            if isinstance(cell, SyncReadPort):
                ends += [(Net.from_cell(cell.memory, 0), False)]
        else:
            continue
        for net, reset in ends:
            for launch, clock in _sources(netlist, names, net):
                if clock != cell.clk:
                    found.add(Found(launch, own, reset))
    return found


def _names(netlist: Any) -> Iterator[tuple[Net, str]]:
    """Nets of registers, and the place and name of the signal in the register's own module."""
    for module_index, module in enumerate(netlist.modules):
        for signal, name in module.signal_names.items():
            for net in netlist.signals[signal]:
                if net.is_cell and netlist.cells[net.cell].module_idx == module_index:
                    yield net, ".".join((*module.name[1:], name))


def _memory(netlist: Any, index: int) -> str:
    cell = netlist.cells[index]
    return ".".join((*netlist.modules[cell.module_idx].name[1:], cell.name))


def _sources(netlist: Any, names: dict[Net, str], start: Net) -> Iterator[tuple[str, Net]]:
    """Registers from which logic leads to a net, and their clocks."""
    seen, left = set(), [start]
    while left:
        net = left.pop()
        if net in seen or not net.is_cell:
            continue
        seen.add(net)
        cell = netlist.cells[net.cell]
        if isinstance(cell, FlipFlop):
            yield names[Net.from_cell(net.cell, 0)], cell.clk
        elif isinstance(cell, Memory):
            for port in netlist.cells:
                if isinstance(port, SyncWritePort) and port.memory == net.cell:
                    yield _memory(netlist, net.cell), port.clk
        elif isinstance(cell, SyncReadPort):
            yield _memory(netlist, cell.memory), cell.clk
        elif not isinstance(cell, Top):
            left += [one for one, _ in cell.comb_edges_to(net.bit)]
