"""Lists the arrays of a verilated design for ``sim/models/clock_model.cpp``.

A program of its own: the build runs it in Verilator's folder, between Verilator and the compiler.
"""

import re
from pathlib import Path

ROOT = "Vtop___024root"
_MEMBER = re.compile(r"^\s+VlUnpacked<.*> (\w+);$", re.M)


def listed(header: str) -> str:
    """Initialisers {offset, bytes} for the arrays that ``header`` declares, in its order."""
    return "".join(
        f"    {{offsetof({ROOT}, {member}), sizeof({ROOT}::{member})}},\n"
        for member in _MEMBER.findall(header)
    )


if __name__ == "__main__":
    Path("arrays.inc").write_text(listed(Path(f"{ROOT}.h").read_text()))
