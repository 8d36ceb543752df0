"""What a simulation keeps readable of the gateware's inside: state machines, levels, streams.

Verilator makes all but the ports disappear. ``probes`` finds in generated Verilog the few signals
that tell where a room stands; ``rules`` keeps exactly those, read-only, which costs no speed.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

__all__ = ["FILE", "MODEL", "Probe", "load", "probes", "rules", "save"]

#: Name of the list in a model's folder, and the variable that names this folder to a simulation.
FILE, MODEL = "probes.json", "ROCINANTE_MODEL"
#: Registers that count what waits: above or below the value they start with.
LEVELS = ("level", "credit", "credits", "pending")
#: The register that counts cycles by itself (hdl/common/epoch.py): the clock model advances it.
AGE = "age"
#: Levels below the top whose streams are told of: boxes, and the components that they join.
JOINED = 2

_REGISTER = re.compile(r"^  reg (?:\[\d+:0\] )?\\?(\S+) +?= \d+'([hdb])([0-9a-f]+);", re.M)
_STATES = re.compile(r"(?:^  \(\* enum_value_[01]+ = \"[^\"]*\" \*\)\n)+\Z", re.M)
_STATE = re.compile(r"enum_value_([01]+) = \"([^\"]*)\"")
_ABOVE = 10_000  # characters above a register in which its attributes are
_BASES = {"b": 2, "d": 10, "h": 16}


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

    def describe(self, value: int, ready: int = 1) -> str:
        """What is worth telling about these values, or nothing when it is at rest there."""
        name = self.signal.split("$")[0]
        if name == AGE:
            return ""
        if self.ready:
            return f"{name.removesuffix('__valid')} waits" if value and not ready else ""
        if not self.states:
            return f"{name} {value}" if value != self.init else ""
        state = self.states.get(value, str(value))
        rest = "IDLE" if "IDLE" in self.states.values() else self.states.get(self.init)
        return f"{name.removesuffix('_state')} in {state}" if state != rest else ""


def probes(text: str) -> list[Probe]:
    """The probes of a generated design, in the order of its text; its top is the first module.

    State machines and levels of all components; streams of the boxes and of what they join, as far
    as their names in the Verilog tell which ``valid`` and ``ready`` belong together.
    """
    modules = re.split(r"^module ", text, flags=re.M)[1:]
    if not modules:
        raise ValueError("No module in the Verilog")
    found: list[Probe] = []
    for module in modules:
        head, _, body = module.partition(");\n")
        name, _, ports = head.partition("(")
        path = tuple(name.strip("\\ ").split(".")[1:])
        found += _registers(path, body)
        if 1 <= len(path) <= JOINED:
            found += _streams(path, re.findall(r"[\w$]+", ports))
    return found


def _registers(path: tuple[str, ...], body: str) -> Iterator[Probe]:
    for match in _REGISTER.finditer(body):
        name, base, digits = match.groups()
        plain, init = name.split("$")[0], int(digits, _BASES[base])
        if plain in (*LEVELS, AGE):
            yield Probe(path, name, init)
        elif plain.endswith("_state"):
            above = _STATES.search(body, max(0, match.start() - _ABOVE), match.start())
            states = _STATE.findall(above[0]) if above else []
            yield Probe(path, name, init, {int(value, 2): state for value, state in states})


def _streams(path: tuple[str, ...], ports: Sequence[str]) -> Iterator[Probe]:
    """Streams; Amaranth numbers equal names, which leaves open who belongs to whom."""
    bases = {port: port.split("$")[0] for port in ports}
    count = Counter(bases.values())
    named = {base: port for port, base in bases.items() if count[base] == 1}
    for base, port in named.items():
        ready = base.removesuffix("__valid") + "__ready"
        if base.endswith("__valid") and ready in named:
            yield Probe(path, port, ready=named[ready])


def rules(found: Iterable[Probe], top: str) -> list[str]:
    """Lines of Verilator's control file for design ``top``."""
    names = [
        (".".join((top, *probe.path)), signal)
        for probe in found
        for signal in (probe.signal, probe.ready)
        if signal
    ]
    # Names are compared in Verilator's own spelling, in which a dollar is another character.
    return [
        f'public_flat_rd -module "{module}" -var "{signal}"'.replace("$", "*")
        for module, signal in names
    ]


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
