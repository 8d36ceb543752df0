"""Runs scripts by ``rocinante pyverbs``, and the other command."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sim.rtl.env import REPO

COMMAND = [sys.executable, "-m", "sim.tools.cli"]


def command(*words: str, folder: Path = REPO, timeout: float = 600) -> subprocess.CompletedProcess:
    """A command that has ended."""
    return subprocess.run(
        [*COMMAND, *words], cwd=folder, capture_output=True, text=True, check=False,
        timeout=timeout, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def script(
    text: str,
    folder: Path,
    *arguments: str,
    cards: int = 1,
    status: int = 0,
    options: Sequence[str] = (),
) -> str:
    """What a script prints that ends with ``status``. options: of the command."""
    path = folder / "script.py"
    path.write_text(text)
    words = ("--cards", str(cards), *options, str(path), *arguments)
    done = command("pyverbs", *words, folder=folder)
    assert done.returncode == status, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout
