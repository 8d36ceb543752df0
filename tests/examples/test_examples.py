"""Each program in examples/ runs as it is, in a folder of its own, and says what it should."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sim.rtl import env
from sim.rtl.env import REPO
from tests.tools.test_written_commands import check

EXAMPLES = REPO / "examples"


def run(name: str, folder: Path, *options: str) -> str:
    """What the program prints."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *options],
        cwd=folder, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def pyverbs_run(name: str, folder: Path, *options: str) -> str:
    """The same of a program that ``rocinante pyverbs`` runs."""
    command = [sys.executable, "-m", "sim.tools.cli", "pyverbs", *options, EXAMPLES / name]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_every_program_is_run_here() -> None:
    programs = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.py")}
    text = Path(__file__).read_text()
    assert not {name for name in programs if f'run("{name}"' not in text}
    page = (REPO / "docs" / "examples.md").read_text()
    assert not {name for name in programs if f"(../examples/{name})" not in page}


def test_hello_write(tmp_path: Path) -> None:
    said = run("hello_write.py", tmp_path)
    assert "completion: SUCCESS\nmemory of b: Hello, remote memory!\n" in said
    assert b"Hello, remote memory!" in (tmp_path / "hello_write.pcap").read_bytes()


@pytest.mark.slow  # a model of its own
def test_hello_write_with_waves(tmp_path: Path) -> None:
    env.require_waves()
    assert "waves: hello_write.fst" in run("hello_write.py", tmp_path, "--waves")
    assert (tmp_path / "hello_write.fst").stat().st_size > 100_000
    assert str(tmp_path / "hello_write.fst") in (tmp_path / "hello_write.gtkw").read_text()


def test_lossy_link(tmp_path: Path) -> None:
    said = dict(line.split(": ") for line in run("lossy_link.py", tmp_path).splitlines())
    assert int(said.pop("frames lost")) > 0
    assert said == {
        "WRITE on a network that loses packets": "SUCCESS",
        "all bytes are there": "True",
        "WRITE with a wrong key": "REM_ACCESS_ERR",
        "the next one on that queue pair": "WR_FLUSH_ERR",
    }


def test_sweep(tmp_path: Path) -> None:
    said = run("sweep.py", tmp_path, "--sizes", "64", "4096", "-n", "20", "-o", "plot.svg")
    assert said.count("Gb/s") == 2
    assert "limit of the wire" in (tmp_path / "plot.svg").read_text()


def test_verbs(tmp_path: Path) -> None:
    assert "passed" in run("verbs.py", tmp_path)


def test_transpose(tmp_path: Path) -> None:
    assert "passed" in run("transpose.py", tmp_path)


def test_pyverbs_hello(tmp_path: Path) -> None:
    """It is run by a command, as the cards are in its process."""
    said = pyverbs_run("pyverbs_hello.py", tmp_path)
    assert said.splitlines() == [
        "rocinante0 QP 2 -> rocinante1 QP 2",
        "WRITE 0 Hello, remote memory!",
        "READ 0 Hello, reader!",
        "SEND 0 RECV 0 wr_id 7 Hello, shared queue!",
        "refused: Failed to query port 9. Errno: 22, Invalid argument",
        "wrong key: True",
    ]
    alone = pyverbs_run("pyverbs_hello.py", tmp_path, "--cards", "1").splitlines()
    assert alone[0] == "rocinante0 QP 2 -> rocinante0 QP 3"
    assert alone[1:] == said.splitlines()[1:]


def test_own_design(tmp_path: Path) -> None:
    pytest.importorskip("cocotbext.axi")
    assert "passed: writes_to_itself" in run("own_design/bench.py", tmp_path)


@pytest.mark.parametrize("name", ["github.yml", "gitlab.yml"])
def test_files_for_ci(name: str) -> None:
    """They are YAML, and each command in them can be given."""
    text = (EXAMPLES / "ci" / name).read_text()
    assert yaml.safe_load(text)
    commands = re.findall(r"\./rocinante \w+[^\n]*", text)
    assert len(commands) == 2
    for command in commands:
        _, word, *rest = command.split()
        check(word, rest)


def test_the_development_container_is_json() -> None:
    """With comments, as its readers take it; what it runs can be given."""
    text = (EXAMPLES / "ci" / "devcontainer.json").read_text()
    found = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.M))
    _, word, *rest = found["postCreateCommand"].split()
    check(word, rest)


def test_the_page_of_the_driver_shows_the_example() -> None:
    """The code in docs/driver.md is that of the program, word for word."""
    page = (REPO / "docs" / "driver.md").read_text()
    blocks = [block.split("```")[0].strip() for block in page.split("```python\n")[1:]]
    program = (EXAMPLES / "verbs.py").read_text()
    assert blocks and all(block in program for block in blocks)
