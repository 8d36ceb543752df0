"""Runs a script, as ``python SCRIPT ARGS`` would."""

from __future__ import annotations

import runpy
import sys
import traceback
from pathlib import Path

__all__ = ["exit_status", "run"]


def run(path: str, arguments: list[str]) -> int:
    """Run it; its exit status."""
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).resolve().parent))
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        return exit_status(end)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def exit_status(end: SystemExit) -> int:
    """What the process would end with."""
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code & 0xFF
    print(end.code, file=sys.stderr)
    return 1
