"""Code coverage of gateware: which branches of ``hdl/`` a simulation has entered.

With ``ROCINANTE_CODE_COVERAGE=1`` models count them, and check no contracts. A branch is what the
Python line of a ``with m.If``, ``m.Elif``, ``m.Else``, ``m.Case``, ``m.State`` or the like holds,
in whatever instance and called by whomever. One that constants decide is none.

Amaranth's Verilog has a copy of all conditions for each signal and says nothing of their lines.
Verilator's ``--coverage-line`` would count a branch many times and could not say which it is. So
each branch gets a bit here, and a ``cover`` statement of that bit at each clock edge. Verilator
counts those (``--coverage-user``), and a ``line`` directive has it report the Python line. The
counts of a simulation are ``coverage.dat`` (``FILE``) in its folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sim.rtl.env import REPO

__all__ = ["FILE", "SETTING", "add", "located", "rooms", "wanted"]

#: The setting that asks for it.
SETTING = "ROCINANTE_CODE_COVERAGE"
#: What a simulation leaves, named by cocotb.
FILE = "coverage.dat"

#: Folders whose branches count.
_OURS = ("hdl", "boards", "tests")
_COVER = re.compile(r"^( *)cover \(\\(?P<file>\S+\.py):(?P<line>\d+)\S* \);$")


def wanted() -> bool:
    """Whether models that are built now count branches."""
    return os.environ.get(SETTING) == "1"


def add(fragment: Any, domain: str = "sync") -> None:
    """Add to an elaborated design what tells which branches are entered, in each clock cycle.

    domain: of a part that has no registers.
    """
    from amaranth.hdl import Const, Cover, Signal
    from amaranth.hdl._ast import Switch

    bits: dict[str, Signal] = {}

    def entered(statements: Iterable[Any]) -> list[Any]:
        """The same branches, each of which sets its bit and does nothing else."""
        found = []
        for switch in (one for one in statements if isinstance(one, Switch)):
            cases = []
            for patterns, inner, place in switch.cases:
                sets = entered(inner)
                # Of "with m.State(...), m.If(...)" the last one says that the branch is entered.
                last = all(place != case[2] for one in sets for case in getattr(one, "cases", ()))
                if last and (name := _name(place)):
                    bit = bits.setdefault(name, Signal(name=name))
                    sets.insert(0, bit.eq(Const(1)))
                cases.append((patterns, sets, place))
            found.append(Switch(switch.test, cases, src_loc=switch.src_loc))
        return found

    of_domains = [entered(statements) for statements in fragment.statements.values()]
    domain = next((name for name in fragment.statements if name != "comb"), domain)
    for statements in of_domains:
        fragment.add_statements("comb", statements)
    fragment.add_statements(domain, [Cover(bit) for bit in bits.values()])
    for part, *_ in fragment.subfragments:
        add(part, domain)


def _name(place: tuple[str, int] | None) -> str:
    """The name of a branch, its Python line; empty of what packages bring along."""
    path = Path(place[0]) if place else Path()
    if not place or not any(path.is_relative_to(REPO / name) for name in _OURS):
        return ""
    return f"{path.relative_to(REPO).as_posix()}:{place[1]}"


def located(text: str, file: str) -> str:
    """Return Verilog in which each ``cover`` says that it stands in its Python line.

    file: the name of the Verilog, for the lines that follow.
    """
    lines = []
    for line in text.splitlines():
        if found := _COVER.match(line):
            lines += [f'`line {found["line"]} "{found["file"]}" 0', line]
            lines.append(f'`line {len(lines) + 2} "{file}" 0')
        else:
            lines.append(line)
    return "\n".join([*lines, ""])


def rooms(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Group the rows of files of ``coverage --code`` by folder of hdl/; files beside the folders
    are one group."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        parts = Path(row["what"]).parts
        groups.setdefault(parts[1] if len(parts) > 2 else "whole cards", []).append(row)
    return dict(sorted(groups.items()))
