"""Generated mutants: how many of them do the tests of their rooms catch?

A room's tests run once without a mutant, which tells what they simulate. Each simulation then runs
again with a mutant (mutate.py) until one of its cases fails. The tests do not know of it.
"""

from __future__ import annotations

import json
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from rich.table import Table

from sim.rtl import build
from sim.rtl.env import build_root
from sim.rtl.simulate import Call, simulate
from sim.rtl.verilog import Rtl, digest
from sim.tools import console
from tests.faults.mutate import Mutant, equivalent, mutated

__all__ = ["ROOMS", "TARGET", "Campaign", "Room", "Tried", "campaign", "print_report", "share"]

#: The share of the mutants that the tests have to catch.
TARGET = 0.9

_QUEUES = "tests/queues/test_queues.py::test_engine[{}-64]"


@dataclass(frozen=True)
class Room:
    """A top module that room benches simulate, and the tests that see each submodule of it.

    ``proof_s``: seconds for each proof that a mutant is equivalent; with 0 none is tried.
    """

    name: str
    top: str
    parts: dict[str, tuple[str, ...]]
    proof_s: int = 60


ROOMS = (
    Room("transport", "receive_side", {"receive": ("tests/transport/test_receive.py",)}),
    Room(
        "memory",
        "room",
        {
            "gather": ("tests/memory/test_memory.py::test_room[64-gather]",),
            "scatter": ("tests/memory/test_memory.py::test_room[64-scatter]",),
        },
    ),
    Room(
        "queues",
        "queues_top",
        {
            "send": tuple(
                _QUEUES.format(one) for one in ("send_mixed", "send_errors", "in_order", "send")
            ),
            "recv": (_QUEUES.format("recv_mixed"), _QUEUES.format("recv")),
            "completion": (_QUEUES.format("completion"), _QUEUES.format("completion_errors")),
            "control": (_QUEUES.format("control"),),
        },
    ),
)


@dataclass
class Tried:
    """What became of a mutant: ``caught``, ``survived`` or ``equivalent``; by which test, in how
    many seconds."""

    room: str
    mutant: Mutant
    result: str = ""
    by: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class _Run:
    """A simulation that a test has asked for, and how long it takes without a mutant."""

    model: Path
    top: str
    call: Call
    seconds: float
    processor_s: float


class Campaign:
    """The mutants of one room: made, run and proved. ``found``: what is known, by number."""

    def __init__(self, room: Room, count: int, seed: int, found: dict[int, Tried]) -> None:
        self.room, self._count, self._seed, self.found = room, count, seed, found
        self._source = Path()
        self._commands = ""
        self._mutants: list[Mutant] = []
        self._runs: dict[str, list[_Run]] = {}

    def prepare(self) -> None:
        """Make the mutants, compile the model and run the room's tests on it without any.

        Raises AssertionError when one fails.
        """
        for tests in self.room.parts.values():
            for test in tests:
                self._runs[test] = []
                with self._replaced(self._runs[test]):
                    slow = ["--slow"] if "::" in test else []  # one that is named may be slow
                    status = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-n0", *slow, test])
                if status or not self._runs[test]:
                    raise AssertionError(f"Without any mutant {test} fails, or simulates nothing")

    def run(self) -> Iterator[Tried]:
        """Yield what the tests say about each mutant, those first that are known."""
        for mutant in self._mutants:
            if mutant.number not in self.found:
                self.found[mutant.number] = self._try(mutant)
            yield self.found[mutant.number]

    def prove(self) -> None:
        """Look for survivors that are no faults."""
        left = [one.mutant for one in self.found.values() if one.result == "survived"]
        if left and self.room.proof_s:
            for number in equivalent(
                self._source, self.room.top, self._commands, left, self.room.proof_s
            ):
                self.found[number].result = "equivalent"

    def _try(self, mutant: Mutant) -> Tried:
        tried = Tried(self.room.name, mutant, "survived")
        started = time.monotonic()
        part = mutant.module.removeprefix(f"{self.room.top}.").split(".")[0]
        for test in self.room.parts[part]:
            for one in self._runs[test]:
                if by := _fails(one, mutant.number):
                    tried.result, tried.by = "caught", f"{test}: {by}"
                    break
            if tried.by:
                break
        tried.seconds = round(time.monotonic() - started, 1)
        return tried

    @contextmanager
    def _replaced(self, runs: list[_Run]) -> Iterator[None]:
        """Inside, tests get the Verilog with the mutants; what they simulate is noted."""
        original = build.sources

        def sources(rtl: Rtl) -> list[Path]:
            first, *others = original(rtl)
            return [self._mutate(first) if rtl.name == self.room.top else first, *others]

        def note(model: Path, top: str, call: Call, folder: Path) -> str:
            started, used = time.monotonic(), _processor_s()
            problem = simulate(model, top, call, folder)
            if top == self.room.top:
                seconds = time.monotonic() - started
                runs.append(_Run(model, top, call, seconds, _processor_s() - used))
            return problem

        with mock.patch.multiple(build, sources=sources, simulate=note):
            yield

    def _mutate(self, source: Path) -> Path:
        if self._source != source:
            text, self._commands, self._mutants = mutated(
                source, self.room.top, tuple(self.room.parts), self._count, self._seed
            )
            self._source = source
            self._mutated = build_root() / "mutants" / f"{self.room.top}-{digest(text)}.sv"
            self._mutated.parent.mkdir(parents=True, exist_ok=True)
            self._mutated.write_text(text)
        return self._mutated


