"""Draws scenarios: the same name and seed give the same one, without any simulation."""

from __future__ import annotations

import random

from sim.bench.scenario.draw_basics import Draw
from sim.bench.scenario.draw_heavy import Heavy
from sim.bench.scenario.draw_operations import Mkeys, Operations, Placement
from sim.bench.scenario.draw_services import Dynamic, Functions, Pieces, Services, Shared, Xrc
from sim.bench.scenario.plan import Scenario
from sim.models.impairments import Impairments

__all__ = ["ALONE", "KINDS", "NAMES", "draw"]

#: Kinds of scenarios and how often ``mixed`` takes each.
KINDS = {"network": 8, "lifecycle": 5, "errors": 5, "peers": 3, "guests": 2}
#: Kinds that ``mixed`` does not take: each is a campaign of its own.
ALONE: dict[str, type[Draw]] = {
    "operations": Operations,
    "placement": Placement,
    "mkeys": Mkeys,
    "shared": Shared,
    "xrc": Xrc,
    "pieces": Pieces,
    "dynamic": Dynamic,
    "services": Services,
    "heavy": Heavy,
    "functions": Functions,
}
#: Names of campaigns.
NAMES = ("mixed", *KINDS, *ALONE)


def draw(name: str, seed: int, impair: str = "") -> Scenario:
    """Return scenario ``seed`` of the campaign ``name``; ValueError if there is no such name.

    impair: the network of both directions, as ``Impairments`` reads it; without it one is drawn.
    """
    if name not in NAMES:
        raise ValueError(f"No campaign is called {name!r}; there are {', '.join(NAMES)}")
    rng = random.Random(f"{name} {seed}")
    kind = name if name != "mixed" else rng.choices(list(KINDS), list(KINDS.values()))[0]
    given = Impairments.parse(impair) if impair else None
    return ALONE.get(kind, Draw)(rng, kind, given).scenario(name, seed)
