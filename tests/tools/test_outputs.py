"""What commands write is tried before any work, and a failure later is one line."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from firmware.daemon import trace
from sim.campaign.store import Store
from sim.make.core.keywords import KEYWORDS
from sim.rtl import env
from sim.tools import cli, outputs

#: Longer than a refusal takes, s: what generates or builds takes more.
QUICK_S = 3
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")


def call(*arguments: object) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a command."""
    began = time.monotonic()
    result = CliRunner().invoke(cli.rocinante, [str(one) for one in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert time.monotonic() - began < QUICK_S, "it has worked before it refused"
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "my.toml"
    path.write_text("width = 64\n")
    return path


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Folders that cannot be made or written."""
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    places = [tmp_path / "file", tmp_path / "file" / "x", tmp_path / ("n" * 256)]
    return [*places, tmp_path / "loop" / "x", FULL / "x", Path("/proc/self/x")]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Files that cannot be made or written."""
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    places = [tmp_path / "file" / "x", tmp_path / "none" / "x", tmp_path / ("n" * 256)]
    return [*places, tmp_path / "folder", FULL, Path("/proc/self/x")]


def refused(status: int, out: str, text: str) -> None:
    assert status == 2, (status, out, text)
    assert not out and text.startswith("Error: ") and text.count("\n") == 1, text


@needs_full
@pytest.mark.parametrize("command", ["verilog", "build", "registers", "package", "docs"])
def test_folders(command: str, folders: list[Path], config: Path) -> None:
    more = {"verilog": ("--config", config), "build": ("u55c",)}.get(command, ())
    for folder in folders:
        refused(*call(command, *more, "-o", folder))


@needs_full
@pytest.mark.parametrize(
    "command",
    [
        ("header", "-o"),
        ("rtl", "-o"),
        ("info", "--json"),
        ("demo", "--pcap"),
        ("demo", "--json"),
        ("perf", "write_bw", "--pcap"),
        ("campaign", "--db"),
        ("faults", "--record"),
        ("endpoint", "--wire", "unix:w", "--pcap"),
        ("board", "--wire", "unix:w", "--pcap"),
        ("card", "--socket", "/tmp", "--pcap"),
        ("replay", str(env.REPO / "tests/data/golden/rping.pcap"), "--json"),
        ("synth", "--json"),
        ("simspeed", "--json"),
        ("commands", "--json"),
        ("interop", "--json"),
    ],
)
def test_files(command: tuple[str, ...], files: list[Path]) -> None:
    for file in files:
        refused(*call(*command, file))


def test_the_folder_of_interop(folders: list[Path]) -> None:
    for folder in folders:
        refused(*call("interop", "--pcap-dir", folder))


@pytest.mark.parametrize(
    "name", ["module", "wire", "always_ff", "uwire", "1st", "a-b", "", "n" * 250]
)
def test_names_of_modules(name: str, config: Path, tmp_path: Path) -> None:
    refused(*call("verilog", "--config", config, "-o", tmp_path / "out", "--name", name))
    assert not (tmp_path / "out").exists()


def test_the_words_of_the_language_are_all_there() -> None:
    """Verilator refuses each of them as a name, and takes a name that is none of them."""
    assert len(KEYWORDS) == 248 and {"module", "endmodule", "reg", "logic"} <= KEYWORDS


def test_a_trial_leaves_nothing(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("contents")
    for file in (kept, tmp_path / "new"):
        outputs.require_file(file)
    outputs.require_folder(tmp_path / "a" / "b", ["x", "y"])
    outputs.require_folder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert kept.read_text() == "contents"
    outputs.require_file(Path("-"))
    outputs.require_file(Path(os.devnull))


def test_a_pipe_is_not_tried(tmp_path: Path) -> None:
    """Opening one would wait for its reader."""
    os.mkfifo(tmp_path / "pipe")
    outputs.require_file(tmp_path / "pipe")


def test_a_disk_that_becomes_full() -> None:
    """Any command: one line that names the file, and a status that is not 0."""
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS):
        with pytest.raises(click.ClickException) as caught, outputs.written():
            raise OSError(number, os.strerror(number), "out/file")
        assert caught.value.exit_code == 1
        assert caught.value.message == f"out/file: {os.strerror(number)}"
    with pytest.raises(click.ClickException, match="disk is full"), outputs.written():
        raise sqlite3.OperationalError("database or disk is full")
    with pytest.raises(FileNotFoundError), outputs.written():  # a mistake in the program
        raise FileNotFoundError(errno.ENOENT, "x", "tool")


@needs_full
def test_a_full_disk_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs.outputs, "require_file", lambda path: None)
    for command in (("header", "-o"), ("info", "--json")):
        status, _, text = call(*command, FULL)
        assert status == 1 and text == "Error: /dev/full: No space left on device\n"
        assert "Traceback" not in text


@needs_full
def test_standard_output_that_is_full() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "sim.tools.cli", "header"],
        stdout=FULL.open("w"), stderr=subprocess.PIPE, text=True, check=False, cwd=env.REPO,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "Error: No space left on device\n"


def test_a_database_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unable to open database file"):
        Store(tmp_path / "none" / "x")
    (tmp_path / "text").write_text("no database, but a text that is long enough" * 9)
    with pytest.raises(ValueError, match="holds no results"):
        Store(tmp_path / "text")


def test_the_trace_of_a_card(files: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    for file in files:
        with pytest.raises(SystemExit) as stopped:
            trace.main(["--bar", "x", "-o", str(file)])
        assert stopped.value.code == 2
        assert capsys.readouterr().err.splitlines()[-1].startswith("rocinante-trace: error: -o ")
