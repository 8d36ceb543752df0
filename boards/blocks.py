"""Ports of blocks that the vendor's tool makes: what a top instantiates, and what lint sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Block", "Ports"]

#: Name of a port -> its direction, seen from the block ("i" or "o"), and width.
Ports = Mapping[str, tuple[str, int]]


@dataclass(frozen=True)
class Block:
    """A module named ``name``, of which no text is ours; ``source``: where its ports are known
    from."""

    name: str
    ports: Ports
    source: str

    def stub(self) -> str:
        """Return a Verilog module with the block's ports and nothing in it."""
        words = {"i": "input", "o": "output"}
        ports = ",\n".join(
            f"  {words[way]} wire [{width - 1}:0] {name}"
            for name, (way, width) in self.ports.items()
        )
        return f"module {self.name} (\n{ports}\n);\nendmodule\n"
