"""The checkout that this tool is of: the commit that is written into what it generates."""

from __future__ import annotations

import subprocess
from pathlib import Path

from sim.rtl.env import REPO

__all__ = ["commit"]


def commit(folder: Path = REPO) -> int:
    """Return the first 32 bits of the hash of the commit that ``folder`` is at.

    0 when there is none: no git, no checkout, or files that differ from the commit.
    """
    try:
        top = _git(folder, "rev-parse", "--show-toplevel")
        if Path(top).resolve() != folder.resolve():  # a copy inside another checkout
            return 0
        if _git(folder, "status", "--porcelain", "--untracked-files=no"):
            return 0
        return int(_git(folder, "rev-parse", "HEAD")[:8], 16)
    except (OSError, subprocess.CalledProcessError):
        return 0


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", folder, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
