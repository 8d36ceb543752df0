"""What a review is given beside the tree: costs, coverage, mutants and times of commands.

Each is the JSON of another command, because it takes minutes to hours to find out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from boards.devices import DEVICES

__all__ = ["GIVEN", "fits", "read", "tried"]

#: Option of ``review`` -> the command whose JSON it takes.
GIVEN = {
    "cost": "./rocinante synth --room nic --json FILE",
    "coverage": "./rocinante coverage --json FILE",
    "mutants": "./rocinante faults --mutants --record FILE",
    "commands": "./rocinante commands --json FILE",
}
#: What ``fits`` compares.
RESOURCES = ("lut", "ff", "bram", "uram", "dsp")


def read(files: Mapping[str, Path | None]) -> dict[str, Any]:
    """Return what the files hold, of those that were given. Raises ValueError that names a file
    which is no output of its command."""
    found: dict[str, Any] = {}
    for name, file in files.items():
        if file is None:
            continue
        try:
            facts = json.loads(file.read_text())
            found[name] = _READERS[name](facts)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(f"{file} is no JSON of `{GIVEN[name]}`: {error!r}") from None
    return found


def fits(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cost of all parts of ``synth --json``, and of each device of that family the share
    that it takes of each resource, and whether all are there."""
    parts, family = facts["parts"], facts["family"]
    cost = {name: sum(part["resources"][name] for part in parts) for name in RESOURCES}
    devices = []
    for device in DEVICES:
        if device.family != family:
            continue
        there = {name: getattr(device, name) for name in RESOURCES}
        shares = {
            name: round(cost[name] / there[name], 3) if there[name] else float(cost[name] > 0)
            for name in RESOURCES
        }
        fitting = all(cost[name] <= there[name] for name in RESOURCES)
        devices.append(
            {"board": device.board, "device": device.name, "source": device.source}
            | {"there": there, "shares": shares, "fits": fitting}
        )
    return {
        "parts": [part["name"] for part in parts],
        "config": facts["config"],
        "family": family,
        "cost": cost,
        "devices": devices,
    }


def tried(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what became of the mutants of ``faults --record``, by room, and those that survived.

    The share is that of the caught among those that are not equivalent.
    """
    rooms, survivors = {}, []
    for key, mutants in facts.items():
        room = key.split()[0]
        counts = Counter(one["result"] for one in mutants)
        real = len(mutants) - counts["equivalent"]
        rooms[room] = {
            "tried": len(mutants),
            **{name: counts[name] for name in ("caught", "equivalent", "survived")},
            "share": counts["caught"] / real if real else 1.0,
        }
        survivors += [
            {"room": room, "mutant": one["mutant"]}
            for one in mutants
            if one["result"] == "survived"
        ]
    return {"rooms": rooms, "survivors": survivors}


def _covered(facts: Mapping[str, Any]) -> dict[str, Any]:
    rows = [
        {"what": row["what"], "bins": int(row["bins"]), "missing": list(row["missing"])}
        for row in facts["rows"]
    ]
    return {"simulations": facts["simulations"], "rows": rows}


def _timed(facts: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: row[name] for name in ("what", "us", "rate", "reads", "writes")} for row in facts
    ]


_READERS: dict[str, Callable[[Any], Any]] = {
    "cost": fits,
    "coverage": _covered,
    "mutants": tried,
    "commands": _timed,
}
