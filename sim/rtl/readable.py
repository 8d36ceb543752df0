"""Signals inside the gateware that a model keeps readable, and the list of them beside it.

``rules`` keeps exactly those, all but a few read-only, which costs no speed.
``sim.bench.probes`` finds them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

__all__ = ["AGE", "FILE", "MODEL", "TICKS", "WRITTEN", "Probe", "load", "place", "rules", "save"]

#: Name of the list in a model's folder, and the variable that names this folder to a simulation.
FILE, MODEL = "probes.json", "ROCINANTE_MODEL"
#: The register that counts cycles by itself (hdl/common/epoch.py): the clock model advances it.
AGE = "age"
#: What the timers of the QPs count with (hdl/transport/recovery/qp_timers.py).
TICKS = ("ticks", "own", "moved", "used", "tick")
#: Registers that the clock model advances.
WRITTEN = (AGE, "ticks", "own", "moved")


@dataclass(frozen=True)
class Probe:
    """One place to look at: ``signal`` of the component ``path`` below the top of the gateware.

    init: its value after reset. states: names of an FSM's states. ready: the other half of a
    stream, whose ``signal`` is then ``valid``.
    """

    path: tuple[str, ...]
    signal: str
    init: int = 0
    states: dict[int, str] = field(default_factory=dict)
    ready: str = ""

    @property
    def component(self) -> str:
        """Where it is, without the numbers of equal names."""
        return ".".join(part.split("$")[0] for part in self.path) or "top"

    @property
    def name(self) -> str:
        """Its signal, without the number of equal names."""
        return self.signal.split("$")[0]

    @property
    def rest(self) -> str | None:
        """The state in which an FSM does nothing."""
        return "IDLE" if "IDLE" in self.states.values() else self.states.get(self.init)

    def describe(self, value: int, ready: int = 1) -> str:
        """What is worth telling about these values, or nothing when it is at rest there."""
        name = self.name
        if name in (AGE, *TICKS):
            return ""
        if self.ready:
            return f"{name.removesuffix('__valid')} waits" if value and not ready else ""
        if not self.states:
            return f"{name} {value}" if value != self.init else ""
        state = self.states.get(value, str(value))
        return f"{name.removesuffix('_state')} in {state}" if state != self.rest else ""


def rules(found: Sequence[Probe], top: str) -> list[str]:
    """Lines of Verilator's control file for design ``top``."""
    names = [
        (".".join((top, *probe.path)), signal)
        for probe in found
        for signal in (probe.signal, probe.ready)
        if signal
    ]
    lines = [f'public_flat_rd -module "{module}" -var "{signal}"' for module, signal in names]
    lines += [  # the testbench assigns them too
        f'lint_off -rule MULTIDRIVEN -file "*{top}.sv" -match "*{".".join(probe.path)}.{signal}*"'
        for probe in found
        if (signal := probe.signal) in WRITTEN
    ]
    # Names are compared in Verilator's own spelling, in which a dollar is another character.
    return [line.replace("$", "*") for line in lines]


def place(probe: Probe) -> str:
    """The signal's hierarchical name in Verilog, from its design on."""
    return ".".join(f"\\{name} " if "$" in name else name for name in (*probe.path, probe.signal))


def save(found: Iterable[Probe], path: Path) -> None:
    """Write a list of probes."""
    path.write_text(json.dumps([asdict(probe) for probe in found], indent=0))


def load() -> list[Probe]:
    """Inside a simulation: the probes its model was built with."""
    path = Path(os.environ.get(MODEL, ""), FILE)
    items = json.loads(path.read_text()) if path.is_file() else []
    for item in items:
        item["path"] = tuple(item["path"])
        item["states"] = {int(value): name for value, name in item["states"].items()}
    return [Probe(**item) for item in items]
