"""Blocks that a top joins, and of which no text is its own: their ports, for a design and lint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from amaranth.hdl import Const, Instance, Module, Signal
from amaranth.lib.wiring import Component, Out, Signature

__all__ = ["Block", "Placed", "Ports", "bus_ports", "core_block", "place"]

#: Name of a port -> its direction, seen from the block ("i" or "o"), and width.
Ports = Mapping[str, tuple[str, int]]


@dataclass(frozen=True)
class Block:
    """A module named ``name``, of which no text is ours; ``source``: where its ports are known
    from."""

    name: str
    ports: Ports
    source: str

    def head(self) -> str:
        """Return the list of ports of a Verilog module that is the block, with its brackets."""
        words = {"i": "input", "o": "output"}
        ports = ",\n".join(
            f"  {words[way]} wire [{width - 1}:0] {name}"
            for name, (way, width) in self.ports.items()
        )
        return f"(\n{ports}\n)"

    def stub(self) -> str:
        """Return a Verilog module with the block's ports and nothing in it."""
        return f"module {self.name} {self.head()};\nendmodule\n"


def bus_ports(prefix: str, signature: Signature, *, driver: bool, without: str = "") -> Ports:
    """Return the ports of a bus of a block that is the ``driver`` (master) of it or is not."""
    return {
        f"{prefix}_{name}": ("o" if (member.flow == Out) == driver else "i", member.shape)
        for name, member in signature.members.items()
        if not without or not name.endswith(without)
    }


def core_block(core: Component, *, domains: tuple[str, ...], separator: str) -> Block:
    """Return the NIC's core as a block, from its signature alone. ``domains``: its clocks;
    ``separator``: between the parts of a port's name."""
    clocks = {
        f"{'' if domain == 'sync' else f'{domain}_'}{kind}": ("i", 1)
        for domain in domains
        for kind in ("clk", "rst")
    }
    ports = {
        separator.join(map(str, path)): ("o" if member.flow == Out else "i", len(signal))
        for path, member, signal in core.signature.flatten(core)
    }
    return Block("rocinante", clocks | ports, f"{type(core).__module__.replace('.', '/')}.py")


class Placed:
    """A block in a design: its wires by the names of its ports."""

    def __init__(self, block: Block, wires: dict[str, Signal], m: Module):
        self._block, self._wires, self._m = block, wires, m

    def __getitem__(self, name: str) -> Signal:
        return self._wires[name]

    def join(self, name: str, other: Placed, theirs: str) -> None:
        """Connect a port with one of another block, from the output to the input."""
        ends = [(self._block.ports[name][0], self[name]), (other._block.ports[theirs][0],
                                                           other[theirs])]  # fmt: skip
        if sorted(way for way, _ in ends) != ["i", "o"]:
            raise ValueError(f"{name} and {theirs} are no output and input")
        (_, target), (_, source) = sorted(ends, key=lambda end: end[0])
        self._m.d.comb += target.eq(source)

    def join_bus(self, prefix: str, bus) -> None:
        """Connect the ports behind ``prefix`` with the members of an interface by their names; the
        block may lack some of them."""
        for name in bus.signature.members:
            way, _ = self._block.ports.get(f"{prefix}{name}", ("", 0))
            ours = getattr(bus, name)
            if way:
                wire = self._wires[f"{prefix}{name}"]
                self._m.d.comb += ours.eq(wire) if way == "o" else wire.eq(ours)

    def tie(self, ties: Mapping[str, tuple[int, int]]) -> None:
        """Drive inputs with constants: name -> value and width."""
        for name, (value, width) in ties.items():
            self._m.d.comb += self[name].eq(Const(value, width))


def place(m: Module, block: Block) -> Placed:
    """Instantiate a block in ``m``, below the name ``<block>_block``."""
    wires = {
        name: Signal(width, name=f"{block.name}_{name}") for name, (_, width) in block.ports.items()
    }
    ports = {f"{way}_{name}": wires[name] for name, (way, _) in block.ports.items()}
    m.submodules[f"{block.name}_block"] = Instance(block.name, **ports)
    return Placed(block, wires, m)
