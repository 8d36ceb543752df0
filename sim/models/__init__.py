"""Compiled models (C++ through DPI, thin SystemVerilog) of what surrounds a card."""

from pathlib import Path

__all__ = ["CLOCK", "ECPIX5", "HOST", "LINK", "MEMORIES"]

_HERE = Path(__file__).resolve().parent
#: Sources of the clock (``sim.rtl.build.build_model(extra_sources=...)``), which the others need.
CLOCK = tuple(_HERE / name for name in ("clock_model.cpp", "clock.hpp", "state.hpp", "ticks.hpp"))
_EVENTS = _HERE / "events.hpp"
#: Sources of the host model.
HOST = (
    *(_HERE / f"host_{name}" for name in ("model.sv", "model.cpp", "types.hpp")),
    *(_HERE / name for name in ("host.hpp", "pushes.hpp", "spaces.cpp", "spaces.hpp", "tlp.hpp")),
    _EVENTS,
)
#: Sources of the link model.
LINK = (
    *(_HERE / name for name in ("link_model.sv", "link_model.cpp", "impairments.hpp")),
    _EVENTS,
)
#: Source of what lets Python reach the words of the gateware's memories.
MEMORIES = _HERE / "memories.cpp"
#: Top and cells around the ECPIX-5's Verilog.
ECPIX5 = tuple(_HERE / name for name in ("ecpix5_board.sv", "ecp5.sv"))
