"""Runs Yosys on small netlists, and proves that a changed one does what it did before."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["made", "proven"]


def made(folder: Path, text: str, script: str) -> dict[str, Any]:
    """The netlist that ``script`` makes of the Verilog ``text``, by ``top.v`` and
    ``before.json``."""
    (folder / "top.v").write_text(text)
    status, said = _yosys(folder, script)
    assert status == 0, said
    return json.loads((folder / "before.json").read_text())


def proven(folder: Path, design: dict[str, Any], script: str) -> bool:
    """Whether ``script`` proves that ``design``, as ``after.json``, does what the one before
    did."""
    (folder / "after.json").write_text(json.dumps(design))
    status, said = _yosys(folder, script)
    assert ("SAT proof finished" in said) and (status == 0) == ("no model found: SUCCESS" in said)
    return status == 0


def _yosys(folder: Path, script: str) -> tuple[int, str]:
    """Run ``script`` in ``folder``; returns its exit status and what it said."""
    (folder / "script.ys").write_text(script)
    run = "import sys; from pyosys import libyosys; libyosys.run_pass('script script.ys')"
    done = subprocess.run(
        [sys.executable, "-P", "-c", run], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr
