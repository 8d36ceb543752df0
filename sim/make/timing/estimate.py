"""The facts of a board's estimate: its clock, what misses it, and what would be pipelined first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from sim.make.sta.delays import Delays
from sim.make.sta.netlist import Netlist
from sim.make.sta.nets import memories, wide_nets
from sim.make.sta.timing import CORNERS, USUAL, Slow, Timing

__all__ = ["estimate", "pipelined_first"]

#: How many of the worst paths, nets, memories and components are kept.
WORST = 10
LISTED = 20


def estimate(netlist: Netlist, family: str, delays: Delays, clock_hz: int) -> dict[str, Any]:
    """Return the facts of a board's design, as the JSON has them. clock_hz: of the board."""
    timing = Timing(netlist, family, delays)
    paths, period = timing.paths(), 1e12 / clock_hz
    nets = wide_nets(netlist, family, timing.fan_out)
    levels = {
        one: dict(sorted(Counter(path.levels for path in timing.walk.levels(one).paths).items()))
        for one in ("register", "ram")
    }
    deep = memories(netlist, family)
    slowest = {corner: max(getattr(path, corner) for path in paths) for corner in CORNERS}
    return {
        "clock_mhz": clock_hz / 1e6,
        "fmax_mhz": {corner: round(1e6 / slowest[corner]) for corner in CORNERS},
        "ends": len(paths),
        "missed": {
            corner: sum(getattr(path, corner) > period for path in paths) for corner in CORNERS
        },
        "levels": {
            one: {str(level): count for level, count in some.items()}
            for one, some in levels.items()
        },
        "paths": [asdict(path) for path in paths[:WORST]],
        "first": pipelined_first(paths, period)[:WORST],
        "wide": len(nets),
        "wide_by_driver": dict(sorted(Counter(net.driver for net in nets).items())),
        "nets": [asdict(net) for net in nets[:LISTED]],
        "deep": len(deep),
        "memories": [asdict(memory) for memory in deep[:LISTED]],
    }


def pipelined_first(paths: Iterable[Slow], period: float) -> list[dict[str, Any]]:
    """Return the components in which paths end that miss ``period`` (ps) in the usual case.

    They are ordered by the latest. near, narrow, usual, far: how many registers and memories of the
    component miss it.
    """
    found: defaultdict[str, list[Slow]] = defaultdict(list)
    for path in paths:
        found[path.component].append(path)
    rows = []
    for name, some in found.items():
        late = {corner: sum(getattr(path, corner) > period for path in some) for corner in CORNERS}
        if late[USUAL]:
            worst = max(some, key=lambda path: path.usual)
            rows.append(
                {"component": name, **late, "worst": worst.usual, "levels": worst.levels,
                 "start": worst.start, "end": worst.end}
            )  # fmt: skip
    return sorted(rows, key=lambda row: (-row["worst"], row["component"]))
