"""The simulation of a board: the Verilog of its bitstream with models of the cells at its pins."""

from __future__ import annotations

import re
from typing import Any

from sim import models
from sim.make.boards import ecpix5
from sim.rtl.build import WAIVERS, BuiltModel, build_model
from sim.rtl.env import build_root
from sim.rtl.verilog import digest

__all__ = ["build", "verilog"]


def verilog(top: Any) -> str:
    """Return the Verilog of a top on the ECPIX-5 as Verilator takes it (see ``sim.rtl.verilog``).

    Raises BuildError when the gateware does not elaborate.
    """
    off = "".join(f"/* verilator lint_off {rule} */\n" for rule in WAIVERS)
    text = ecpix5.shell(top)[f"{ecpix5.NAME}.v"]
    return off + re.sub(r"\balways @\*", "always_comb", text)


def build(text: str) -> BuiltModel:
    """Build the board of a ``verilog``: its top is ``sim/models/ecpix5_board.sv``.

    Raises BuildError.
    """
    folder = build_root() / "testbench" / f"{ecpix5.NAME}-{digest(text)}"
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / f"{ecpix5.NAME}.sv"
    source.write_text(text)
    return build_model([], top="ecpix5_board", extra_sources=[source, *models.ECPIX5], fast=False)
