"""Lists what ``sim/models/clock_model.cpp`` does not compare of a verilated design.

A program of its own: the build runs it in Verilator's folder, between Verilator and the compiler.
"""

import re
from pathlib import Path

OBJECTS = "Vtop__Syms"
_OBJECT = re.compile(r"^ {4}(Vtop_\w+) +(TOP\w*);$", re.M)
_ARRAY = re.compile(r"^\s+VlUnpacked<.*> (\w+);$", re.M)
#: Next values of the registers that count cycles: Verilator keeps those of registers that two
#: processes assign.
_NEXT = re.compile(r"^\s+\w+/\*15:0\*/ (__Vdly__\w+__DOT__age);$", re.M)
#: What belongs to a card or its models by its name: objects, and members of the top.
_CARD = re.compile(r"^TOP__testbench__DOT__nic(\d+)(?=__DOT__|$)")
_OWN = re.compile(r"^\s+[\w<>/*:, ]+ (testbench__DOT__[a-z]+(\d+)\w*);$", re.M)


def listed(folder: Path, members: re.Pattern[str]) -> str:
    """Initialisers {offset, bytes} for the members of all instances, in the order of memory."""
    return "".join(
        f"    {{offsetof({OBJECTS}, {name}) + offsetof({kind}, {member}), "
        f"sizeof({kind}::{member})}},\n"
        for kind, name in _OBJECT.findall((folder / f"{OBJECTS}.h").read_text())
        for member in members.findall((folder / f"{kind}.h").read_text())
    )


def owned(folder: Path) -> str:
    """Initialisers {offset, bytes, card} for what belongs to one card or its models."""
    lines = []
    for kind, name in _OBJECT.findall((folder / f"{OBJECTS}.h").read_text()):
        if card := _CARD.search(name):
            lines.append(f"offsetof({OBJECTS}, {name}), sizeof({kind}), {card[1]}")
        elif name == "TOP":
            for member, number in _OWN.findall((folder / f"{kind}.h").read_text()):
                place = f"offsetof({OBJECTS}, TOP) + offsetof({kind}, {member})"
                lines.append(f"{place}, sizeof({kind}::{member}), {number}")
    return "".join(f"    {{{line}}},\n" for line in lines)


if __name__ == "__main__":
    Path("arrays.inc").write_text(listed(Path(), _ARRAY))
    Path("next.inc").write_text(listed(Path(), _NEXT))
    Path("own.inc").write_text(owned(Path()))
