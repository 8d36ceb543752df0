"""Timing constraints of the paths between clocks, made from the components that have them.

A component with such paths lists them in its property ``paths``. ``clock_paths`` finds these
components in a design, with their places. ``xdc`` writes the constraints for AMD Vivado, ``sdc``
for Intel's Timing Analyzer (Quartus).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from amaranth.hdl import Elaboratable, Fragment

__all__ = ["ClockPath", "PathKind", "clock_paths", "sdc", "xdc"]


class PathKind(Enum):
    """What a path between two clocks needs."""

    #: Bits that must arrive within one source cycle of one another, as those of a Gray code.
    BUS = "bus"
    #: Bits that are independent of one another.
    BITS = "bits"
    #: Rows of a memory that are read long after they were written. A path exists only if the tool
    #: makes look-up table RAM of the memory.
    MEMORY = "memory"
    #: Asynchronous sets: asserted at any time, and released through synchronisers.
    RESET = "reset"


@dataclass(frozen=True)
class ClockPath:
    """A path from the clock ``i_domain`` to ``o_domain``.

    ``launch`` and ``capture`` are registers, as the instances on the way to them and their own
    name, joined by dots. Of a MEMORY both are the memory. Of a RESET ``capture`` is how the names
    of its registers begin; its ``launch`` is not known here, and ``i_domain`` need not be.
    """

    kind: PathKind
    launch: str
    capture: str
    i_domain: str
    o_domain: str

    def below(self, place: Iterable[str]) -> "ClockPath":
        """Return the path of a component that is at ``place``."""
        at = "".join(f"{name}." for name in place)
        return replace(
            self, launch=self.launch and f"{at}{self.launch}", capture=f"{at}{self.capture}"
        )


def clock_paths(design: Elaboratable) -> list[ClockPath]:
    """Return all paths between clocks in ``design``, with their places below its top."""
    found: list[ClockPath] = []

    def visit(fragment, place: tuple[str, ...]) -> None:
        for origin in fragment.origins or ():
            found.extend(path.below(place) for path in getattr(origin, "paths", ()))
        for inside, name, _ in fragment.subfragments:
            visit(inside, (*place, name))

    visit(Fragment.get(design, "constraints"), ())
    return found


def _nanoseconds(path: ClockPath, clocks: Mapping[str, int]) -> tuple[float, float]:
    """Return the periods of both clocks; ValueError when one of them is not known."""
    for name in (path.i_domain, path.o_domain):
        if name not in clocks:
            raise ValueError(f"The frequency of the clock {name!r} is needed, for {path.capture}")
    return 1e9 / clocks[path.i_domain], 1e9 / clocks[path.o_domain]


def xdc(paths: Iterable[ClockPath], clocks: Mapping[str, int]) -> str:
    """Return the constraints as XDC; ``clocks``: frequency of each domain, Hz.

    The registers are found wherever the design is in a larger one. Spec: UG903 (timing exceptions),
    UG835 (``set_bus_skew``).
    """

    def cells(name: str) -> str:
        return f"[get_cells -hierarchical -filter {{NAME =~ *{name.replace('.', '/')}_reg*}}]"

    lines = []
    for path in paths:
        if path.kind is PathKind.RESET:
            name = path.capture.replace(".", "/")
            pins = f"{{NAME =~ *{name}*_reg*/PRE || NAME =~ *{name}*_reg*/CLR}}"
            stages = f"{{NAME =~ *{name}*_reg*}}"
            lines += [
                f"set_false_path -to [get_pins -hierarchical -filter {pins}]",
                f"set_property ASYNC_REG TRUE [get_cells -hierarchical -filter {stages}]",
            ]
            continue
        source, target = _nanoseconds(path, clocks)
        if path.kind is PathKind.MEMORY:
            name = f"*{path.launch.replace('.', '/')}*"
            memory = f"[get_cells -quiet -hierarchical -filter {{NAME =~ {name}}}]"
            lines.append(f"set_max_delay -quiet -datapath_only -from {memory} {target:.3f}")
            continue
        ends = f"-from {cells(path.launch)} -to {cells(path.capture)}"
        # No bit is late by a whole cycle of either clock.
        lines.append(f"set_max_delay -datapath_only {ends} {min(source, target):.3f}")
        if path.kind is PathKind.BUS:
            lines.append(f"set_bus_skew {ends} {min(source, target):.3f}")
        stages = path.capture.removesuffix("0") + "*"
        lines.append(f"set_property ASYNC_REG TRUE {cells(stages)}")
    return "\n".join([*lines, ""])


def sdc(paths: Iterable[ClockPath], clocks: Mapping[str, int]) -> str:
    """Return the constraints as SDC for Quartus; ``clocks``: frequency of each domain, Hz.

    Delays of the paths themselves are bounded by ``set_net_delay`` and ``set_max_skew``; the checks
    between the clocks, which have no relation, are opened wide. Spec: Timing Analyzer cookbook.
    """

    def registers(name: str) -> str:
        return f"[get_registers {{*{name.replace('.', '|')}*}}]"

    lines = []
    for path in paths:
        if path.kind is PathKind.RESET:
            lines.append(f"set_false_path -to {registers(path.capture)}")
            continue
        source, target = _nanoseconds(path, clocks)
        if path.kind is PathKind.MEMORY:
            lines.append(f"set_max_delay -from {registers(path.launch)} {target:.3f}")
            lines.append(f"set_min_delay -from {registers(path.launch)} -100")
            continue
        ends = f"-from {registers(path.launch)} -to {registers(path.capture)}"
        lines += [f"set_max_delay {ends} 100", f"set_min_delay {ends} -100"]
        lines.append(f"set_net_delay {ends} -max {min(source, target):.3f}")
        if path.kind is PathKind.BUS:
            lines.append(f"set_max_skew {ends} {min(source, target):.3f}")
    return "\n".join([*lines, ""])
