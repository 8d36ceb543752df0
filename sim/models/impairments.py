"""What a network that misbehaves does to frames: a description, from text too."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

from hdl.bounds import WORD, finite, within
from hdl.wire.opcodes import OPCODES, Kind, Operation, Transport

__all__ = ["ROLES", "Drop", "Impairments"]

#: Rates of the model are of so many frames.
_RATE = 1 << 32
#: Longest time, us: all times of a frame together fit the model's 64 bits of picoseconds.
_LONGEST_US = 10_000_000
#: Lowest and highest value of each number.
_BOUNDS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("loss", "duplicate", "overtaken", "corrupt"), (0, 1)),
    **dict.fromkeys(("delay_us", "jitter_us", "pause_us", "pause_every_us"), (0, _LONGEST_US)),
    "burst": (1, WORD),
    "every": (0, WORD),
    "reorder": (0, 1 << 16),
    "gbps": (0.001, 8000),  # a byte takes 8 us to 1 ps
    "queue": (0, 1 << 40),
    "seed": (0, 1 << 62),
}
#: Kinds of an ACKNOWLEDGE by bits 6 and 5 of its syndrome (IBTA vol 1, 9.7.5.1.1).
_ANSWERS = {"ack": 1 << 0, "rnr": 1 << 1, "nak": 1 << 3}


def _roles() -> dict[str, tuple[int, int]]:
    """Name -> bits of the opcodes, and of the kinds of an ACKNOWLEDGE."""
    found = {name: (0, mask) for name, mask in _ANSWERS.items()}
    for operation in Operation:
        kind = OPCODES[Transport.RC << 5 | operation].kind
        if kind != Kind.ACKNOWLEDGE:
            for name in (operation.name.lower(), kind.name.lower()):
                found[name] = (found.get(name, (0, 0))[0] | 1 << operation, 0)
    return found


#: Roles of packets that can be dropped by name: an operation, a class of them, ack, nak, rnr.
ROLES = _roles()


@dataclass(frozen=True)
class Drop:
    """Packets of a role are lost: from the one with number ``first`` (1: the first) ``count``."""

    role: str
    first: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(f"No role {self.role!r} of a packet; there are {', '.join(ROLES)}")
        if not (1 <= self.first <= _RATE and 1 <= self.count <= _RATE):
            raise ValueError(f"Packets have numbers from 1, not {self.first} and {self.count}")

    @classmethod
    def parse(cls, text: str) -> Drop:
        """``ack``: the first; ``ack:3``: the third; ``ack:3-5``: three; ``ack:3-``: all from it."""
        match = re.fullmatch(r"(\w+)(?::(\d+)(?:(-)(\d*))?)?", text)
        if not match:
            raise ValueError(f"Not packets of a role, as in ack:3-5: {text!r}")
        role, first, to, last = match.groups()
        start = int(first or 1)
        if not to:
            return cls(role, start)
        return cls(role, start, int(last) - start + 1 if last else _RATE)


@dataclass(frozen=True)
class Impairments:
    """What happens to the frames of one direction; the defaults change nothing.

    Raises ValueError for a number beyond ``_BOUNDS``. Rates are between 0 and 1. ``burst``: frames
    that one loss takes; ``every``: each n-th is lost; ``drop``: those of a role; ``reorder``: up to
    so many later frames pass one, at the rate ``overtaken``; ``corrupt``: one bit is changed, the
    frame's FCS is right; ``delay_us`` and ``jitter_us`` come in addition to the link's delay;
    ``gbps``: rate of the line behind (None: as the link), before which ``queue`` bytes wait: what
    comes beyond is lost. Once in ``pause_every_us`` the sender begins no frame for ``pause_us``, as
    after a PAUSE frame of 802.3x; nothing is lost by that.
    """

    loss: float = 0.0
    burst: int = 1
    every: int = 0
    drop: Drop | None = None
    duplicate: float = 0.0
    reorder: int = 0
    overtaken: float = 0.01
    corrupt: float = 0.0
    delay_us: float = 0.0
    jitter_us: float = 0.0
    gbps: float | None = None
    queue: int = 0
    pause_us: float = 0.0
    pause_every_us: float = 0.0
    seed: int = 1

    def __post_init__(self) -> None:
        for name, (low, high) in _BOUNDS.items():
            value = getattr(self, name)
            if value is not None:
                within(name, value, low, high)
        if (self.pause_us or self.pause_every_us) and not 0 < self.pause_us < self.pause_every_us:
            raise ValueError(
                f"pause_us must be less than pause_every_us, and neither be 0: "
                f"{self.pause_us}, {self.pause_every_us}"
            )

    @classmethod
    def parse(cls, text: str) -> Impairments:
        """As in ``loss=1%,reorder=16,drop=ack:3,seed=7``; ValueError for what it cannot be."""
        known: dict[str, Any] = {field.name: field.default for field in fields(cls)}
        found: dict[str, Any] = {}
        for part in filter(None, text.split(",")):
            name, equals, value = part.partition("=")
            if name not in known or not equals:
                raise ValueError(f"No impairment {part!r}; there are {'=, '.join(known)}=")
            if name in found:
                raise ValueError(f"{name} is given twice: {text!r}")
            found[name] = Drop.parse(value) if name == "drop" else _number(value, known[name])
        return cls(**found)

    def words(self, seed: int = 0) -> dict[str, int]:
        """Members of the model's structure; ``seed`` is added: directions differ."""
        operations, answers = ROLES[self.drop.role] if self.drop else (0, 0)
        return {
            "on": int(self != Impairments(seed=self.seed)),
            "seed": self.seed + seed,
            "loss": round(self.loss * _RATE),
            "burst": self.burst,
            "every": self.every,
            "duplicate": round(self.duplicate * _RATE),
            "corrupt": round(self.corrupt * _RATE),
            "overtaken": round(self.overtaken * _RATE),
            "span": self.reorder,
            "delay_ps": round(self.delay_us * 1e6),
            "jitter_ps": round(self.jitter_us * 1e6),
            "ps_per_byte": round(8000 / self.gbps) if self.gbps else 0,
            "queue_bytes": self.queue,
            "pause_ps": round(self.pause_us * 1e6),
            "pause_every_ps": round(self.pause_every_us * 1e6),
            "operations": operations,
            "answers": answers,
            "skip": self.drop.first - 1 if self.drop else 0,
            "drop": self.drop.count if self.drop else 0,
        }


def _number(text: str, default: float | int | None) -> float | int:
    """``1%``, ``0.01`` or ``16``, a whole number where the default is one."""
    try:
        if isinstance(default, int):
            return int(text)
        return finite(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError as error:
        raise ValueError(f"Not a number: {text!r}") from error
