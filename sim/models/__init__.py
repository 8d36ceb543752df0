"""Compiled models (C++ through DPI, thin SystemVerilog) of what surrounds a card."""

from pathlib import Path

__all__ = ["HOST", "LINK"]

_HERE = Path(__file__).resolve().parent
#: Sources of the host model (``sim.build.build_model(extra_sources=...)``).
HOST = (_HERE / "host_model.sv", _HERE / "host_model.cpp", _HERE / "events.hpp")
#: Sources of the link model.
LINK = (_HERE / "link_model.sv", _HERE / "link_model.cpp", _HERE / "events.hpp")
