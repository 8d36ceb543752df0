"""The firmware as a process: its options, log, signals, service manager, and journal."""

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from firmware.daemon.bars import ANSWER, BAR_BYTES, REQUEST
from firmware.daemon.notify import ServiceManager
from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import ControlCommand as C
from hdl.config import VERSION
from hdl.csr.map import CsrMap
from sim.rtl.env import REPO
from tests.firmware.test_registers import CONFIG, FakeBus

START_S = 60
MAC = ("--mac", "02:00:00:00:00:01")


class Card(FakeBus):
    """The registers of a card on a unix socket, served by a thread; ``ask`` is its driver.

    ``deaf``: the firmware gets no more answers."""

    def __init__(self, path, config=CONFIG):
        super().__init__(config)
        self.path, self.deaf = path, False
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(1)
        self.requests = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            line, _ = self._listener.accept()
            with line, contextlib.suppress(OSError):
                while len(octets := line.recv(REQUEST.size, socket.MSG_WAITALL)) == REQUEST.size:
                    while self.deaf:
                        time.sleep(0.01)
                    what, addr, value = REQUEST.unpack(octets)
                    if what:
                        asyncio.run(self.write(addr, value))
                    else:
                        line.sendall(ANSWER.pack(asyncio.run(self.read(addr))))

    def ask(self, command, **fields):
        """The answer to a request of the driver, None for ERR."""
        asked, answered = abi.structures(command)
        self.answer, self.writable = None, 1 + answered.size
        self.requests += 1
        self.values["counters.control_requests.value"] = self.requests
        self.request = bytes([command]) + asked.pack(fields)
        ends = time.monotonic() + START_S
        while self.answer is None:
            assert time.monotonic() < ends
            time.sleep(0.001)
        return None if self.answer[0] else answered.unpack(self.answer[1:])


