"""A copy of the work tree in which a fault is made, and what the tests say of it there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from xml.etree import ElementTree

from sim.rtl import env
from sim.tools.checkout import copy_work_tree
from tests.faults.fault import Fault

__all__ = ["FaultError", "Outcome", "Workshop", "check", "workshop"]

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
        command += ["--slow"] if "::" in test else []  # one that is named may be slow
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
