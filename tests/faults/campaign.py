"""Deliberate faults that random scenarios must find: ``./rocinante faults --campaign``."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

from sim.campaign.store import Result, Store
from sim.tools import console
from tests.faults.catalogue import campaign_faults
from tests.faults.fault import INSTALLS, Fault
from tests.faults.workshop import FaultError, Workshop

__all__ = ["SEEDS", "Finding", "print_findings", "put_in", "search"]

#: A fault must be found within so many seeds of its campaign.
SEEDS = 200
#: What tells the gateware the number of the fault.
CHOICE = "tests/faults/fault_choice.sv"
#: Real time for the model and the seeds, s.
LIMIT_S = 3600


@dataclass(frozen=True)
class Finding:
    """What a campaign said of a fault: the first seed that failed, if one did."""

    fault: Fault
    seed: int | None
    failure: str
    seconds: float


def put_in(shop: Workshop) -> None:
    """Put all faults of a campaign into the sources; a simulation chooses one by its number."""
    for place in {fault.place for fault in campaign_faults().values()}:
        path = shop.folder / place
        install = f"{INSTALLS}catalogue.install_chosen({place!r})\n"
        path.write_text(f"{path.read_text()}\n\n{install}")
    # Of the hand-written Verilog below hdl/ a model takes what its gateware names.
    shutil.copy2(shop.folder / CHOICE, shop.folder / "hdl")


def search(
    shop: Workshop, fault: Fault, seeds: int = SEEDS, show: Callable[[str], None] = lambda _: None
) -> Finding:
    """Run a campaign with the fault, until a seed fails; the same seed must pass without it.

    ``put_in`` comes first. Raises FaultError when the campaign cannot be run with the fault, or the
    seed fails without it.
    """
    number = next(number for number, one in campaign_faults().items() if one.name == fault.name)
    show(f"{fault.name}: with the fault")
    status, text, seconds, failed = _run(shop, fault, number, ["--seeds", str(seeds), "--stop"])
    if status not in (0, 1) or (status == 1) != bool(failed):
        raise FaultError(f"With the fault {fault.name} no campaign can be run:\n{text[-4000:]}")
    if not failed:
        return Finding(fault, None, "", seconds)
    first = failed[0]
    show(f"{fault.name}: seed {first.seed} without it")
    status, text, _, _ = _run(shop, fault, 0, ["--first", str(first.seed), "--seeds", "1"])
    if status:
        raise FaultError(f"Without any fault seed {first.seed} fails:\n{text[-4000:]}")
    return Finding(fault, first.seed, first.failure, seconds)


def _run(
    shop: Workshop, fault: Fault, number: int, options: Sequence[str]
) -> tuple[int, str, float, list[Result]]:
    """Run the campaign of a fault, with the one of that number in the cards (0: none): status,
    output, seconds, the seeds that failed."""
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "campaign.sqlite"
        command = [
            sys.executable,
            "-m",
            "sim.tools.cli",
            "campaign",
            fault.campaign,
            f"--db={db}",
            *options,
        ]
        if workers := os.environ.get("ROCINANTE_WORKERS"):
            command.append(f"--workers={workers}")
        status, text, seconds = shop.execute(
            command, LIMIT_S, {"ROCINANTE_PLUSARGS": f"+fault={number}"}
        )
        if not db.exists():
            return status, text, seconds, []
        with closing(Store(db)) as store:
            failed = [result for result in store.all() if not result.passed]
        return status, text, seconds, failed


def print_findings(findings: Sequence[Finding]) -> None:
    """Print them as a table."""
    table = Table(title="Faults found by campaigns", title_justify="left")
    for column in ("fault", "campaign", "seed", "by"):
        table.add_column(column, overflow="fold")
    table.add_column("seconds", justify="right")
    for one in findings:
        seed = "[bold red]MISSED" if one.seed is None else str(one.seed)
        failure = one.failure.partition("\n")[0]
        table.add_row(one.fault.name, one.fault.campaign, seed, Text(failure), f"{one.seconds:.0f}")
    console.out.print(table)