def _processor_s() -> float:
    """Seconds of processor time of all processes that have been started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _fails(run: _Run, number: int) -> str:
    """Run a simulation with a mutant; returns what failed first, or nothing."""
    call = replace(
        run.call,
        plusargs=(*run.call.plusargs, f"+mutant={number}"),
        extra_env={**run.call.extra_env, "COCOTB_MAX_FAILURES": "1"},
        timeout_s=20 + 4 * run.seconds,
        processor_s=10 + 3 * run.processor_s,
    )
    with tempfile.TemporaryDirectory(prefix="rocinante-mutants-") as name:
        problem = simulate(run.model, run.top, call, Path(name))
        cases = build.read_cases(Path(name, "results.xml"))
    failed = [one.name for one in cases if not one.passed]
    return ", ".join(failed) or problem


def campaign(
    *,
    rooms: Sequence[Room],
    count: int,
    seed: int,
    record: Path | None,
    limit: float | None,
    show: Callable[[str], None],
) -> list[Tried]:
    """Try ``count`` mutants, as many in each of the ``rooms``; returns what became of them.

    record: a JSON file that is written after each mutant; what it holds already is not run again.
    limit: seconds after which no further mutant is begun.
    """
    begun = time.monotonic()
    known: dict[str, Any] = {}
    if record and record.exists():
        known = json.loads(record.read_text())
    tried: list[Tried] = []
    for place, room in enumerate(rooms):
        share = count // len(rooms) + (place < count % len(rooms))
        key = f"{room.name} {share} {seed}"
        found = {
            one["mutant"]["number"]: Tried(**{**one, "mutant": Mutant(**one["mutant"])})
            for one in known.get(key, [])
        }
        one = Campaign(room, share, seed, found)
        show(f"{room.name}: without any mutant")
        one.prepare()
        for done in one.run():
            show(f"{room.name}: {len(one.found)} of {share}: {done.result} {done.seconds} s")
            known[key] = [asdict(each) for each in one.found.values()]
            if record:
                record.write_text(json.dumps(known, indent=1) + "\n")
            if limit and time.monotonic() - begun > limit:
                break
        show(f"{room.name}: proofs")
        one.prove()
        known[key] = [asdict(each) for each in one.found.values()]
        if record:
            record.write_text(json.dumps(known, indent=1) + "\n")
        tried += one.found.values()
    return tried


def share(tried: Sequence[Tried]) -> float:
    """Return the share caught of those mutants that are faults."""
    counted = [one for one in tried if one.result != "equivalent"]
    return sum(one.result == "caught" for one in counted) / max(1, len(counted))


def print_report(tried: Sequence[Tried], seed: int) -> None:
    """Print what became of the mutants room by room, then those that no test noticed."""
    table = Table(title=f"Mutants, seed {seed}", title_justify="left")
    table.add_column("room")
    for column in ("mutants", "caught", "survived", "equivalent", "share caught"):
        table.add_column(column, justify="right")
    rooms = list(dict.fromkeys(one.room for one in tried))
    for name, part in [
        *((name, [one for one in tried if one.room == name]) for name in rooms),
        ("all", list(tried)),
    ]:
        results = [one.result for one in part]
        counts = [results.count(which) for which in ("caught", "survived", "equivalent")]
        table.add_row(name, str(len(part)), *map(str, counts), f"{share(part):.1%}")
    console.out.print(table)
    for one in tried:
        if one.result == "survived":
            text = f"survived: {one.mutant.number} {one.mutant.mode} {one.mutant.where}"
            console.out.print(text, markup=False, highlight=False, soft_wrap=True)
