"""What a simulation keeps readable of the gateware's inside: state machines, levels, streams.

Verilator makes all but the ports disappear. ``probes`` finds in generated Verilog the few signals
that tell where a room stands; ``sim.rtl.readable`` keeps them.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from sim.rtl.readable import AGE, TICKS, Probe

__all__ = ["probes"]

#: Registers that count what waits: above or below the value they start with.
LEVELS = ("level", "credit", "credits", "pending")
#: Levels below the top whose streams are told of: boxes, and the components that they join.
JOINED = 2

_REGISTER = re.compile(r"^  reg (?:\[\d+:0\] )?\\?(\S+) +?= \d+'([hdb])([0-9a-f]+);", re.M)
_STATES = re.compile(r"(?:^  \(\* enum_value_[01]+ = \"[^\"]*\" \*\)\n)+\Z", re.M)
_STATE = re.compile(r"enum_value_([01]+) = \"([^\"]*)\"")
_ABOVE = 10_000  # characters above a register in which its attributes are
_BASES = {"b": 2, "d": 10, "h": 16}


@functools.lru_cache(maxsize=4)
def probes(text: str) -> tuple[Probe, ...]:
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
        if f"reg [35:0] {TICKS[0]} " in body:
            found += [Probe(path, name) for name in TICKS]
        if 1 <= len(path) <= JOINED:
            found += _streams(path, re.findall(r"[\w$]+", ports))
    return tuple(found)


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
