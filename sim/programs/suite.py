"""Runs rdma-core's own tests inside the simulation, and says how each has ended."""

from __future__ import annotations

import importlib
import json
import random
import sys
import threading
import time
import traceback
import unittest
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sim.programs import cards

__all__ = ["run"]

#: Between two tries to give a test up, s.
PAUSE_S = 0.001
PASSED, SKIPPED, FAILED = "passed", "skipped", "failed"


@dataclass
class Ended:
    """How one test has ended. ``why``: reason of a skip, or what a failure says."""

    name: str
    how: str
    why: str
    seconds: float


class Outcome(unittest.TestResult):
    """Keeps how each test ends, and prints a line for it. ``limit_s``: of wall time, for each."""

    def __init__(self, limit_s: float) -> None:
        super().__init__()
        self.ended: list[Ended] = []
        self._limit_s = limit_s
        self._began = 0.0
        self._over = threading.Event()  # the test that is watched has ended
        self._late = threading.Event()  # or was given up

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._began = time.monotonic()
        self._over, self._late = threading.Event(), threading.Event()
        watch = threading.Thread(target=self._watch, args=[self._over, self._late], daemon=True)
        watch.start()

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        self._over.set()

    def _watch(self, over: threading.Event, late: threading.Event) -> None:
        """Give up what a test waits for when its time is over. It may be at work for a moment and
        wait for nothing."""
        wait_s = self._limit_s
        while not over.wait(wait_s):
            late.set()
            if cards.cards()[0].errands.fail(TimeoutError(self._no_end)):
                break
            wait_s = PAUSE_S

    @property
    def _no_end(self) -> str:
        return f"no end within {self._limit_s:g} s"

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._note(test, PASSED)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._note(test, SKIPPED, reason)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._note(test, FAILED, _text(err))

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self._note(test, FAILED, _text(err))

    def _note(self, test: unittest.TestCase, how: str, why: str = "") -> None:
        if self._late.is_set() and how != FAILED:  # whatever the test makes of it
            how, why = FAILED, self._no_end
        name = test.id().removeprefix("tests.")
        seconds = time.monotonic() - self._began
        self.ended.append(Ended(name, how, why, round(seconds, 2)))
        last = why.strip().splitlines()[-1:] or [""]
        print(f"{how:8}{seconds:7.1f} s  {name}  {last[0]}".rstrip(), flush=True)


def _text(err: Any) -> str:
    return "".join(traceback.format_exception(*err))


def run(folder: str, names: list[str], device: str, seed: int, limit_s: float, kept: str) -> int:
    """Run all tests, or those that are named; the exit status.

    folder: has the suite as ``tests``. kept: a file for how each has ended, as JSON; "" for none.
    """
    sys.path[:0] = [folder, str(Path(folder, "tests"))]
    sys.argv = ["run_tests.py", "--dev", device]
    random.seed(seed)
    importlib.import_module("args_parser").parser.parse_args()
    suite = importlib.import_module("tests")
    loader = unittest.TestLoader()
    if names:
        found = loader.loadTestsFromNames([f"tests.{name}" for name in names])
    else:
        found = loader.loadTestsFromModule(suite)
    result = Outcome(limit_s)
    found.run(result)
    _report(result.ended)
    if kept:
        Path(kept).write_text(json.dumps([asdict(one) for one in result.ended], indent=1))
    failed = any(one.how == FAILED for one in result.ended)
    return int(failed or not result.ended)


def _report(ended: list[Ended]) -> None:
    """A table by file, the reasons of skips, and what has failed."""
    files: dict[str, Counter[str]] = defaultdict(Counter)
    reasons: Counter[str] = Counter()
    for one in ended:
        files[one.name.split(".")[0]][one.how] += 1
        if one.how == SKIPPED:
            reasons[one.why] += 1
    kinds = (PASSED, SKIPPED, FAILED)
    print(f"\n{'file':28}" + "".join(f"{kind:>9}" for kind in kinds))
    for name, counts in files.items():
        print(f"{name:28}" + "".join(f"{counts[kind] or '':>9}" for kind in kinds))
    total = Counter(one.how for one in ended)
    print(f"{'all':28}" + "".join(f"{total[kind]:>9}" for kind in kinds))
    for reason, count in reasons.most_common():
        print(f"skipped {count:4}: {reason}")
    for one in ended:
        if one.how == FAILED:
            print(f"\n{one.name}\n{one.why}")
