"""Code coverage of ``hdl/``: what simulations with counters (``sim.rtl.reached``) have entered."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sim.rtl.env import REPO

__all__ = ["entered", "rows"]

#: A point of Verilator's: its keys, each between two signs of its own, and how often it was seen.
_POINT = re.compile(r"^C '\x01f\x02(?P<file>[^\x01]*)\x01l\x02(?P<line>\d+)\x01.*' (?P<count>\d+)$")


def entered(files: Iterable[Path], folder: str = "hdl") -> dict[str, dict[int, int]]:
    """Merge ``coverage.dat`` of simulations: file below ``folder`` -> line of a branch -> cycles in
    which it was entered, of all instances. Raises ValueError for a file that is none of them."""
    counts: dict[str, Counter[int]] = {}
    for path in files:
        head, *points = path.read_text(errors="replace").splitlines() or [""]
        if not head.startswith("# SystemC::Coverage"):
            raise ValueError(f"{path} is no record of Verilator's coverage")
        for found in filter(None, map(_POINT.match, points)):
            if found["file"].startswith(f"{folder}/"):
                lines = counts.setdefault(found["file"], Counter())
                lines[int(found["line"])] += int(found["count"])
    return {file: dict(sorted(lines.items())) for file, lines in sorted(counts.items())}


def rows(found: Mapping[str, Mapping[int, int]]) -> list[dict[str, Any]]:
    """Return for each file how many branches there are and those that were not entered.

    Each has its line, and a name that stays when other lines are added: the function and the
    condition, with a number if the function has it before.
    """
    return [
        {
            "what": file,
            "bins": len(lines),
            "missing": [
                [str(line), name]
                for line, name in _names(REPO / file, lines).items()
                if not lines[line]
            ],
        }
        for file, lines in found.items()
    ]


def _names(path: Path, lines: Iterable[int]) -> dict[int, str]:
    """Names of the branches that begin at ``lines`` of a Python file. Raises ValueError if it does
    not have these lines."""
    text = path.read_text()
    places: dict[int, tuple[str, str]] = {}

    def visit(node: ast.AST, scope: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = scope
            if isinstance(child, ast.ClassDef | ast.FunctionDef):
                inner = f"{scope}.{child.name}".lstrip(".")
            if isinstance(child, ast.With):
                for item in child.items:
                    words = ast.unparse(item.context_expr)
                    places[item.context_expr.lineno] = (inner, words)
            visit(child, inner)

    visit(ast.parse(text), "")
    written = text.splitlines()
    seen: Counter[str] = Counter()
    names = {}
    for line in sorted(lines):
        if line > len(written):
            raise ValueError(f"{path} has no line {line}: the record is of another revision")
        scope, words = places.get(line) or ("", written[line - 1].strip())
        name = f"{scope}: {words}"
        seen[name] += 1
        names[line] = name if seen[name] == 1 else f"{name} ({seen[name]})"
    return names
