"""The commands that the documents tell: each one can be given as it is written."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import click
import pytest

from firmware.daemon import settings, trace
from sim.interop.scenarios import SCENARIOS
from sim.make.synth.parts import choose, configuration
from sim.measure.perf.command import OPERATIONS, perf
from sim.measure.perf.flows import parse
from sim.measure.perf.recorded import load
from sim.rtl import env
from sim.tools import cli
from tests.faults.catalogue import FAULTS
from tests.proofs.catalogue import PROOFS

PAGES = sorted([env.REPO / "README.md", *(env.REPO / "docs").glob("*.md")])
START = "./rocinante"
#: What stands for a value in prose, and a value to try.
PLACEHOLDERS = {
    "ADDRESS": "02:00:00:00:00:01",
    "BOARD": "u55c",
    "DIR": "out",
    "FILE": "run.json",
    "N": "7",
    "OP": "write_bw",
    "PATH": "resource0",
    "TRACE": "capture.pcap",
}
#: Options of ``test`` itself that take no value.
FLAGS = ("--slow", "--waves", "--code-coverage")
#: NAME stands for something else with each command.
NAMES = {"build": "u55c", "info": "smallest", "prove": "fifo"}


def written(text: str) -> list[str]:
    """The commands of a page: lines of indented code, and code in a sentence that has arguments."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = text.replace("\\\n", " ")
    lines = re.findall(rf"^ {{4,}}(?:Repeat: )?({START} .*)$", text, re.MULTILINE)
    prose = re.sub(r"^ {4}.*$", "", text, flags=re.MULTILINE)
    spans = [" ".join(one.split()) for one in re.findall(rf"`({START}\s[^`]+)`", prose)]
    return lines + [one for one in spans if len(one.split()) > 2]


def arguments(command: str) -> list[str]:
    """The words after ``./rocinante``: without a comment, redirections and what follows them."""
    words = shlex.split(re.split(r"\s[<>&|]", command)[0], comments=True)[1:]
    found = [PLACEHOLDERS.get(word, word).replace("=...", "=65536") for word in words]
    return [NAMES[words[0]] if word == "NAME" else word for word in found]


COMMANDS = sorted({(page.name, command) for page in PAGES for command in written(page.read_text())})


def test_commands_are_found() -> None:
    text = (
        "Say `./rocinante test\nx -k y`, or `./rocinante docs`.\n\n    ./rocinante info --json \\\n"
        "        - >x & # more\n    Repeat: ./rocinante test 'a b'\n```\n./rocinante no\n```\n"
    )
    assert [arguments(one) for one in written(text)] == [
        ["info", "--json", "-"],
        ["test", "a b"],
        ["test", "x", "-k", "y"],
    ]
    assert len(COMMANDS) > 120


def known() -> dict[str, tuple[str, Collection[str]]]:
    """Of commands whose arguments are names: the parameter, and all that it may name."""
    return {
        "prove": ("names", [one.name for one in PROOFS]),
        "faults": ("names", [one.name for one in FAULTS]),
        "interop": ("scenarios", SCENARIOS),
        "figures": ("patterns", [row.command for row in load()]),
        "perf": ("op", OPERATIONS),
    }


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_it_can_be_given(
    page: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command's own parser takes it, and what it names is there."""
    monkeypatch.chdir(tmp_path)
    name, *rest = arguments(command)
    for word in rest:
        if re.fullmatch(r"[\w/.-]+\.(json|toml|pcap|pcapng)", word):
            (tmp_path / word).touch()
    check(name, rest)


def check(name: str, rest: list[str]) -> None:
    """Fails, or raises what the parser says, when ``rest`` is nothing that the command takes."""
    if name in (parsers := {"firmware": settings.parser, "trace": trace.parser}):
        parsers[name]().parse_args(rest)
        return
    context = click.Context(cli.rocinante, info_name="rocinante")
    try:
        found = cli.rocinante.resolve_command(context, [name, *rest])[1]
        assert found is not None
        chosen = found.make_context(name, rest, parent=context).params
    except click.exceptions.Exit:  # --help and --schema print, and end
        return
    if name in (table := known()):
        parameter, names = table[name]
        words = chosen[parameter]
        if name == "perf" and words is None:
            words = [parse(perf, text)[0]["op"] for text in chosen["flows"]]
            assert words
        for word in [words] if isinstance(words, str) else words:
            assert fnmatch.filter(names, word), f"{name} knows no {word}"
    if name == "synth":
        config = configuration(chosen["width"], chosen["settings"], size=chosen["size"] or "")
        assert choose(config, chosen["rooms"]) or not chosen["rooms"]


@pytest.mark.parametrize(
    "broken",
    [
        "info --widht 64",
        "perf writebw",
        "prove fifi",
        "trace --snap 9999",
        "nothing",
        "synth --room x",
    ],
)
def test_what_cannot_be_given_is_found(broken: str) -> None:
    name, *rest = broken.split()
    with pytest.raises((AssertionError, click.UsageError, SystemExit, ValueError)):
        check(name, rest)


def chosen_tests() -> list[str]:
    """The arguments of ``test`` that choose some of the tests."""
    words = [arguments(command) for _page, command in COMMANDS]
    tests = [one[1:] for one in words if one[0] == "test"]
    return sorted({shlex.join(one) for one in tests if any("/" in word for word in one)})


#: Collects the tests for each of several lists of arguments: modules are imported once.
_COLLECT = """
import contextlib, json, sys
import pytest
class Count:
    def pytest_collection_finish(self, session):
        counts.append(len(session.items))
counts = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(sys.stderr):
        before = len(counts)
        pytest.main(["--collect-only", "-q", "-m", "not slow", *words], [Count()])
        counts += [0] * (before + 1 - len(counts))
print(json.dumps(counts))
"""


def collected(several: list[list[str]]) -> list[int]:
    """How many tests that are not slow each of ``several`` arguments of ``test`` chooses."""
    own = {"-n": 2, "--seed": 2} | dict.fromkeys(FLAGS, 1)  # of ./rocinante test
    left = []
    for words in several:
        rest = list(words)
        for option, length in own.items():
            if option in rest:
                at = rest.index(option)
                del rest[at : at + length]
        left.append(rest)
    done = subprocess.run(
        [sys.executable, "-c", _COLLECT, json.dumps(left)],
        cwd=env.REPO, capture_output=True, text=True, check=True,
    )  # fmt: skip
    counts: list[int] = json.loads(done.stdout)
    assert len(counts) == len(several)
    return counts


def test_chosen_tests_are_there() -> None:
    """Each line that chooses tests chooses one at least that is not slow."""
    lines = chosen_tests()
    assert len(lines) > 10
    counts = dict(zip(lines, collected([shlex.split(line) for line in lines])))
    assert not [line for line, count in counts.items() if count == 0]


def test_lines_that_choose_no_test_are_found() -> None:
    lines = [["tests/wire", "-k", "no_such"], ["tests/nope"], ["--slow", "tests/wire/test_pcap.py"]]
    none, nowhere, some = collected(lines)
    assert (none, nowhere) == (0, 0) and some > 1
