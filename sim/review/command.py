"""``./rocinante review``: what a reviewer reads of a card, and of a change to it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from hdl.config import NicConfig
from hdl.csr.texts import config_texts
from sim.make.core.settings import read_settings
from sim.make.site import mermaid as mermaid_script
from sim.review import collect as questions
from sim.review.diagram import flows, mermaid
from sim.review.differences import Verdict, differences
from sim.review.extra import read
from sim.review.page import page
from sim.rtl import env
from sim.tools import console, outputs

__all__ = ["review"]

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FILES = ("index.html", "review.json", "mermaid.js")


@click.command()
@click.option(
    "--config",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A card as `verilog` takes it; may be given again. Without one: the default card.",
)
@click.option("--base", metavar="REV", help="Show what differs from that revision of the checkout.")
@click.option(
    "--cost", type=_FILE, metavar="FILE", help="Of `synth --json`: which boards the card fits."
)
@click.option("--coverage", type=_FILE, metavar="FILE", help="Of `coverage --json`.")
@click.option("--mutants", type=_FILE, metavar="FILE", help="Of `faults --mutants --record`.")
@click.option("--commands", type=_FILE, metavar="FILE", help="Of `commands --json`: their times.")
@click.option("--check", is_flag=True, help="With --base: the status is 1 if anything is lost.")
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder for the site; default: review in the folder of all that is built.",
)
def review(
    files: tuple[Path, ...],
    base: str | None,
    check: bool,
    output: Path | None,
    **given: Path | None,
) -> None:
    """Write a site that a reviewer reads from top to bottom: index.html and review.json.

    It says what a card is, how fast, what it costs, which interfaces it has and what is shown of
    it, from what is recorded in the repository. With --base each as a difference.
    """
    with console.stops():
        if check and not base:
            raise ValueError("--check needs --base: it says what is lost since a revision")
        folder = output or env.build_root() / "review"
        cards = _cards(files)
        outputs.require_folder(folder, _FILES)
        measured = read(given)
    folder.mkdir(parents=True, exist_ok=True)
    facts = _facts(env.REPO, env.FILES, cards) | {"measured": measured}
    if "coverage" in measured:
        facts["coverage"] = measured["coverage"]
    for name, chosen in cards.items():
        card = facts["cards"][name]
        found = flows(NicConfig(**chosen))
        card |= {"flows": [flow.json for flow in found], "diagram": mermaid(found)}
    command = " ".join(
        ["./rocinante review", *(f"--config {file.name}" for file in files)]
        + ([f"--base {base}"] if base else [])
        + [f"--{name} {file.name}" for name, file in given.items() if file]
    )
    written: dict[str, Any] = {"facts": facts}
    more: dict[str, Any] = {}
    if base:
        before = _at(base, cards)
        found_differences = differences(before, facts)
        more = {"base": base, "base_facts": before, "found": found_differences}
        written |= {"base": before, "differences": [one.json for one in found_differences]}
    html = page(facts, config_texts(), head=_head(), command=command, **more)
    outputs.write_text(folder / "index.html", html)
    outputs.write_text(folder / "review.json", json.dumps(written, indent=1) + "\n")
    (folder / "mermaid.js").write_bytes(mermaid_script())
    if base:
        counts = Counter(one.verdict for one in more["found"])
        words = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict)
        click.echo(f"Differences from {base}: {words}")
    click.echo(folder / "index.html")
    if check and any(one.verdict == Verdict.LOST for one in more["found"]):
        raise SystemExit(1)


def _cards(files: tuple[Path, ...]) -> dict[str, dict[str, Any]]:
    """Return the cards by name, as the fields that differ from the default card's."""
    if not files:
        return {"the default card": {}}
    cards: dict[str, dict[str, Any]] = {}
    for file in files:
        config = read_settings(file).config
        cards[file.stem if file.stem not in cards else file.name] = {
            field.name: getattr(config, field.name)
            for field in fields(config)
            if getattr(config, field.name) != field.default
        }
    return cards


def _head() -> str:
    """Return what this tree is called: its commit, and whether it has been changed since."""
    if not env.CHECKOUT:
        return env.package_version("rocinante")
    try:
        return _git("describe", "--always", "--dirty", "--exclude=*").decode().strip()
    except (OSError, subprocess.CalledProcessError):
        return "this tree"


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=env.REPO, check=True, capture_output=True).stdout


def _facts(packages: Path, tree: Path, cards: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the facts of a tree, asked by a Python of its own that finds its packages."""
    path = dict.fromkeys([str(packages), str(tree)])
    done = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", questions.__file__, str(tree), json.dumps(cards)],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": ":".join(path), "PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"The tree in {tree} cannot be asked:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout)


def _at(revision: str, cards: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the facts of a revision, from a copy of its files."""
    if not env.CHECKOUT:
        raise console.UsageStop("--base needs a checkout: an installation has one revision")
    try:
        archive = _git("archive", "--format=tar", revision)
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()
        raise console.UsageStop(f"There is no revision {revision}: {said[-1]}") from None
    except OSError as error:
        raise console.UsageStop(f"--base needs git: {error}") from None
    with tempfile.TemporaryDirectory(prefix="rocinante-review-") as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
            packed.extractall(folder, filter="data")
        return _facts(Path(folder), Path(folder), cards)
