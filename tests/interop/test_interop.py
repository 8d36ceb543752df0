"""A live Linux guest and the whole NIC: the command as a user runs it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from hdl.config import NicConfig
from sim.bench import testbench
from sim.endpoint.frames import Deframer, framed
from sim.interop import command, image, lab, runs, traffic
from sim.interop.frames import is_roce
from sim.interop.image import GuestImage
from sim.interop.parties import Connection, ConnectionOptions
from sim.interop.relay import Relay
from sim.interop.scenarios import SCENARIOS, Scenario
from sim.interop.traffic import Message, exchange
from sim.rtl.env import REPO
from sim.wire.packets import reseal
from sim.wire.pcap import read_pcap
from tests.interop.qemu import need_qemu


def interop(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "sim.tools.cli", "interop", *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,  # the first time a model is built as well
    )


#: For the card of 512 bits: what a beat's width can change, as far as Linux sees it.
WIDE = ["read-ipv6", "eight-qps-ipv4", "eight-qps-ipv6", "psn-wrap", "bad-rkey"]
#: These, and one of each kind.
SOME = [*WIDE, "send-ipv4", "write-with-imm-ipv4", "atomic-fetch-and-add-ipv4", "ud-ipv4", "loss"]


def _each() -> list[str]:
    """Every scenario that is not long. Of those of both IP versions, every fourth is over IPv6,
    which has the most packets: 1 MiB in packets of 256 bytes.

    Without the networks of which ``bad-network`` is made; of these ``loss`` is counted below. And
    without what the wider card does, and two functions, which need a model of their own.
    """
    names = [one.name for one in SCENARIOS.values() if not one.long]
    both = [name.removesuffix("-ipv4") for name in names if name.endswith("-ipv4")]
    spared = {f"{name}-ipv{4 if i % 4 == 1 else 6}" for i, name in enumerate(both)}
    spared |= {"duplicates", "reorder", "two-functions", *WIDE}
    assert spared < set(names)
    return [name for name in names if name not in spared]


@pytest.mark.parametrize(
    "width, scenarios",
    [
        pytest.param(64, _each(), id="64-each", marks=pytest.mark.slow),
        pytest.param(64, [], id="64-all", marks=pytest.mark.slow),
        pytest.param(512, SOME, id="512-some"),
    ],
)
def test_interop(width: int, scenarios: list[str], tmp_path: Path) -> None:
    need_qemu()
    done = interop("--width", str(width), "--json", "-", *scenarios, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    facts = json.loads(done.stdout)
    assert facts["failed"] == facts["stopped"] == facts["not_run"] == 0
    assert facts["passed"] >= len(scenarios)
    assert {row["verdict"] for row in facts["scenarios"]} == {"passed"}
    assert facts["seconds"] < 900
    for row in facts["scenarios"]:
        frames = list(read_pcap(tmp_path / row["pcap"]))
        assert len(frames) >= row["packets"] > 0, row
        if row["name"] == "loss":
            for name in ("lost_out", "lost_in", "resent_by_nic", "resent_by_guest"):
                assert row["network"][name] > 0, row
        assert (row["network"] is not None) == bool(SCENARIOS[row["name"]].network)


class SpoilingRelay(Relay):
    """Changes what the card sends, as gateware with a fault would have sent it."""

    def __init__(self, one: socket.socket, other: socket.socket) -> None:
        self.ours, theirs = socket.socketpair()
        for work in (self._spoil_all, self._pass_back):
            threading.Thread(target=work, args=(one,), daemon=True).start()
        super().__init__(theirs, other)

    def _spoil_all(self, card: socket.socket) -> None:
        deframer = Deframer()
        while data := card.recv(1 << 16):
            for frame in deframer.feed(data):
                self.ours.sendall(framed(self.spoil(frame) if is_roce(frame) else frame))

    def _pass_back(self, card: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := self.ours.recv(1 << 16):
                card.sendall(data)

    @staticmethod
    def spoil(frame: bytes) -> bytes:
        raise NotImplementedError


def _changed(frame: bytes, place: int) -> bytes:
    changed = bytearray(frame)
    changed[place] ^= 1
    return bytes(changed)


#: What goes wrong over IPv4 without options: BTH at 42, extended headers at 54, data of a WRITE at
#: 70; by what it must be noticed.
SPOILERS = {
    "psn": (lambda frame: reseal(_changed(frame, 53)), "completions after|ended with"),
    "dest-qp": (lambda frame: reseal(_changed(frame, 49)), "completions after"),
    "msn": (
        lambda frame: reseal(_changed(frame, 57)) if frame[42] == 0x11 else frame,
        "faulty frames.* MSN ",
    ),
    "data": (
        lambda frame: reseal(_changed(frame, 80)) if frame[42] == 0x0A else frame,
        "guest: RDMA_WRITE of 200 bytes on QP 0: byte 10 differs",
    ),
    "icrc": (lambda frame: _changed(frame, len(frame) - 1), "completions after"),
    "none": (lambda frame: frame, ""),
}


def test_what_a_faulty_card_sends_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One fault after the other, each on a connection of its own; in the end there is none."""
    need_qemu()
    monkeypatch.setattr(lab, "Relay", SpoilingRelay)
    monkeypatch.setattr(traffic, "_PATIENCE", 3.0)  # enough without a fault: the last one shows it

    def write(parties, tally) -> None:
        connection = Connection.open(parties, ConnectionOptions())
        messages = [Message("RDMA_WRITE", 200, source) for source in (0, 1)]
        exchange([connection], messages, seed=1, tally=tally)

    testbench.build(config=NicConfig(width=64))
    with lab.Lab(image.build(), 64) as up:
        for name, (spoil, noticed) in SPOILERS.items():
            monkeypatch.setattr(SpoilingRelay, "spoil", staticmethod(spoil))
            row = runs.attempt(up, Scenario("write", "", write), tmp_path / f"{name}.pcap", 60)
            assert re.search(noticed, row.error) if noticed else not row.error, (name, row.error)


def test_guest_that_does_not_boot_shows_its_console(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here it is QEMU that complains, and has ended: one message, status 2, no traceback."""
    need_qemu()
    monkeypatch.setattr(lab, "EndpointClient", lambda *_, **__: contextlib.nullcontext())
    kernel = tmp_path / "vmlinux"
    kernel.write_bytes(b"no kernel")
    monkeypatch.setattr(command, "_prepare", lambda *_: GuestImage(kernel, kernel, ()))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(command.interop, ["psn-wrap"])
    assert done.exit_code == 2
    assert re.search(
        r"Error: The guest has not come up .*\(QEMU ended .*\n  \| qemu", done.stderr
    ), done.output


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
