"""The command line and the bootstrap."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from boards.profiles import PROFILES
from firmware.daemon import settings, trace
from hdl.config import NicConfig
from sim.endpoint import fields
from sim.endpoint.fields import BadRequest
from sim.rtl import env, reached
from sim.tools import cli, console, environment
from tests import suite


def call(*arguments: str) -> tuple[int, str]:
    """Run a command in this process; returns exit status and all output."""
    result = CliRunner().invoke(cli.rocinante, arguments)
    return result.exit_code, result.output


def test_help_names_every_command() -> None:
    status, text = call("--help")
    assert status == 0
    assert all(f"\n  {name} " in text for name in ("clean", "demo", "info", "rtl", "test"))


def test_info_shows_and_writes_the_same(tmp_path: Path) -> None:
    status, text = call("info", "--width", "64", "--json", str(tmp_path / "info.json"))
    assert status == 0
    facts = json.loads((tmp_path / "info.json").read_text())
    assert set(facts) == {"configuration", "abi", "tools"}
    assert facts["configuration"]["width"] == 64
    assert facts["tools"]["verilator"] in text


def test_info_explains_each_field() -> None:
    """The words come from the texts beside the fields, and each field has some of its own."""
    words = environment.meanings()
    assert words.keys() == asdict(NicConfig()).keys()
    assert words["clock_hz"].startswith("core clock, Hz")
    assert words["read_bytes"] == "largest single host read, bytes; each tag owns that much " + (
        "reorder storage"
    )
    assert words["loopback"] == "frames to the card itself do not leave it"
    assert len(set(words.values())) == len(words)
    assert "frames to the card itself" in " ".join(call("info")[1].split())


def test_info_shows_the_cards_with_a_name(tmp_path: Path) -> None:
    """``--width`` goes before the width of the profile; the help names each of them."""
    _, text = call("info", "--help")
    for name, config in PROFILES.items():
        assert name in text
        for more, shown in (((), config), (("--width", "128"), replace(config, width=128))):
            target = str(tmp_path / "info.json")
            status, said = call("info", "--profile", name, *more, "--json", target)
            assert status == 0 and f"configuration of the profile {name}" in said
            assert json.loads(Path(target).read_text())["configuration"] == asdict(shown)


def test_bad_values_are_one_line_and_status_2(tmp_path: Path) -> None:
    for command in ("info", "demo"):
        status, text = call(command, "--profile", "smalest")
        assert status == 2 and text.count("\n") == 1 and "'smallest', 'board', 'everyth" in text
    status, text = call("info", "--width", "100")
    assert status == 2 and "'100'" in text
    status, text = call("test", "--seed", "many")
    assert status == 2 and "--seed must be a number or 'random', not 'many'" in text
    for seed in (str(1 << 32), "9" * 5000):
        status, text = call("test", "--seed", seed)
        assert status == 2 and text.count("\n") == 1, text
    for command in (
        ("demo",),
        ("perf", "write_bw"),
        ("endpoint", "--wire", "unix:w"),
        ("card", "--socket", str(tmp_path)),
        ("interop",),
    ):
        status, text = call(*command, "--impair", "luck=1%")
        assert status == 2 and "No impairment 'luck=1%'; there are loss=" in text
        status, text = call(*command, "--timer-scale", "0")
        assert status == 2 and "it must be 0.004 to 250, not 0.0" in text


#: What is no number that a computation goes on with.
NOT_FINITE = ("nan", "-nan", "inf", "-inf", "1e400")


def commands() -> dict[str, click.Command]:
    """Each command, imported."""
    return {name: one.imported() for name, one in cli.rocinante.commands.items()}


def test_each_command_is_where_its_folder_says() -> None:
    """Its name is its own, and it has a text for its help."""
    assert all(one.name == name and one.help for name, one in commands().items())


def test_each_folder_with_commands_is_known() -> None:
    """No folder declares a command that nobody finds."""
    files = [*(env.REPO / "sim").rglob("__init__.py"), env.REPO / "tests" / "__init__.py"]
    declaring = {
        ".".join(path.parent.relative_to(env.REPO).parts)
        for path in files
        if "\nCOMMANDS = {" in path.read_text()
    }
    assert declaring == set(cli.FOLDERS)


def test_an_installation_without_tests_has_the_other_commands() -> None:
    """The tests are no part of it: nothing but their commands is missing."""
    script = """
