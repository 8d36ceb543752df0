"""Carry chains of an ECP5 without the cells that nextpnr would add for nothing.

nextpnr gives a chain a cell in front when its first carry comes from a net, a constant too, and one
behind when a net takes its last carry, even if nobody reads it: two look-up tables each. A design
of a thousand chains, most of a few bits, has as many of these cells as of a chain's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

__all__ = ["FIRST_CARRY", "shorten"]

#: What each half of a cell has.
_PORTS = ("A{}", "B{}", "C{}", "D{}", "S{}")
_PARAMETERS = ("INIT{}", "INJECT1_{}")
#: What nextpnr takes for a port without a net. It does not know a port that is not there.
_OPEN = ["x"]
#: First carry -> parameter of a half that makes it. The last four bits say the carry, by A and B,
#: where the whole table has 0, as it does for a D of 1.
FIRST_CARRY = {"0": "0" * 16, "1": "0" * 12 + "1" * 4}
_FIRST = dict(zip(_PORTS, (["0"], ["0"], ["0"], ["1"], _OPEN), strict=True))

Cell = dict[str, Any]


def shorten(module: dict[str, Any]) -> tuple[int, int]:
    """Rewrite the chains of a mapped ``module``, as ``write_json`` has it.

    The last carry of a chain is left open where nobody reads it. A constant first carry becomes
    that of a half of its own, where that does not take a cell more. Returns how many chains have
    changed in either way.
    """
    cells = {name: cell for name, cell in module["cells"].items() if cell["type"] == "CCU2C"}
    read = _read(module)
    opened = 0
    for cell in cells.values():
        out = cell["connections"]["COUT"]
        if out != _OPEN and not read[out[0]]:
            cell["connections"]["COUT"] = _OPEN
            opened += 1
    chains = [chain for chain in _chains(cells, read) if _starts(chain, read)]
    return opened, len(chains)


def _read(module: dict[str, Any]) -> Counter[int | str]:
    """How often each net is read."""
    read: Counter[int | str] = Counter()
    for port in module["ports"].values():
        if port["direction"] != "input":
            read.update(port["bits"])
    for cell in module["cells"].values():
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] != "output":
                read.update(bits)
    return read


def _chains(cells: dict[str, Cell], read: Counter[int | str]) -> Iterator[list[Cell]]:
    """The chains that begin with a constant, and whose carries only the next cell reads."""
    behind = {cell["connections"]["CIN"][0]: cell for cell in cells.values()}
    for cell in cells.values():
        if cell["connections"]["CIN"][0] in FIRST_CARRY:
            chain = [cell]
            while (out := chain[-1]["connections"]["COUT"]) != _OPEN:
                if read[out[0]] != 1 or out[0] not in behind:
                    break
                chain.append(behind[out[0]])
            else:
                yield chain


def _starts(chain: list[Cell], read: Counter[int | str]) -> bool:
    """Move a chain up by a half, with its first carry in the first, if its last half is free."""
    halves = [_half(cell, n) for cell in chain for n in range(2)]
    if read[halves[-1]["S{}"][0]]:
        return False
    (first,) = chain[0]["connections"]["CIN"]
    chain[0]["connections"]["CIN"] = _OPEN
    made = _FIRST | {"INIT{}": FIRST_CARRY[first], "INJECT1_{}": "NO"}
    for place, half in enumerate([made, *halves[:-1]]):
        cell, n = chain[place // 2], place % 2
        cell["connections"] |= {name.format(n): half[name] for name in _PORTS}
        cell["parameters"] |= {name.format(n): half[name] for name in _PARAMETERS}
    return True


def _half(cell: Cell, n: int) -> dict[str, Any]:
    """Half ``n`` of ``cell``, by names with a place for the number."""
    half = {name: cell["connections"][name.format(n)] for name in _PORTS}
    return half | {name: cell["parameters"][name.format(n)] for name in _PARAMETERS}
