"""``./rocinante faults``: deliberate faults in the gateware, each of which the suite must catch.

A fault is a signal of a component and what becomes of it (tests/force.py), or a piece of source
text and what to put in its place. They stand in the tables of ``tests/faults/rooms``. The command
applies them one by one to a copy of the work tree and runs the tests that have to fail then. The
work tree itself is never touched.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from sim.interop.guest import require_qemu
from sim.rtl import env
from sim.tools import console
from tests.faults import mutants as mutation
from tests.faults.catalogue import FAULT_ROOMS, FAULTS, campaign_faults, live, of_room
from tests.faults.fault import Fault
from tests.faults.mutants import ROOMS, TARGET, print_report, share
from tests.faults.workshop import FaultError, check, workshop

__all__ = ["faults", "markdown"]


def markdown(listed: Sequence[Fault] = FAULTS) -> str:
    """Return a list of faults as a table."""
    lines = ["| fault | what is wrong | where | tests that fail |", "|---|---|---|---|"]
    for one in listed:
        tests = [f"`{test}`" for test in one.tests]
        tests += ["`--interop`"] * one.live + ["`--campaign`"] * bool(one.campaign)
        lines.append(f"| `{one.name}` | {one.what} | `{one.where}` | {', '.join(tests)} |")
    return "\n".join(lines) + "\n"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--list", "only_list", is_flag=True, help="Only show the list (as Markdown).")
@click.option(
    "--interop", is_flag=True, help="Faults that an exchange with the Linux guest must notice."
)
@click.option("--campaign", is_flag=True, help="Faults that random scenarios must find.")
@click.option("-v", "--verbose", is_flag=True, help="Show the output of the failing tests.")
@click.option(
    "--mutants",
    type=click.IntRange(1),
    is_flag=False,
    flag_value=200,
    help="Generated mutants instead, so many (200).",
)
@click.option("--room", type=click.Choice(FAULT_ROOMS), help="Faults or mutants of one room.")
@click.option("--seed", type=int, default=1, help="Which mutants are sampled.")
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=console.writable,
    help="JSON file of mutants; goes on with what it holds.",
)
@click.option(
    "--limit", type=console.Finite(0, 10**7), help="Seconds after which no mutant is begun."
)
def faults(
    names: Sequence[str],
    only_list: bool,
    interop: bool,
    campaign: bool,
    verbose: bool,
    mutants: int | None,
    room: str | None,
    seed: int,
    record: Path | None,
    limit: float | None,
) -> None:
    """Break the gateware on purpose, fault by fault: does the test suite notice?

    Without names all faults are tried, which takes some minutes. Exit status 1: one was missed.
    With --mutants: less than nine in ten were caught.
    """
    if mutants:
        rooms = [one for one in ROOMS if room in (None, one.name)]
        if not rooms:
            raise console.UsageStop(
                f"No mutants are made of {room}, but of {', '.join(one.name for one in ROOMS)}"
            )
        with console.stops():
            env.require_compiler()
        with console.progress("Mutants") as show:
            tried = mutation.campaign(
                rooms=rooms, count=mutants, seed=seed, record=record, limit=limit, show=show
            )
        print_report(tried, seed)
        sys.exit(0 if share(tried) >= TARGET else 1)
    inside = FAULTS if room is None else of_room(room)
    if only_list:
        click.echo(markdown(inside), nl=False)
        return
    known = {one.name: one for one in _known(interop, campaign)}
    if unknown := [name for name in names if name not in known]:
        which = " that --interop tries" if interop else " that --campaign tries" * campaign
        raise console.UsageStop(f"No fault{which} is called {unknown[0]!r}; --list shows all")
    within = {one.name for one in inside}
    chosen = [known[name] for name in names or known if name in within]
    if not chosen:
        raise console.UsageStop(f"None of these faults is in the room {room}; --list shows all")
    with console.stops():
        env.require_compiler()
        if interop:
            require_qemu()
    if campaign:
        sys.exit(0 if _search(chosen) else 1)
    table = Table(title="Deliberate faults", title_justify="left")
    for column in ("fault", "result", "by"):
        table.add_column(column, overflow="fold")
    table.add_column("seconds", justify="right")
    bad = 0
    with console.progress("Faults") as show, workshop() as shop:
        for number, fault in enumerate(chosen, 1):
            by, seconds = "", ""
            place = f"{number} of {len(chosen)}"
            try:
                outcome = check(shop, fault, functools.partial(_show_at, show, place))
                by, seconds = "\n".join(outcome.by), f"{outcome.seconds:.0f}"
                result = "caught" if outcome.caught else "[bold red]MISSED"
                bad += not outcome.caught
                if outcome.by and outcome.unmoved:
                    by += f"\nnot by {', '.join(outcome.unmoved)}"
                if verbose and outcome.by:
                    console.err.print(outcome.text, markup=False, highlight=False)
            except FaultError as error:
                console.err.print(str(error), markup=False, highlight=False)
                result, bad = "[bold red]no result", bad + 1
            show(f"{place}: {fault.name}: {result.rpartition(']')[2]} {seconds} s")
            table.add_row(fault.name, result, Text(by), seconds)
    console.out.print(table)
    sys.exit(1 if bad else 0)


def _known(interop: bool, campaign: bool) -> Sequence[Fault]:
    """The faults that can be named."""
    if campaign:
        return list(campaign_faults().values())
    return live() if interop else FAULTS


def _search(chosen: Sequence[Fault]) -> bool:
    """Whether a campaign finds each of the faults."""
    from tests.faults.campaign import print_findings, put_in, search

    findings, good = [], True
    with console.progress("Faults") as show, workshop() as shop:
        put_in(shop)
        for fault in chosen:
            try:
                findings.append(search(shop, fault, show=show))
                good &= findings[-1].seed is not None
            except FaultError as error:
                console.err.print(str(error), markup=False, highlight=False)
                good = False
    print_findings(findings)
    return good


def _show_at(show: Callable[[str], None], place: str, text: str) -> None:
    show(f"{place}: {text}")


if __name__ == "__main__":
    faults(prog_name="python -m tests.faults.command")
