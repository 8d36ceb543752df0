"""Lists what ``sim/models/clock_model.cpp`` does not compare of a verilated design.

A program of its own: the build runs it in Verilator's folder, between Verilator and the compiler.
"""

import re
from pathlib import Path

ROOT = "Vtop___024root"
_ARRAY = re.compile(r"^\s+VlUnpacked<.*> (\w+);$", re.M)
#: Next values of the registers that count cycles: Verilator keeps those of registers that two
#: processes assign.
_NEXT = re.compile(r"^\s+\w+/\*15:0\*/ (__Vdly__\w+__DOT__age);$", re.M)


def listed(header: str, members: re.Pattern[str]) -> str:
    """Initialisers {offset, bytes} for the members that ``header`` declares, in its order."""
    return "".join(
        f"    {{offsetof({ROOT}, {member}), sizeof({ROOT}::{member})}},\n"
        for member in members.findall(header)
    )


if __name__ == "__main__":
    text = Path(f"{ROOT}.h").read_text()
    Path("arrays.inc").write_text(listed(text, _ARRAY))
    Path("next.inc").write_text(listed(text, _NEXT))