import importlib, sys
find = importlib.import_module
def without(name, package=None):
    if name == "tests":
        raise ModuleNotFoundError("No module named 'tests'", name="tests")
    return find(name, package)
importlib.import_module = without
from sim.tools.cli import rocinante
print(*sorted(rocinante.commands))
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True
    )
    assert set(cli.rocinante.commands) - set(done.stdout.split()) == {"test", "prove", "faults"}


def numeric_options() -> list[tuple[str, str]]:
    """Command and option, of each option that takes a number with a fraction."""
    kinds = (click.types.FloatParamType, console.Finite)
    return [
        (name, option.opts[-1])
        for name, command in commands().items()
        for option in command.params
        if isinstance(option, click.Option) and isinstance(option.type, kinds)
    ]


@pytest.mark.parametrize(("command", "option"), numeric_options())
def test_no_option_is_infinite_or_no_number(command: str, option: str) -> None:
    arguments = (command, "write_bw") if command == "perf" else (command,)
    for value in NOT_FINITE:
        status, text = call(*arguments, f"{option}={value}")
        assert status == 2 and option in text and len(text) < 1000, (value, text)
        assert "Traceback" not in text


def test_the_options_with_a_fraction_are_these() -> None:
    """An option that is added is found, and the list above is not empty."""
    names = {option for _, option in numeric_options()}
    assert {"--timer-scale", "--clock-mhz", "--mmio-ns", "--limit"} <= names


@pytest.mark.parametrize("value", NOT_FINITE)
def test_the_programs_of_the_package_take_no_such_number(value: str) -> None:
    for parser, more in ((settings.parser(), "--period"), (trace.parser(), "--seconds")):
        with (
            pytest.raises(SystemExit) as stopped,
            contextlib.redirect_stderr(io.StringIO()) as said,
        ):
            parser.parse_args(["--bar", "x", f"{more}={value}"])
        assert stopped.value.code == 2 and f"Not a number: '{value}'" in said.getvalue()


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e400", "1e13"])
def test_a_line_of_json_has_no_such_number(value: str) -> None:
    for line in (f'{{"op":"poll","timeout_ms":{value}}}', f'{{"op":"poll","n":{value}}}'):
        with pytest.raises(BadRequest, match="must be"):
            fields.parse(line.encode())
    with pytest.raises(BadRequest, match="Not a number"):
        fields.parse(b'{"op":"impair","what":"delay_us=nan"}')


def test_a_file_that_cannot_be_written_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in ("none", "file"):
        target = str(tmp_path / folder / "x")
        for command in (
            ("info", "--json", target),
            ("rtl", "-o", target),
            ("demo", "--pcap", target),
            ("perf", "write_bw", "--pcap", target),
        ):
            status, text = call(*command)
            assert status == 2 and f"there is no folder {tmp_path / folder}" in text
    status, text = call("interop", "--pcap-dir", str(tmp_path / "file" / "x"))
    assert status == 2 and text.splitlines()[-1].endswith("Not a directory")


def test_missing_tool_is_one_line_and_status_2(monkeypatch: pytest.MonkeyPatch) -> None:
    env.require_compiler.cache_clear()
    monkeypatch.setenv("PATH", "/nonexistent")
    status, text = call("test")
    env.require_compiler.cache_clear()
    assert status == 2
    assert text == "Error: g++, make not found: apt-get install g++ make\n"