class Daemon:
    """The process, with options; ``lines`` are those of its log."""

    def __init__(self, *options, **environment):
        command = [sys.executable, "-m", "firmware.daemon", *map(str, options)]
        self.process = subprocess.Popen(
            command, cwd=REPO, env=os.environ | environment, stderr=subprocess.PIPE, text=True
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def line(self):
        return json.loads(self.process.stderr.readline())

    def ended(self):
        """Exit status, and what is left of the log."""
        _, rest = self.process.communicate(timeout=START_S)
        return self.process.returncode, [json.loads(line) for line in rest.splitlines()]


@pytest.fixture
def card(tmp_path):
    return Card(tmp_path / "bar")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serves_until_a_signal(card, number):
    with Daemon("--bar", f"unix:{card.path}", *MAC, "--vlan", "1=5") as daemon:
        started = daemon.line()
        assert started["event"] == "started" and started["level"] == "info"
        assert started["mac"] == "02:00:00:00:00:01" and not started["taken_over"]
        assert started["version"] == started["card_version"] == VERSION
        assert started["card_commit"] == ""
        assert card.ask(C.CREATE_PD).pdn == 0
        assert card.ask(C.DESTROY_PD, pdn=7) is None
        refused = daemon.line()
        assert (refused["event"], refused["why"]) == ("refused", "No PD 0x7")
        daemon.process.send_signal(number)
        status, (stopped,) = daemon.ended()
        assert (status, stopped["event"], stopped["served"]) == (0, "stopped", 2)
    assert card.values["port.mac_low.value"] == 2
    assert card.values["port.control.enable"] == 1
    assert card.values["port.control.lossless"] == 0


def test_a_card_that_has_broken(tmp_path):
    """Said once, as is its end."""
    card = Card(tmp_path / "bar", replace(CONFIG, parity=True))
    with Daemon("--bar", f"unix:{card.path}", *MAC) as daemon:
        assert daemon.line()["event"] == "started"
        card.values["parity.tables.value"] = 1 << 2
        card.values["parity.status.broken"] = 1
        broken = daemon.line()
        assert (broken["level"], broken["tables"]) == ("error", ["qp_tx"])
        time.sleep(0.05)
        card.values["parity.status.broken"] = 0
        assert daemon.line()["event"] == "the card runs again"


def test_a_card_that_needs_memory_is_refused(tmp_path):
    """Rows of its QPs would lie in memory that the daemon does not give."""
    card = Card(tmp_path / "bar", replace(CONFIG, qps=64, hot_qps=16))
    with Daemon("--bar", f"unix:{card.path}", *MAC) as daemon:
        status, lines = daemon.ended()
        assert status and "16 QPs on chip" in json.dumps(lines)


def test_journal(card, tmp_path):
    """Killed, and started again: handles stay what they are."""
    options = ("--bar", f"unix:{card.path}", *MAC, "--state", tmp_path / "state")
    with Daemon(*options) as daemon:
        assert not daemon.line()["taken_over"]
        assert card.ask(C.CREATE_PD).pdn == 0
        assert card.ask(C.CREATE_PD).pdn == 1
        daemon.process.kill()
        assert daemon.ended() == (-signal.SIGKILL, [])
    with Daemon(*options) as daemon:
        started = daemon.line()
        assert started["taken_over"] and started["objects"]["pds"] == 2
        assert card.ask(C.DESTROY_PD, pdn=0) is not None
        assert card.ask(C.CREATE_PD).pdn == 0
        daemon.process.terminate()
        assert daemon.ended()[0] == 0
    card.values["core.function0_status.device"] = 15  # a driver is there
    card.rows["mr"][3] = [2] + [0] * (len(card.shadows["mr"]) - 1)
    (tmp_path / "state").unlink()
    with Daemon(*options) as daemon:
        status, (error,) = daemon.ended()
        assert status == 1
        assert "1 regions of a firmware before, and there is no journal" in error["event"]
    with Daemon(*options[:-2]) as daemon:
        assert daemon.ended()[0] == 1


def test_service_manager_and_watchdog(card, tmp_path):
    """It is told that the daemon serves, that it lives while it does, and that it ends; a daemon
    that waits for ever for a register says nothing more."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(START_S)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
        with Daemon("--bar", f"unix:{card.path}", *MAC, **environment) as daemon:
            ready = manager.recv(1000).decode().splitlines()
            assert ready == ["READY=1", f"STATUS=Serves unix:{card.path}"]
            times = []
            for _ in range(4):
                assert manager.recv(1000) == b"WATCHDOG=1"
                times.append(time.monotonic())
            assert times[-1] - times[0] > 0.2
            card.deaf = True
            time.sleep(0.5)
            while select.select([manager], [], [], 0)[0]:  # from before
                assert manager.recv(1000) == b"WATCHDOG=1"
            assert not select.select([manager], [], [], 1)[0]
            card.deaf = False
            assert manager.recv(1000) == b"WATCHDOG=1"
            daemon.process.terminate()
            while (told := manager.recv(1000)) == b"WATCHDOG=1":
                pass
            assert told == b"STOPPING=1"


def test_whom_the_watchdog_is_for(tmp_path):
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        paces = [
            ServiceManager(environment).pace
            for environment in (
                {},
                {"WATCHDOG_USEC": "1000000"},
                {"NOTIFY_SOCKET": path},
                {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "1000000"},
                {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"},
            )
        ]
        assert paces == [None, None, None, 0.5, None]
    ServiceManager({"NOTIFY_SOCKET": path}).tell(READY="1")  # nobody listens: that is no error
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{tmp_path}")
        ServiceManager({"NOTIFY_SOCKET": f"@{tmp_path}"}).tell(READY="1", STATUS="x")
        assert manager.recv(100) == b"READY=1\nSTATUS=x"


def test_check_changes_nothing(tmp_path):
    """On a mapped file that holds the registers of a card: what a card says of itself."""
    path, csr = tmp_path / "resource0", CsrMap(CONFIG)
    image = bytearray(BAR_BYTES)
    for name in ("magic", "map_version", *(one for one in csr.names("core") if "config_" in one)):
        value = csr.field(f"core.{name}", "value").reset
        struct.pack_into("<I", image, csr.address(f"core.{name}"), value)
    version = csr.encode("core.version", major=4, minor=5, patch=678)
    struct.pack_into("<I", image, csr.address("core.version"), version)
    struct.pack_into("<I", image, csr.address("core.config_commit"), 0xABC0123)
    path.write_bytes(image)
    with Daemon("--bar", path, "--check") as daemon:
        daemon.process.wait(START_S)
        assert daemon.ended() == (0, [])
    done = subprocess.run(
        [REPO / "rocinante", "firmware", "--bar", path, "--check"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert (found["qps"], found["mrs"], found["srq"]) == (16, 32, True)
    assert (found["version"], found["commit"]) == ("4.5.678", "0abc0123")
    assert path.read_bytes() == image


@pytest.mark.parametrize(
    ("place", "value", "why"),
    [
        ("core.magic", 0xFFFFFFFF, "core.magic is 0xffffffff, not 0x524f4349 (nothing answers"),
        ("core.map_version", 7, "core.map_version is 0x00000007, not 0x00000003"),
        ("core.config_qps", 5, "configuration cannot be: qps must be a power of two, not 5"),
    ],
)
def test_what_is_no_card(tmp_path, place, value, why):
    path, csr = tmp_path / "resource0", CsrMap(CONFIG)
    image = bytearray(BAR_BYTES)
    for name in ("magic", "map_version", *(one for one in csr.names("core") if "config_" in one)):
        reset = csr.field(f"core.{name}", "value").reset
        struct.pack_into("<I", image, csr.address(f"core.{name}"), reset)
    struct.pack_into("<I", image, csr.address(place), value)
    path.write_bytes(image)
    with Daemon("--bar", path, *MAC) as daemon:
        status, (error,) = daemon.ended()
    assert (status, error["level"]) == (1, "error")
    assert why in error["event"]
    assert path.read_bytes() == image


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ((), "the following arguments are required: --bar"),
        (("--bar", "x"), "--mac is needed"),
        (("--bar", "x", "--mac", "2:0:0:0:0:1"), "must be as 02:00:00:00:00:01"),
        (("--bar", "x", "--mac", "01:00:00:00:00:01"), "no address of one card"),
        (("--bar", "x", *MAC, "--period", "2"), "it must be 1e-06 to 1, not 2.0"),
        (("--bar", "x", *MAC, "--period", "never"), "Not a number: 'never'"),
        (("--bar", "x", *MAC, "--size", "many"), "'many' is no number"),
        (("--bar", "x", *MAC, "--vlan", "5"), "must be [FUNCTION:]INDEX=VALUE, not '5'"),
    ],
)
def test_bad_options(options, why):
    done = subprocess.run(
        [sys.executable, "-m", "firmware.daemon", *options],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert why in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("option", "why"),
    [
        (("--vlan", "0=4095"), "--vlan: A VLAN must be 0 to 4094, not 4095"),
        (("--pkey", "99=0x8001"), "--pkey: No P_Key 99"),
        (("--pkey", "1:0=0x8001"), "--pkey: the card has no function 1"),
    ],
)
def test_options_that_the_card_does_not_take(card, option, why):
    with Daemon("--bar", f"unix:{card.path}", *MAC, *option) as daemon:
        status, (error,) = daemon.ended()
    assert (status, error["event"]) == (1, why)


def test_small_bars(tmp_path):
    path = tmp_path / "resource0"
    path.write_bytes(bytes(4096))
    with Daemon("--bar", path, *MAC) as daemon:
        status, (error,) = daemon.ended()
    assert status == 1 and "0x1000 bytes, the registers need 0x1f000" in error["event"]
    assert not any(path.read_bytes())
