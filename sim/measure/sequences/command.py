"""The command line of ``rocinante sequences``."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from hdl.config import NicConfig
from sim.measure.sequences.story import LANES
from sim.rtl import env
from sim.tools import console, outputs

__all__ = ["FILE", "play", "sequences"]

#: What is recorded; ``review`` draws it.
FILE = env.FILES / "tests/data/sequences.json"
#: Data path of the recorded cards, bits: that of the recorded figures (docs/perf.md).
WIDTH = 512
#: Real time for the simulation, s.
TIMEOUT_S = 3600.0


@click.command()
@click.option("--record", is_flag=True, help="Keep what was seen in the repository.")
@console.json_option
def sequences(record: bool, json_file: Path | None) -> None:
    """Show who tells whom what: a WRITE, a SEND, a READ, what is lost, a connection.

    Two cards play each scene; host ports and line are looked at.
    """
    with console.stops():
        env.require_compiler()
        if record:
            outputs.require_file(FILE)
    try:
        with console.progress(f"Building two NICs at {WIDTH} bits") as say:
            found = play(say)
    except (env.BuildError, AssertionError) as error:
        raise click.ClickException(str(error)) from None
    console.write_json(json_file, found)
    if record:
        outputs.write_text(FILE, text(found))
    if str(json_file) != "-":
        for name, steps in found["scenes"].items():
            click.echo(f"\n{name}")
            for line in lines(steps):
                click.echo(f"  {line}")


def play(say: Any = lambda text: None) -> dict[str, Any]:
    """Play all scenes: ``lanes``, ``width`` and ``scenes``, which has the steps of each by name.

    A step has ``ns`` from the scene's begin, ``from`` and ``to``, numbers of ``lanes``, and
    ``text``; of a packet also ``until`` and perhaps ``lost``; of several equal ones ``times`` and
    when the ``last`` was. Raises BuildError, AssertionError.
    """
    from sim.bench import testbench
    from sim.bench.job import run_job

    model = testbench.build(config=NicConfig(width=WIDTH))
    with tempfile.TemporaryDirectory() as folder:
        spec = {"width": WIDTH, "folder": folder}
        facts, _ = run_job(model, "sim.measure.sequences.bench", spec, say, TIMEOUT_S, seed=1)
    return {"lanes": list(LANES), "width": WIDTH, "scenes": facts["scenes"]}


def text(found: Mapping[str, Any]) -> str:
    """Return the text of the file: a line for each step."""
    scenes = ",\n".join(
        f"  {json.dumps(name)}: [\n"
        + ",\n".join(f"   {json.dumps(step)}" for step in steps)
        + "\n  ]"
        for name, steps in found["scenes"].items()
    )
    lanes = json.dumps(found["lanes"])
    return (
        f'{{\n "lanes": {lanes},\n "width": {found["width"]},\n "scenes": {{\n{scenes}\n }}\n}}\n'
    )


def lines(steps: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The steps of a scene as a person reads them."""
    for step in steps:
        source, target = LANES[step["from"]], LANES[step["to"]]
        way = source if source == target else f"{source} -> {target}"
        more = f", {step['times']} times" if "times" in step else ""
        more += ", lost" if "lost" in step else ""
        yield f"{step['ns']:>9,.0f} ns  {way:<20} {step['text']}{more}"
