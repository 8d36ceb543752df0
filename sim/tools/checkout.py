"""The checkout that this tool is of: its commit, and its files, which an installation has too."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from sim.rtl.env import CHECKOUT, FILES, REPO

__all__ = ["commit", "commit_time", "copy_work_tree"]

#: The packages of an installation.
_PACKAGES = ("boards", "firmware", "hdl", "sim")
_SKIPPED = {".git", ".venv", ".build", "__pycache__"}


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


def commit_time(folder: Path = REPO) -> int:
    """Return when the commit that ``folder`` is at was made, in s since 1970; 0 without one."""
    try:
        top = _git(folder, "rev-parse", "--show-toplevel")
        if Path(top).resolve() != folder.resolve():  # a copy inside another checkout
            return 0
        return int(_git(folder, "log", "-1", "--format=%ct"))
    except (OSError, subprocess.CalledProcessError):
        return 0


def copy_work_tree(folder: Path) -> None:
    """Copy all files of the project, in their present state, into ``folder``, as a checkout."""
    for name, path in _work_tree().items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)


def _work_tree() -> dict[Path, Path]:
    """Where each file of the project belongs, and where it is."""
    if not CHECKOUT:
        inside = [path for name in _PACKAGES for path in _files(REPO / name)]
        packages = {path.relative_to(REPO): path for path in inside if FILES not in path.parents}
        return packages | {path.relative_to(FILES): path for path in _files(FILES)}
    try:
        listed = _git(REPO, "ls-files", "-co", "--exclude-standard", "-z").split("\0")
        paths = [REPO / name for name in listed if name and (REPO / name).is_file()]
    except (OSError, subprocess.CalledProcessError):
        paths = _files(REPO)
    return {path.relative_to(REPO): path for path in paths}


def _files(folder: Path) -> list[Path]:
    """The files below ``folder`` that are the project's."""
    return [
        path
        for path in folder.rglob("*")
        if not _SKIPPED & set(path.relative_to(folder).parts) and path.is_file()
    ]


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", folder, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
