"""All proofs, and what they say when they are run."""

from __future__ import annotations

import sys
import warnings

import click
from amaranth.hdl import UnusedElaboratable
from rich.table import Table

from sim.rtl.formal import Verdict
from sim.rtl.formal import prove as prove_harness
from sim.tools import console
from tests.force import applied

from . import (
    arithmetic,
    context,
    crc,
    crossings,
    layouts,
    lists,
    rings,
    streams,
    transport,
)
from .harness import Proof

__all__ = ["PROOFS", "method", "prove", "refute", "run"]

PROOFS = (
    *streams.PROOFS,
    *crossings.PROOFS,
    *lists.PROOFS,
    *arithmetic.PROOFS,
    *crc.PROOFS,
    *transport.PROOFS,
    *context.PROOFS,
    *layouts.PROOFS,
    *rings.PROOFS,
)


def run(proof: Proof) -> Verdict:
    """Return whether the property holds for the component as it is."""
    warnings.simplefilter("ignore", UnusedElaboratable)
    return prove_harness(proof.harness, depth=proof.depth, sweep=proof.sweep, seconds=400)


def refute(proof: Proof) -> Verdict:
    """Return the verdict on the component with the proof's own fault: it must not hold."""
    with applied(proof.broken):
        return run(proof)


def method(proof: Proof) -> str:
    """Return how far the proof reaches."""
    return "unbounded" if proof.depth is None else f"{proof.depth} cycles"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--list", "only_list", is_flag=True, help="Only show what is proved.")
@click.option("--broken", is_flag=True, help="Break each component first: proofs must fail.")
def prove(names: tuple[str, ...], only_list: bool, broken: bool) -> None:
    """Prove properties of small components for all inputs.

    Without names all of them. Exit status 1: one does not hold, or holds although it is broken.
    """
    known = {one.name: one for one in PROOFS}
    if unknown := [name for name in names if name not in known]:
        raise console.UsageStop(f"No proof is called {unknown[0]!r}; --list shows all")
    table = Table(title="Proofs", title_justify="left")
    for column in ("proof", "property", "reach", *([] if only_list else ["result"])):
        table.add_column(column, overflow="fold")
    if not only_list:
        table.add_column("seconds", justify="right")
    bad = 0
    with console.stops(), console.progress("Proofs") as show:
        for proof in [known[name] for name in names] or PROOFS:
            if only_list:
                table.add_row(proof.name, proof.says, method(proof))
                continue
            show(proof.name)
            verdict = refute(proof) if broken else run(proof)
            wrong = verdict.holds == broken
            bad += wrong
            text = "proved" if verdict.holds else f"refuted in cycle {verdict.cycle}"
            seconds = f"{verdict.seconds:.1f}"
            result = f"[bold red]{text}" if wrong else text
            table.add_row(proof.name, proof.says, method(proof), result, seconds)
    console.out.print(table)
    sys.exit(1 if bad else 0)