def test_arguments_reach_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    def run(command: list[str], **more: object) -> int:
        seen.update(more, command=command)
        return 5

    monkeypatch.setattr(suite.subprocess, "call", run)
    status, _ = call("test", "--slow", "--seed", "7", "tests/sim", "-k", "lengths", "-x")
    assert status == 5
    assert seen["command"][-4:] == ["tests/sim", "-k", "lengths", "-x"]
    assert {"--slow", "-n", "--hypothesis-seed=7"} <= set(seen["command"])
    assert seen["env"]["COCOTB_RANDOM_SEED"] == "7"  # type: ignore[index]
    assert reached.SETTING not in seen["env"]  # type: ignore[operator]
    call("test", "--code-coverage", "tests/tools/test_cli.py::test_help")
    assert "-n" not in seen["command"]
    assert seen["env"][reached.SETTING] == "1"  # type: ignore[index]


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_path_that_does_not_exist_is_named(processes: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", processes, "tests/nope/test_a.py::test_b"],
        cwd=env.REPO, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert done.stderr.strip() == "ERROR: There is no tests/nope/test_a.py"


def test_arguments_that_choose_nothing_end_with_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite.subprocess, "call", lambda *_more, **_options: 5)
    status, text = call("test", "-k", "nothing")
    assert status == 5 and text == "Error: no test is chosen by these arguments\n"


@pytest.mark.parametrize(("name", "rest"), [("guest", "command"), ("pyverbs", "arguments")])
def test_options_behind_the_command_are_its_own(name: str, rest: str) -> None:
    """And in front of it, one that there is not is refused."""
    command = cli.rocinante.get_command(click.Context(cli.rocinante), name)
    assert command is not None
    found = command.make_context(name, ["--cards", "1", "run.py", "--cards", "9", "-x"]).params
    assert found["cards"] == 1
    assert found[rest][-3:] == ("--cards", "9", "-x")
    status, text = call(name, "--card", "1", "run.py")
    assert status == 2 and text.startswith("Error: No such option '--card'.")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [("rocinante per", "perf"), ("rocinante perf --si", "--size"), ("rocinante build u", "u55c")],
)
def test_the_shell_completes(words: str, wanted: str) -> None:
    """As docs/install.md says: commands, their options and their names."""
    environment = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    environment |= {"_ROCINANTE_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "sim.tools.cli"],
        env=os.environ | environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == [f"plain,{wanted}"]


def test_bootstrap_is_quick_and_passes_arguments(tmp_path: Path) -> None:
    """Only where the bootstrap made this environment: elsewhere it would set one up."""
    if not (env.REPO / ".venv" / "set-up").exists():
        pytest.skip("this checkout was not set up by ./rocinante")
    done = subprocess.run(
        [env.REPO / "rocinante", "info", "--json", "info.json"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "tools" in json.loads((tmp_path / "info.json").read_text())


def test_bootstrap_without_tools_prints_one_apt_line(tmp_path: Path) -> None:
    """No root, no sudo, no compiler: the line to run, and status 1."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("dirname", "readlink", "cat", "cmp", "sh"):
        found = next(
            Path(folder, name) for folder in ("/usr/bin", "/bin") if Path(folder, name).exists()
        )
        (tools / name).symlink_to(found)
    (tools / "id").write_text("#!/bin/sh\necho 1000\n")
    (tools / "id").chmod(0o755)
    copy = tmp_path / "check out"
    copy.mkdir()
    for name in ("rocinante", "requirements.lock"):
        (copy / name).write_bytes((env.REPO / name).read_bytes())
    done = subprocess.run(
        ["/bin/sh", str(copy / "rocinante"), "info"],
        env={"PATH": str(tools)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "sudo apt-get install g++ make python3 python3-venv libpython3-dev"
    )
    assert not (copy / ".venv").exists()


def test_bootstrap_passes_shellcheck() -> None:
    script = env.REPO / "rocinante"
    shellcheck = Path(sys.executable).parent / "shellcheck"
    done = subprocess.run([shellcheck, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert os.access(script, os.X_OK)
