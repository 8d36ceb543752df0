"""Figures that were recorded, and what was measured against them.

The simulation is deterministic: the same gateware gives the same figures to the last digit. So the
recorded table, ``tests/data/perf.json``, says what the gateware has reached, and a change that
loses speed shows. The tables of docs/perf.md come from that file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sim.rtl.env import FILES

__all__ = ["FILE", "PAGE", "Recorded", "figures", "load", "page", "save", "verdict"]

FILE = FILES / "tests/data/perf.json"
PAGE = FILES / "docs/perf.md"
#: What a figure may lose, as a share of what was recorded.
TOLERANCE = 0.01
#: Between these lines the page is written by ``page``.
_BEGIN = "<!-- ./rocinante figures --page writes this table: {} -->"
_END = "<!-- end -->"
#: Parts of a WRITE's latency, ns: as ``perf`` names them.
_STAGES = ("doorbell_to_wire_ns", "wire_to_host_ns")
#: Packets of a round trip on the bad networks of the table: of 4 KiB, in 10 us.
_WINDOW = 30


@dataclass(frozen=True)
class Recorded:
    """A row of the table.

    command: behind ``./rocinante perf``. table: the page's table that it is in. quick: takes
    seconds, so the test suite measures it too. what: said beside it on the page. tolerance: what
    it may lose. figures: ``gbps mmsg_s ratio`` of a bandwidth, ``min p50 max`` in ns of a latency,
    of a WRITE's also the medians of its ``_STAGES``; none before the first recording.
    """

    command: str
    table: str
    quick: bool = False
    what: str = ""
    tolerance: float = TOLERANCE
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def latency(self) -> bool:
        """Whether less is better."""
        return self.command.split()[0].endswith("_lat")

    @property
    def optimum(self) -> float | None:
        """Gb/s that go-back-N can reach on a network that loses packets; None: it loses none.

        Each lost packet costs the line one round trip and itself, and nothing else does.
        """
        found = re.search(r"loss=([\d.]+)%", self.command)
        if not found:
            return None
        loss = float(found[1]) / 100
        share = (1 - loss) / (1 - loss + loss * (_WINDOW + 1))
        return share * self.figures["gbps"] / self.figures["ratio"]


def load(file: Path = FILE) -> list[Recorded]:
    """The rows of the table."""
    return [Recorded(**row) for row in json.loads(file.read_text())["rows"]]


def save(rows: Iterable[Recorded], file: Path = FILE) -> None:
    """Write the table anew."""
    text = json.dumps({"rows": [asdict(row) for row in rows]}, indent=1)
    file.write_text(text + "\n")


def figures(row: Recorded, facts: Mapping[str, Any]) -> Recorded:
    """``row`` with the figures of ``facts``, which is what ``perf --json`` writes."""
    if row.latency:
        found = {name: facts["latency_ns"][name] for name in ("min", "p50", "max")}
        found |= {name: facts[name]["p50"] for name in _STAGES if name in facts}
    else:
        found = {name: facts[name] for name in ("gbps", "mmsg_s", "ratio")}
    return replace(row, figures={name: round(value, 4) for name, value in found.items()})


def verdict(old: Recorded, new: Recorded) -> tuple[float, str]:
    """What was gained, as a share (a loss is below zero), and a line that says so."""
    name, unit = ("p50", "ns") if new.latency else ("gbps", "Gb/s")
    measured = new.figures[name]
    if not old.figures:
        return 0.0, f"{new.command}: measured {measured:.2f} {unit}, never recorded: record it"
    recorded = old.figures[name]
    gain = recorded / measured - 1 if new.latency else measured / recorded - 1
    line = f"{new.command}: recorded {recorded:.2f} {unit}, measured {measured:.2f} {unit}"
    if gain < -old.tolerance:
        return gain, f"LOSS of {-100 * gain:.1f} %: {line}"
    if gain > old.tolerance:
        return gain, f"gain of {100 * gain:.1f} %: {line}: record it"
    return gain, f"as recorded: {line}"


def _bandwidth(rows: Iterable[Recorded]) -> Iterator[str]:
    yield "| command | Gb/s | million/s | of the wire limit | |"
    yield "|---|---|---|---|---|"
    for row in rows:
        gbps, rate, ratio = (row.figures[name] for name in ("gbps", "mmsg_s", "ratio"))
        yield f"| `{row.command}` | {gbps:.2f} | {rate:.2f} | {100 * ratio:.1f} % | {row.what} |"


def _lossy(rows: Iterable[Recorded]) -> Iterator[str]:
    yield "| command | Gb/s | optimum, Gb/s | of the optimum | |"
    yield "|---|---|---|---|---|"
    for row in rows:
        gbps = row.figures["gbps"]
        if (best := row.optimum) is not None:
            share = f"{100 * gbps / best:.0f} %"
            yield f"| `{row.command}` | {gbps:.1f} | {best:.1f} | {share} | {row.what} |"


def _latency(rows: Iterable[Recorded]) -> Iterator[str]:
    yield (
        "| command | least, us | median, us | most, us | doorbell to line, ns | "
        "line to host write, ns | |"
    )
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        least, median, most = (row.figures[name] / 1000 for name in ("min", "p50", "max"))
        parts = [f"{row.figures[name]:.0f}" if name in row.figures else "" for name in _STAGES]
        yield (
            f"| `{row.command}` | {least:.2f} | {median:.2f} | {most:.2f} | {' | '.join(parts)} | "
            f"{row.what} |"
        )


def page(rows: Iterable[Recorded], text: str) -> str:
    """``text`` with each of its tables written anew; ValueError when the page lacks a table.

    Rows that were never recorded are left out.
    """
    tables: dict[str, list[Recorded]] = {}
    for row in (row for row in rows if row.figures):
        tables.setdefault(row.table, []).append(row)
    for name, members in tables.items():
        begin, found, rest = text.partition(_BEGIN.format(name))
        _, closed, rest = rest.partition(_END)
        if not found or not closed:
            raise ValueError(f"The page has no place for the table {name!r}")
        first = members[0]
        kind = _latency if first.latency else _bandwidth if first.optimum is None else _lossy
        lines = kind(members)
        text = "\n".join((begin + found, "", *lines, "", _END)) + rest
    return text
