"""Debian guests in front of simulated cards. All boot machines, and so are slow."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.machine.debian import run
from tests.machine.test_command import COMMAND, guest

pytestmark = pytest.mark.slow

#: Of the whole, in which a machine boots.
PATIENCE_S = 600
SMALL = ("-n", "10", "-s", "1024", "-r", "8")


class Started:
    """The command in the background, with a folder for temporary files of its own."""

    def __init__(self, folder, *words):
        self._out, self._folder = folder / "out", folder / "tmp"
        self._folder.mkdir()
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(
                [*COMMAND, *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "TMPDIR": str(self._folder)},
            )

    @property
    def text(self):
        return self._out.read_text(errors="replace")

    def says(self, what):
        until = time.monotonic() + PATIENCE_S
        while what not in self.text:
            assert self.process.poll() is None and time.monotonic() < until, self.text
            time.sleep(0.1)

    def children(self):
        """Processes that were started for it: each has a path below the folder in its arguments."""
        found = {}
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes()
            except OSError:
                continue
            if str(self._folder).encode() in words:
                found[int(path.parent.name)] = words.decode(errors="replace")
        return found

    def ends(self, status):
        assert self.process.wait(60) == status, self.text
        until = time.monotonic() + 30
        while (left := self.children()) and time.monotonic() < until:
            time.sleep(0.1)
        assert not left
        assert not list(self._folder.glob("rocinante*"))


def test_pingpong_needs_no_option():
    out, err = run("ibv_rc_pingpong", *SMALL)
    assert re.search(r"^server: 20480 bytes in", out, re.M), out
    assert re.search(r"^client: 10 iters in", out, re.M)
    assert "client: ibv_rc_pingpong -n 10 -s 1024 -r 8 -g 0 server" in err
    for card in (0, 1):
        assert re.search(rf"^card {card}: .*rx_send_requests 10\b", err, re.M), err
    assert re.search(r"^\d+ ns of simulated time so far$", err, re.M)


def test_output_and_status_are_the_commands():
    script = "uname -r; printf 'a\\tb\\0c'; cat; echo problem >&2; ibv_devices; exit 7"
    out, err = run("bash", "-c", script, status=7)
    assert out.startswith("6.1.") and "a\tb\0cproblem\n" in out and "rocinante0" in out
    assert re.search(r"^card 0: .*control_requests \d+", err, re.M), err


def test_who_breaks_rings_breaks_his_own():
    """A process has the events of its own objects, and the device goes on for the next ones."""
    script = Path(__file__).with_name("breaks_rings.py").read_text()
    out, err = run("python3", "-c", script, "rocinante0")
    assert out.split() == ["QP_FATAL", "CQ_ERR", "done"]
    assert re.search(r"^card 0: .*queue_errors [1-9]", err, re.M), err


def test_two_functions_are_two_devices():
    script = "lspci -s 4; lspci -s 5; ibv_devices; ip -br addr"
    out, _ = run("--functions", "2", "bash", "-c", script)
    assert out.count("106a") == 2 and "rocinante1" in out
    assert "10.0.0.1/24" in out and "10.0.0.3/24" in out


@pytest.mark.parametrize("peer", ["card", "soft-roce"])
def test_a_peer_is_a_guest_of_its_own(peer, tmp_path):
    pcap = tmp_path / "frames.pcap"
    out, err = run("--peer", peer, "--pcap", str(pcap), "ibv_rc_pingpong", *SMALL)
    assert "server: 20480 bytes" in out and "client: 20480 bytes" in out
    assert re.search(r"^card 0: .*rx_send_requests 1\d\b", err, re.M), err
    assert pcap.stat().st_size > 20 * 1024


def test_guests_of_a_pair_reach_each_other():
    script = "ping -c 2 -W 5 server && ping -c 2 -W 5 fd00::1"
    out, _ = run("--peer", "card", "sleep", "1", "::", "bash", "-c", script)
    assert out.count("2 received") == 2


def test_debian_13():
    out, _ = run("--release", "13", "bash", "-c", "uname -r; ibv_devinfo")
    assert out.startswith("6.12.") and "PORT_ACTIVE" in out


def test_a_panic_is_told():
    _, err = run(
        "bash", "-c", "echo 1 >/proc/sys/kernel/sysrq; echo c >/proc/sysrq-trigger", status=1
    )
    assert "Error: guest: the guest's kernel has panicked: sysrq triggered crash" in err


def test_a_command_that_hangs_is_told():
    done = guest("--timeout", "5", "sleep", "1000000")
    assert done.returncode == 124
    assert "stopped after 5 s" in done.stderr and "Card 0" in done.stderr
    assert "guest's console:" in done.stderr


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_nothing_is_left_behind(number, status, tmp_path):
    started = Started(tmp_path, "bash", "-c", "echo here; sleep 1000000")
    started.says("here")
    assert len(started.children()) >= 2
    started.process.send_signal(number)
    started.ends(status)


def test_a_card_that_dies_is_told(tmp_path):
    started = Started(tmp_path, "bash", "-c", "echo here; sleep 1000000")
    started.says("here")
    (card,) = [one for one, words in started.children().items() if "\0card\0" in words]
    os.kill(card, signal.SIGKILL)
    started.ends(1)
    assert "Error: the cards have ended with status -9" in started.text


def test_a_shell_has_the_terminal():
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*COMMAND], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    text = b""

    def until(what):
        nonlocal text
        end = time.monotonic() + PATIENCE_S
        while what not in text:
            assert time.monotonic() < end, text
            if select.select([ours], [], [], 1)[0]:
                text += os.read(ours, 4096)

    until(b"# ")
    os.write(ours, b"echo $((6 * 7)); sleep 1000\r")
    until(b"42\r\n")
    os.write(ours, b"\x03")  # for the guest's program
    os.write(ours, b"stty size; exit 3\r")
    until(b"ns of simulated time so far")
    assert process.wait(60) == 3
    os.close(ours)
