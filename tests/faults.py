"""Deliberate faults in the gateware, each of which the suite must catch.

A fault is a signal of a component and what becomes of it (tests/force.py), or a piece of source
text and what to put in its place. ``./rocinante faults`` applies them one by one to a copy of the
work tree and runs the tests that have to fail then. The work tree itself is never touched.
"""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from xml.etree import ElementTree

import click
from rich.table import Table
from rich.text import Text

from sim.interop.guest import require_qemu
from sim.rtl import env
from sim.tools import console
from sim.tools.checkout import copy_work_tree
from tests import mutants as mutation
from tests.fault_list import FAULTS, INTEROP, Fault, campaign_faults
from tests.mutants import ROOMS, TARGET, print_report, share

__all__ = ["FAULTS", "FaultError", "Outcome", "Workshop", "check", "faults", "live", "markdown"]

#: Seconds after which a run of tests is ended; every simulation has a deadline of its own.
TIME_LIMIT = 900

#: What pytest writes about a test that found something wrong, and not merely something broken.
_FOUND = ("AssertionError", "assert ", "Failed: ")


class FaultError(RuntimeError):
    """The list and the sources, or the tests as they are, do not agree."""


@dataclass(frozen=True)
class Outcome:
    """What the tests said. ``by``: those that failed by an assertion (cocotb's own, if it was one
    of a simulation). ``unmoved``: what was named, and passed."""

    passed: bool
    by: tuple[str, ...]
    seconds: float
    text: str
    unmoved: tuple[str, ...] = ()

    @property
    def caught(self) -> bool:
        """Whether everything that was named failed properly."""
        return bool(self.by) and not self.unmoved


