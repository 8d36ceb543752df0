"""The plan of what the tests show: read, checked against the tests that exist, written as a page.

    python -m tests.testplan

``tests/testplan.toml`` says of each requirement what it is, its state and its tests.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLAN = ROOT / "tests" / "testplan.toml"
#: Each requirement of the specification, one a line, in its order.
IDENTIFIERS = ROOT / "tests" / "data" / "requirements.txt"
STATES = {
    "tested": "the named tests fail without it",
    "refused": "the card answers with a documented error, which the named tests show",
    "not built": "nothing is there",
}
#: Titles of the parts of the specification, by the beginning of an identifier.
PARTS = {
    "VR-0.": "Conventions",
    "VR-1.": "Device and queues",
    "VR-2.": "Device configuration",
    "VR-3.": "Control queue",
    "VR-4.": "Work requests and completions",
    "VR-5.": "Operations",
    "VR-6.": "Work items of the specification's authors",
    "VR-7.": "What was said about the specification",
    "E-": "Errata",
    "R-": "Any load, any peer, any host",
    "P-": "Memory placement: FLUSH and ATOMIC WRITE",
    "C-": "Copies inside host memory: MEMCPY",
    "X-": "Extended reliable connections",
    "M-": "Requests for several packets",
    "K-": "Indirect keys",
    "D-": "Dynamic connections",
}


@dataclass(frozen=True)
class Requirement:
    """One requirement: what it is in our words, its state, the tests that show it."""

    name: str
    what: str
    state: str
    tests: tuple[str, ...] = ()
    note: str = ""


def plan(path: Path = PLAN) -> list[Requirement]:
    """The requirements of the plan. TypeError for a key that is none, tomllib's error for an
    identifier that is there twice."""
    entries = tomllib.loads(path.read_text())
    return [
        Requirement(name, **entry | {"tests": tuple(entry.get("tests", ()))})
        for name, entry in entries.items()
    ]


def faults(requirements: Iterable[Requirement]) -> list[str]:
    """What is wrong with the plan, apart from tests that do not exist."""
    found = []
    for one in requirements:
        if one.state not in STATES:
            found.append(f"{one.name}: no state {one.state!r}")
        if bool(one.tests) != (one.state != "not built"):
            found.append(f"{one.name}: {len(one.tests)} tests, but it is {one.state}")
        found += [f"{one.name}: {test} twice" for test, n in Counter(one.tests).items() if n > 1]
    return found


def missing_tests(tests: Iterable[str]) -> list[str]:
    """Those that do not exist. A name without brackets stands for all its parameters."""
    wanted = sorted(set(tests))
    files = sorted({test.partition("::")[0] for test in wanted})
    known = set()
    for file in files:
        if Path(file).name.startswith("bench_"):
            known |= _cocotb_tests(file)
    nodes = [file for file in files if not Path(file).name.startswith("bench_")]
    known |= _pytest_nodes([file for file in nodes if (ROOT / file).exists()])
    return [test for test in wanted if test not in known]


def _cocotb_tests(file: str) -> set[str]:
    """The cocotb tests of a bench."""
    if not (ROOT / file).exists():
        return set()
    tree = ast.parse((ROOT / file).read_text())
    functions = (node for node in tree.body if isinstance(node, ast.AsyncFunctionDef))
    return {
        f"{file}::{node.name}"
        for node in functions
        if any("cocotb" in ast.unparse(mark) for mark in node.decorator_list)
    }


def _pytest_nodes(files: list[str]) -> set[str]:
    """The nodes of test files, with and without their parameters."""
    if not files:
        return set()
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    listed = subprocess.run(
        [*command, *files], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    nodes = {line for line in listed.splitlines() if "::" in line}
    return nodes | {re.sub(r"\[.*", "", node) for node in nodes}


def tables(requirements: list[Requirement] | None = None) -> str:
    """The tables of docs/testplan.md, in Markdown; of the plan's requirements, or of others."""
    requirements = plan() if requirements is None else requirements
    counts = Counter(one.state for one in requirements)
    states = "".join(f"| {state} | {what} | {counts[state]} |\n" for state, what in STATES.items())
    parts = "".join(
        _part(title, [one for one in requirements if one.name.startswith(start)])
        for start, title in PARTS.items()
    )
    return f"""\
| state | what it means | requirements |
|---|---|---|
{states}{parts}"""


def _part(title: str, requirements: list[Requirement]) -> str:
    rows = "".join(
        f"| {one.name} | {' '.join(filter(None, (one.what + '.', one.note)))} | {one.state} "
        f"| {', '.join(f'`{test}`' for test in one.tests)} |\n"
        for one in requirements
    )
    return f"\n## {title}\n\n| | what | state | tests |\n|---|---|---|---|\n{rows}"


if __name__ == "__main__":
    sys.stdout.write(tables())
