"""The Debian package of the firmware: what is in it, and that it runs from there alone."""

import json
import shutil
import struct
import subprocess
import sys

import pytest

from hdl.csr.map import CsrMap
from sim.make import package
from sim.rtl import env
from tests.firmware.fake_hardware import finish
from tests.firmware.test_daemon import MAC, START_S, Card
from tests.firmware.test_registers import CONFIG, drive

pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="there is no dpkg-deb")


@pytest.fixture(scope="module")
def deb(tmp_path_factory):
    return package.build(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def root(deb, tmp_path_factory):
    """The package, installed below a folder."""
    folder = tmp_path_factory.mktemp("root")
    (folder / "var/lib/dpkg/info").mkdir(parents=True)
    (folder / "var/lib/dpkg/updates").mkdir()
    (folder / "var/lib/dpkg/status").touch()
    subprocess.run(
        ["dpkg", f"--root={folder}", "--force-depends", "--force-not-root", "-i", deb],
        check=True,
        capture_output=True,
    )
    return folder


def isolated(root, *options, program="rocinante-firmware"):
    """A program of the package, in a Python that has the standard library alone."""
    return [sys.executable, "-I", "-S", root / "usr/bin" / program, *options]


def test_control(deb):
    fields = subprocess.run(
        ["dpkg-deb", "--field", deb], check=True, capture_output=True, text=True
    ).stdout
    assert f"Version: {env.package_version('rocinante')}\n" in fields
    assert "Depends: python3 (>= 3.11)\n" in fields and "Architecture: all\n" in fields
    assert deb.name == f"rocinante-firmware_{env.package_version('rocinante')}_all.deb"


def test_what_is_in_it(deb):
    """All files are root's; the firmware's modules, no gateware, no tests."""
    listed = subprocess.run(
        ["dpkg-deb", "--contents", deb], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert {line.split()[1] for line in listed} == {"root/root"}
    files = {line.split()[-1].removeprefix("./") for line in listed if line[0] == "-"}
    library = "usr/lib/rocinante-firmware"
    inside = {name.removeprefix(f"{library}/") for name in files if name.startswith(library)}
    assert inside == {*map(str, package.modules()), "hdl/csr/rows.json"}
    assert {"firmware/takeover.py", "firmware/daemon/command.py", "hdl/csr/map.py"} <= inside
    assert not [name for name in inside if name.split("/")[0] not in ("firmware", "hdl")]
    assert not {"hdl/nic.py", "hdl/ports/rows.py"} & inside
    assert files - {f"{library}/{name}" for name in inside} == {
        "usr/bin/rocinante-firmware",
        "usr/bin/rocinante-trace",
        "usr/lib/systemd/system/rocinante-firmware@.service",
        "usr/share/doc/rocinante-firmware/changelog.gz",
        "usr/share/doc/rocinante-firmware/copyright",
        "usr/share/doc/rocinante-firmware/firmware_service.md",
    }
    assert [line[:10] for line in listed if "usr/bin/r" in line] == ["-rwxr-xr-x"] * 2


def test_the_same_sources_make_the_same_package(deb, tmp_path):
    assert package.build(tmp_path).read_bytes() == deb.read_bytes()


def test_it_says_what_it_can(root):
    done = subprocess.run(isolated(root, "--help"), check=True, capture_output=True, text=True)
    assert done.stdout.startswith("usage: rocinante-firmware ")
    command = isolated(root, "--help", program="rocinante-trace")
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("usage: rocinante-trace ")


def test_it_reads_a_card(root, tmp_path):
    path, csr = tmp_path / "resource0", CsrMap(CONFIG)
    image = bytearray(1 << 20)
    for name in ("magic", "map_version", *(one for one in csr.names("core") if "config_" in one)):
        value = csr.field(f"core.{name}", "value").reset
        struct.pack_into("<I", image, csr.address(f"core.{name}"), value)
    path.write_bytes(image)
    command = isolated(root, "--bar", path, "--check")
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout)["qps"] == CONFIG.qps
    assert not list(root.rglob("__pycache__"))


def test_it_serves_a_card(root, tmp_path):
    """A queue pair and a region come and go: it knows the rows of the tables without Amaranth."""
    card = Card(tmp_path / "bar")
    options = ("--bar", f"unix:{card.path}", *MAC, "--state", tmp_path / "state")

    async def ask(command, **fields):
        answer = card.ask(command, **fields)
        assert answer is not None, command
        return answer

    with subprocess.Popen(isolated(root, *options), stderr=subprocess.PIPE) as process:
        try:
            assert json.loads(process.stderr.readline())["event"] == "started"
            finish(drive(ask))
            process.terminate()
            assert process.wait(START_S) == 0
        finally:
            process.kill()
    assert {"qp_cfg", "mr", "cq"} <= {name for name, rows in card.rows.items() if rows}


def test_unit(root):
    """systemd knows each setting, and finds the program."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    unit = root / "usr/lib/systemd/system/rocinante-firmware@.service"
    done = subprocess.run(
        ["systemd-analyze", "verify", f"--root={root}", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = [line for line in done.stderr.splitlines() if unit.name in line]
    assert not [line for line in complaints if "Unknown" in line or "Invalid" in line], done.stderr