class Workshop:
    """A copy of the work tree in which faults can be made; its tests run with this Python.

    Compiled models are shared with the ordinary build folder (they are known by their contents);
    generated Verilog and logs have a folder of their own. Runs of unchanged tests are remembered.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._build = env.build_root() / "faults"
        self._sound: set[str] = set()
        copy_work_tree(folder)
        self._build.mkdir(parents=True, exist_ok=True)
        for shared in ("models", "runtime", "guest"):
            (env.build_root() / shared).mkdir(exist_ok=True)
            if not (link := self._build / shared).is_symlink():
                link.symlink_to(Path("..") / shared)

    def sound(self, tests: tuple[str, ...]) -> None:
        """Run ``tests`` on unchanged sources, each once; raises FaultError when one fails."""
        for test in tests:
            if test not in self._sound:
                outcome = self._run(test)
                if not outcome.passed:
                    raise FaultError(f"Without any fault {test} fails:\n{outcome.text[-4000:]}")
                self._sound.add(test)

    def faulty(self, fault: Fault) -> Outcome:
        """Run each of a fault's tests with the fault, then put the source back.

        Ends at one that fails for a reason that shows nothing.
        """
        path = self.folder / fault.place
        original = path.read_text()
        found: list[Outcome] = []
        try:
            path.write_text(fault.apply(original))
            for test in fault.tests:
                found.append(self._run(test))
                if not (found[-1].passed or found[-1].by):
                    return found[-1]
        finally:
            path.write_text(original)
        return Outcome(
            passed=all(one.passed for one in found),
            by=tuple(dict.fromkeys(name for one in found for name in one.by)),
            seconds=sum(one.seconds for one in found),
            text="\n".join(one.text for one in found),
            unmoved=tuple(test for test, one in zip(fault.tests, found, strict=True) if one.passed),
        )

    def _run(self, test: str) -> Outcome:
        report = self.folder / "faults-report.xml"
        report.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        command += [f"--junitxml={report}", test]
        status, text, seconds = self.execute(command)
        by = _failed(report) if status == 1 and report.exists() else ()
        return Outcome(status == 0, by, seconds, text)

    def execute(
        self,
        command: Sequence[str],
        limit_s: float = TIME_LIMIT,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[int, str, float]:
        """Run a command in the copy, with ``more`` in its environment.

        Returns its status (-1 after ``limit_s``), output and seconds.
        """
        started = time.monotonic()
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self._environment() | more,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = process.wait(limit_s)
            except BaseException as stopped:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if not isinstance(stopped, subprocess.TimeoutExpired):
                    raise
                status = -1
            output.seek(0)
            text = output.read()
        return status, text, time.monotonic() - started

    def _environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTEST_", "COCOTB_", "ROCINANTE_"))
        }
        return kept | {
            "PYTHONPATH": str(self.folder),
            # Compiled files are known by size and second: a fault of the same length would be lost.
            "PYTHONDONTWRITEBYTECODE": "1",
            "ROCINANTE_BUILD_DIR": str(self._build),
            "ROCINANTE_JOBS": str(env.compile_jobs()),
        }


@contextmanager
def workshop() -> Iterator[Workshop]:
    """Yield a workshop in a fresh temporary folder."""
    with tempfile.TemporaryDirectory(prefix="rocinante-faults-") as folder:
        yield Workshop(Path(folder))


def check(shop: Workshop, fault: Fault, show: Callable[[str], None] = lambda _: None) -> Outcome:
    """Run one fault: its tests must pass without it; returns what they said with it.

    Raises FaultError when they fail without it, or when they fail with it for a reason that shows
    nothing: the gateware could not be generated or built, or the tests could not be run.
    """
    show(f"{fault.name}: unchanged")
    shop.sound(fault.tests)
    show(f"{fault.name}: with the fault")
    outcome = shop.faulty(fault)
    if not outcome.passed and not outcome.by:
        text = outcome.text[-4000:]
        raise FaultError(f"With the fault {fault.name} no test failed properly:\n{text}")
    return outcome


def live() -> list[Fault]:
    """Return the faults that an exchange with the Linux guest must notice, with that test."""
    return [replace(one, tests=(INTEROP,)) for one in FAULTS if one.live]


def markdown() -> str:
    """Return the list as the table of docs/testing.md."""
    lines = ["| fault | what is wrong | where | tests that fail |", "|---|---|---|---|"]
    for one in FAULTS:
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
@click.option("--room", type=click.Choice([room.name for room in ROOMS]), help="Mutants of one.")
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
        with console.stops():
            env.require_compiler()
        with console.progress("Mutants") as show:
            tried = mutation.campaign(
                rooms=rooms, count=mutants, seed=seed, record=record, limit=limit, show=show
            )
        print_report(tried, seed)
        sys.exit(0 if share(tried) >= TARGET else 1)
    if only_list:
        click.echo(markdown(), nl=False)
        return
    known = {one.name: one for one in _known(interop, campaign)}
    if unknown := [name for name in names if name not in known]:
        which = " that --interop tries" if interop else " that --campaign tries" * campaign
        raise console.UsageStop(f"No fault{which} is called {unknown[0]!r}; --list shows all")
    chosen = [known[name] for name in names] or list(known.values())
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
    from tests.fault_campaign import print_findings, put_in, search

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


def _failed(report: Path) -> tuple[str, ...]:
    """Return the names of the tests that found something wrong, from pytest's report."""
    names: list[str] = []
    for case in ElementTree.parse(report).iter("testcase"):
        for failure in case.iter("failure"):
            if failure.get("message", "").startswith(_FOUND):
                names += _inside(failure.text or "") or [case.get("name", "?")]
    return tuple(names)


def _inside(text: str) -> list[str]:
    """Return the cocotb tests that a failed run names, in the form of sim.rtl.build's report."""
    begin = re.search(r"^(E +)AssertionError: Simulation failed", text, re.MULTILINE)
    if begin is None:
        return []
    report = text[begin.end() :].partition("The end of ")[0]
    return re.findall(rf"^{begin[1]}  (\S+): ", report, re.MULTILINE)


if __name__ == "__main__":
    faults(prog_name="python -m tests.faults")
