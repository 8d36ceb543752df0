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


def listed(folder: Path, members: re.Pattern[str]) -> str:
    """Initialisers {offset, bytes} for the members of all instances, in the order of memory."""
    return "".join(
        f"    {{offsetof({OBJECTS}, {name}) + offsetof({kind}, {member}), "
        f"sizeof({kind}::{member})}},\n"
        for kind, name in _OBJECT.findall((folder / f"{OBJECTS}.h").read_text())
        for member in members.findall((folder / f"{kind}.h").read_text())
    )


if __name__ == "__main__":
    Path("arrays.inc").write_text(listed(Path(), _ARRAY))
    Path("next.inc").write_text(listed(Path(), _NEXT))
