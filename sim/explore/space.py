"""The space: the cards that the swept fields make, and what is better of a metric."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from hdl.config import NicConfig
from sim.make.synth.parts import setting

__all__ = ["METRICS", "Kind", "Metric", "Point", "front", "points"]


class Kind(Enum):
    """Who measures a metric."""

    COST = "synthesis of the components"
    RATE = "a simulation of bandwidth"
    LATENCY = "a simulation of latency"


@dataclass(frozen=True)
class Metric:
    """A figure of a card. text: what it is, with its unit. more: more of it is better."""

    kind: Kind
    text: str
    more: bool = False


#: By the name that ``--metric`` has for it.
METRICS = {
    "lut": Metric(Kind.COST, "LUTs"),
    "lutram": Metric(Kind.COST, "LUTs as memory"),
    "ff": Metric(Kind.COST, "flip-flops"),
    "bram": Metric(Kind.COST, "BRAM36"),
    "uram": Metric(Kind.COST, "UltraRAMs"),
    "dsp": Metric(Kind.COST, "DSP blocks"),
    "levels": Metric(Kind.COST, "levels of logic between registers"),
    "ram_levels": Metric(Kind.COST, "levels of logic behind a block RAM"),
    "gbps": Metric(Kind.RATE, "Gb/s of payload", more=True),
    "mmsg_s": Metric(Kind.RATE, "million messages a second", more=True),
    "latency": Metric(Kind.LATENCY, "median latency, ns"),
}


@dataclass(frozen=True)
class Point:
    """A card of the space: the values of the swept fields, and its configuration.

    problem: why there is no such card, where ``config`` is None.
    """

    chosen: Mapping[str, Any]
    config: NicConfig | None
    problem: str = ""

    @property
    def name(self) -> str:
        """The swept values, for a reader."""
        return " ".join(f"{field}={value}" for field, value in self.chosen.items()) or "the card"


def points(base: Mapping[str, Any], sweeps: Iterable[str]) -> list[Point]:
    """Return all combinations of the swept values.

    base: the fields that all cards have in common. sweeps: ``FIELD=VALUE,VALUE...``.
    Raises ValueError for a field or value that does not exist, or one that is given twice. Values
    that do not go together make a point without a card.
    """
    axes: dict[str, list[Any]] = {}
    for sweep in sweeps:
        field, _, values = sweep.partition("=")
        found = [setting("--sweep", f"{field}={value}")[1] for value in values.split(",")]
        if field in axes or len(set(found)) != len(found):
            raise ValueError(f"--sweep must name each field and value once, not {sweep!r}")
        axes[field] = found
    made = []
    for values_of_all in itertools.product(*axes.values()):
        chosen = dict(zip(axes, values_of_all, strict=True))
        try:
            made.append(Point(chosen, NicConfig(**{**base, **chosen})))
        except ValueError as error:
            made.append(Point(chosen, None, str(error)))
    return made


def front(rows: Sequence[Mapping[str, float]], metrics: Sequence[str]) -> set[int]:
    """Return which rows no other one beats: better in one of the metrics and worse in none.

    rows: the figures of each card by metric. Cards with the same figures beat each other not.
    """
    signed = [tuple(_cost(name, row[name]) for name in metrics) for row in rows]
    return {
        number
        for number, mine in enumerate(signed)
        if not any(
            other != mine and all(theirs <= own for theirs, own in zip(other, mine, strict=True))
            for other in signed
        )
    }


def _cost(metric: str, value: float) -> float:
    """The figure with the sign that makes less of it better."""
    return -value if METRICS[metric].more else value
