"""A command's work inside a simulation: what it wants goes in as JSON, progress and results come
out.

Outside: ``run_job``. Inside: ``Job()`` in the bench that it names.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sim.rtl.build import BuiltModel, Results, run

__all__ = ["Job", "job_settings", "run_job"]

_ENV = "ROCINANTE_JOB"


class Job:
    """The command's side of a bench. ``spec`` is what it wants, ``folder`` where its files are."""

    def __init__(self) -> None:
        found = json.loads(Path(os.environ[_ENV]).read_text())
        self.spec: dict[str, Any] = found["spec"]
        self.folder = Path(os.environ[_ENV]).parent
        self._result, self._progress = Path(found["result"]), Path(found["progress"])

    def say(self, text: str) -> None:
        """One line of progress."""
        with self._progress.open("a") as file:
            file.write(text + "\n")

    def keep(self, **facts: Any) -> None:
        """Add to the results."""
        known = json.loads(self._result.read_text())
        self._result.write_text(json.dumps(known | facts))


def job_settings(folder: Path, spec: dict[str, Any]) -> dict[str, str]:
    """Write a job into ``folder``, with empty ``result`` and ``progress``; returns what the
    simulation's environment must say."""
    result, progress, job = (folder / part for part in ("result", "progress", "job"))
    files = {"result": str(result), "progress": str(progress)}
    job.write_text(json.dumps({"spec": spec, **files}))
    result.write_text("{}")
    progress.touch()
    return {_ENV: str(job)}


def run_job(
    model: BuiltModel,
    test_module: str,
    spec: dict[str, Any],
    say: Callable[[str], None],
    timeout_s: float,
    testcase: list[str] | None = None,
    seed: int | None = None,
) -> tuple[dict[str, Any], Results]:
    """Run the benches of a module, or those in ``testcase``; what they kept, and the run's results.

    Progress goes to ``say``. Raises AssertionError when one fails.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = job_settings(folder, spec)
        result, progress = (folder / part for part in ("result", "progress"))
        over = threading.Event()
        follower = threading.Thread(target=_follow, args=(progress, say, over))
        follower.start()
        try:
            results = run(
                model,
                test_module=test_module,
                testcase=testcase,
                extra_env=settings,
                seed=seed,
                timeout_s=timeout_s,
            )
        finally:
            over.set()
            follower.join()
        return json.loads(result.read_text()), results


def _follow(path: Path, say: Callable[[str], None], over: threading.Event) -> None:
    """Pass lines on as they are written."""
    with path.open() as file:
        while True:
            ended = over.wait(0.2)
            for line in file:
                say(line.strip())
            if ended:
                return
