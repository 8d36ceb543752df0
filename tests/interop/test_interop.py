"""A live Linux guest and the whole NIC: the command as a user runs it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sim.env import REPO
from sim.interop import lab
from sim.interop.guest import GuestError
from sim.interop.image import GuestImage
from sim.pcap import read_pcap

#: What the command says when it may not install what it needs: the only reason to skip.
LACKING = re.compile(r"Missing packages: apt-get install .*|.*has no apt-get.*|.*not Debian.*")


def interop(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "sim.cli", "interop", *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,  # the first time a model is built as well
    )


@pytest.mark.parametrize(
    "width, scenarios",
    [
        pytest.param(64, [], id="64-all"),
        pytest.param(512, ["read-ipv4", "eight-qps-*", "psn-wrap", "bad-rkey"], id="512-some"),
    ],
)
def test_interop(width: int, scenarios: list[str], tmp_path: Path) -> None:
    done = interop("--width", str(width), "--json", "-", *scenarios, cwd=tmp_path)
    if done.returncode == 2 and (lacking := LACKING.search(done.stderr)):
        pytest.skip(lacking[0])
    assert done.returncode == 0, done.stderr[-4000:]
    facts = json.loads(done.stdout)
    assert facts["failed"] == 0 and facts["passed"] >= len(scenarios)
    assert facts["seconds"] < 600
    for row in facts["scenarios"]:
        frames = list(read_pcap(tmp_path / row["pcap"]))
        assert len(frames) >= row["packets"] > 0, row


def test_guest_that_does_not_boot_shows_its_console(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here it is QEMU that complains; and it has ended."""
    if shutil.which("qemu-system-x86_64") is None:
        pytest.skip("no QEMU here; with the right to, the first test installs it")
    monkeypatch.setattr(lab, "EndpointClient", lambda *_, **__: contextlib.nullcontext())
    kernel = tmp_path / "vmlinux"
    kernel.write_bytes(b"no kernel")
    with pytest.raises(GuestError, match=r"has not come up .*\(QEMU ended .*\n  \| qemu"):
        lab.Lab(GuestImage(kernel, kernel, ()), 64)


def test_scenarios_are_listed_and_chosen(tmp_path: Path) -> None:
    listed = interop("--list", cwd=tmp_path)
    assert listed.returncode == 0
    names = [line.split()[0] for line in listed.stdout.splitlines()]
    assert {"send-ipv4", "read-ipv6", "psn-wrap", "bad-rkey"} <= set(names)
    some = interop("--list", "write-with*", "psn-wrap", cwd=tmp_path)
    assert [line.split()[0] for line in some.stdout.splitlines()] == [
        "write-with-imm-ipv4",
        "write-with-imm-ipv6",
        "psn-wrap",
    ]
    wrong = interop("nothing-such", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "No scenario 'nothing-such'; --list shows them" in wrong.stderr


def test_shell_of_the_guest_passes_shellcheck() -> None:
    shellcheck = Path(sys.executable).parent / "shellcheck"
    script = REPO / "sim/interop/guest/init"
    done = subprocess.run(
        [shellcheck, "-s", "dash", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
