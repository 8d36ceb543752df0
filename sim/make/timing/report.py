"""``./rocinante timing BOARD``: the estimate as tables and JSON, and as a row of docs/timing.md."""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from sim.make.sta.delays import Delay, Delays
from sim.make.sta.nets import FAN_OUT
from sim.make.sta.timing import CORNERS
from sim.make.synth.report import mapped, netlist_of
from sim.make.timing.cards import CARDS, Card
from sim.make.timing.estimate import estimate
from sim.rtl import env
from sim.rtl.env import FILES, BuildError
from sim.tools import console

FILE = FILES / "tests" / "data" / "timing.json"
PAGE = FILES / "docs" / "timing.md"

#: The page's generated part stands between these lines.
BEGIN = "<!-- From tests/data/timing.json by ./rocinante timing BOARD --update -->"
END = "<!-- End of what is generated -->"


def run(name: str, json_file: Path | None, *, earlier: Path | None, record: bool) -> int:
    """Estimate the clock of a board and print it; returns the exit status.

    json_file: gets the same as JSON. earlier: the folder of a netlist of the board's configuration
    that was mapped before, perhaps of older gateware. record: keep it in ``FILE``, and in the page.
    """
    card = CARDS[name]
    try:
        with console.stops(), console.progress("Synthesis") as say:
            facts = measure(card, say, earlier)
    except BuildError as error:
        console.err.print(str(error), style="red", markup=False, highlight=False)
        return 1
    console.write_json(json_file, facts)
    if str(json_file) != "-":
        console.out.print(board(card, facts), markup=False, highlight=False, soft_wrap=True)
    if record:
        sets = load() | {name: facts}
        FILE.write_text(json.dumps({key: sets[key] for key in sorted(sets)}, indent=1) + "\n")
        write_page()
    return 0


def measure(card: Card, say: Any, earlier: Path | None = None) -> dict[str, Any]:
    """Map a board's NIC, unless it was or ``earlier`` has a netlist of it, and estimate.

    Raises BuildError for no figures.
    """
    part = card.part
    folder = earlier or mapped(part, card.family, say)[0]
    say("estimating")
    found = netlist_of(folder, part.name)
    return {
        "family": card.family,
        "config": asdict(card.config),
        "tool": f"Yosys {env.package_version('pyosys')}",
        "netlist": folder.name,
        "earlier": earlier is not None,
        **estimate(found, card.family, card.delays, card.config.clock_hz),
    }


def show(name: str, json_file: Path | None) -> int:
    """Print what is recorded of a board; returns the exit status."""
    facts = load().get(name)
    if facts is None:
        console.err.print(f"Nothing is recorded of {name}", style="red", markup=False)
        return 1
    console.write_json(json_file, facts)
    if str(json_file) != "-":
        text = board(CARDS[name], facts)
        console.out.print(text, markup=False, highlight=False, soft_wrap=True)
    return 0


def load() -> dict[str, dict[str, Any]]:
    """Return board -> its recorded facts; nothing when there are none yet."""
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def write_page() -> None:
    """Put the tables of what is recorded into the page."""
    before, _begin, rest = PAGE.read_text().partition(BEGIN)
    _old, _end, after = rest.partition(END)
    PAGE.write_text(f"{before}{generated(load())}{after}")


def generated(sets: dict[str, dict[str, Any]]) -> str:
    """Return the generated part of the page, with the lines around it."""
    parts = [BEGIN, "## All boards", _summary(sets)]
    parts += [_prose(f"{card.title}: {card.note}") for card in CARDS.values()]
    return "\n\n".join([*parts, END])


def tables() -> str:
    """Return the delays of each family with their sources, which the site shows on the page."""
    models = {card.delays.title: card.delays for card in CARDS.values()}
    parts = [f"### {title}\n\n{_delays(delays)}" for title, delays in models.items()]
    return "\n\n".join(parts) + "\n"


