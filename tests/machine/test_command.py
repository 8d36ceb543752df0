"""The command line of ``rocinante guest``: what it refuses, and how it says what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sim.machine.command import _check
from sim.machine.pairs import sides

COMMAND = (sys.executable, "-P", "-m", "sim.tools.cli", "guest")


def guest(*words, **environment):
    return subprocess.run(
        [*COMMAND, *words],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize(
    "command, server, client",
    [
        ("ibv_rc_pingpong -e -n 5", "ibv_rc_pingpong -e -n 5 -g 0", "... -g 0 server"),
        ("ibv_ud_pingpong -g 1", "ibv_ud_pingpong -g 1", "... server"),
        ("/usr/bin/ib_write_bw -s 64", "/usr/bin/ib_write_bw -s 64", "... server"),
        ("ib_read_lat", "ib_read_lat", "... server"),
        ("rping -C 3", "rping -C 3 -s", "rping -C 3 -c -a server"),
        ("ucmatose", "ucmatose", "ucmatose -s server"),
        ("rdma_server -p 7", "rdma_server -p 7", "rdma_client -p 7 -s server"),
        ("sleep 1 :: ping -c 1 server", "sleep 1", "ping -c 1 server"),
    ],
)
def test_a_program_has_two_sides(command, server, client):
    found = sides(command.split())
    assert [" ".join(one) for one in found] == [server, client.replace("...", command)]


@pytest.mark.parametrize(
    "command", ["", "ibv_devinfo -v", "ib_write_bw --help", "rping -s", "ucmatose -s 10.0.0.1"]
)
def test_another_command_has_one(command):
    assert sides(command.split()) == (command.split(),)


@pytest.mark.parametrize("command", [":: true", "true ::", "a :: b :: c"])
def test_a_side_has_a_command(command):
    with pytest.raises(ValueError, match="SERVER :: CLIENT"):
        sides(command.split())


def test_two_sides_get_two_cards_unless_somebody_else_has_the_other_one():
    def cards(count, peer, commands):
        chosen = {"cards": count, "peer": peer}
        _check(commands, chosen)
        return chosen["cards"]

    assert cards(None, "none", (["a"], ["b"])) == 2
    assert cards(1, "none", (["a"], ["b"])) == 1
    assert cards(None, "none", (["a"],)) == 1
    assert cards(None, "card", (["a"], ["b"])) == 1


@pytest.mark.parametrize(
    "words, reason",
    [
        (["--cards", "2", "--peer", "card", "true"], "--peer card"),
        (["--cards", "3", "true"], "--cards"),
        (["--release", "11", "true"], "--release"),
        (["--timeout", "0", "true"], "--timeout"),
        (["--impair", "loss=2", "true"], "--impair"),
        (["--mac", "01:00:00:00:00:01", "true"], "--mac"),
        (["--pcap", "/nowhere/at.pcap", "true"], "--pcap"),
        (["true", "::"], "SERVER :: CLIENT"),
        ([], "COMMAND is missing"),
    ],
)
def test_refusals_are_one_line(words, reason):
    done = guest(*words)
    assert done.returncode == 2 and reason in done.stderr
    assert done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1


def test_options_of_the_command_are_its_own():
    """What stands behind the program is not this command's."""
    done = guest("--cards", "2", "--peer", "card", "ibv_devinfo", "--release", "99")
    assert "--peer card" in done.stderr


def fake(folder: Path, **programs: str) -> str:
    """A PATH whose first folder has these shell scripts."""
    folder.mkdir()
    for name, text in programs.items():
        path = folder / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


TARGETS = 'case "$*" in *indextargets*) echo "file:/srv/packages bookworm Debian"; exit;; esac\n'


@pytest.mark.parametrize(
    "script, reason",
    [
        ("echo 'file:/srv/packages noble Ubuntu'", "no release of Debian"),
        (f"{TARGETS}echo 'E: Failed to fetch it' >&2; exit 100", "E: Failed to fetch it"),
    ],
)
def test_packages_that_cannot_be_had_are_one_line(tmp_path, script, reason):
    build = tmp_path / "build"
    done = guest(
        "true", PATH=fake(tmp_path / "bin", apt_get=script), ROCINANTE_BUILD_DIR=str(build)
    )
    assert done.returncode == 2 and reason in done.stderr.splitlines()[-1]
    assert not list(build.glob("machine/new*")) and not list(build.glob("machine/qemu-*/"))