def board(card: Card, facts: dict[str, Any]) -> str:
    """Return the tables of one board."""
    missed, ends = facts["missed"], facts["ends"]
    older = " It was mapped earlier, perhaps from older gateware." if facts["earlier"] else ""
    tables = [
        _prose(
            f"Clock: {facts['clock_mhz']:g} MHz. Model: {card.delays.title}. Family of cells: "
            f"{card.family}. Netlist: {facts['netlist']}.{older}"
        ),
        _table(
            ["", *CORNERS],
            [
                ["estimated Fmax, MHz", *(facts["fmax_mhz"][corner] for corner in CORNERS)],
                ["registers and memories that miss the clock", *map(missed.get, CORNERS)],
                ["... of all, %", *(f"{100 * missed[one] / ends:.1f}" for one in CORNERS)],
            ],
        ),
        "Slowest paths:",
        _table(
            ["from", "to", "levels", *(f"{corner}, ns" for corner in CORNERS), "components"],
            [
                [_code(path["start"]), _code(path["end"]), path["levels"]]
                + [f"{path[corner] / 1000:.2f}" for corner in CORNERS]
                + [", ".join(path["through"])]
                for path in facts["paths"]
            ],
        ),
        "To be pipelined first: components in which paths end that miss the clock (usual).",
        _table(
            [
                *("component", *(f"miss it {corner}" for corner in CORNERS)),
                *("slowest, ns", "levels", "from", "to"),
            ],
            [
                [
                    *(row["component"], *(row[corner] for corner in CORNERS)),
                    *(f"{row['worst'] / 1000:.2f}", row["levels"]),
                    *(_code(row["start"]), _code(row["end"])),
                ]
                for row in facts["first"]
            ],
        ),
        "Inputs of registers and memories by levels:",
        _levels(facts["levels"]),
        _prose(
            f"Nets of more than {FAN_OUT} inputs: {facts['wide']}, by what drives them: "
            f"{_counts(facts['wide_by_driver']) or 'none'}. The widest:"
        ),
        _table(
            ["net", "inputs", "driven by", "most of them"],
            [
                [_code(net["name"]), net["fan_out"], net["driver"], f"{net['pins']} {net['pin']}"]
                for net in facts["nets"]
            ],
        ),
        f"Memories deeper than one block: {facts['deep']}.",
        _table(
            ["memory", "blocks", "of", "behind one another", "rows of a block or column"],
            [
                [_code(one["name"]), one["blocks"], one["type"], one["column"], one["rows"]]
                for one in facts["memories"]
            ],
        ),
    ]
    return "\n\n".join(tables)


def _summary(sets: dict[str, dict[str, Any]]) -> str:
    rows = []
    for name, card in CARDS.items():
        facts = sets.get(name)
        if facts is None:
            rows.append(
                [
                    card.title,
                    f"{card.config.clock_hz / 1e6:g}",
                    *["not measured"] * (len(CORNERS) + 4),
                ]
            )
            continue
        levels = [max(map(int, facts["levels"][one]), default=0) for one in ("register", "ram")]
        share = 100 * facts["missed"]["usual"] / facts["ends"]
        rows.append(
            [card.title, f"{facts['clock_mhz']:g}"]
            + [facts["fmax_mhz"][corner] for corner in CORNERS]
            + [f"{share:.1f} %", f"{levels[0]}, {levels[1]}", facts["wide"], facts["deep"]]
        )
    heads = ["board", "clock, MHz", *(f"Fmax {corner}, MHz" for corner in CORNERS)]
    heads += ["miss it, usual", "levels from registers, from RAM"]
    return _table([*heads, f"nets above {FAN_OUT}", "deep memories"], rows)


def _delays(delays: Delays) -> str:
    rows = []
    for field in fields(delays):
        delay = getattr(delays, field.name)
        if isinstance(delay, Delay):
            source = delay.source or "Assumption"
            reason = f" ({delay.reason})" if delay.reason else ""
            name = field.name.replace("_", " ")
            rows.append([name, delay.near, delay.usual, delay.far, source + reason])
    return _table(["ps", "near", "usual", "far", "source"], rows)


def _levels(levels: dict[str, dict[str, int]]) -> str:
    highest = max((int(level) for some in levels.values() for level in some), default=0)
    heads = [str(level) for level in range(highest + 1)]
    rows = [
        [f"from a {title}", *(levels[one].get(level, 0) for level in heads)]
        for one, title in (("register", "register"), ("ram", "RAM"))
    ]
    return _table(["", *heads], rows)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _prose(text: str) -> str:
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def _code(name: str) -> str:
    return f"`{name}`"


def _table(heads: list[str], rows: list[list[Any]]) -> str:
    if not rows:
        return "None."
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
