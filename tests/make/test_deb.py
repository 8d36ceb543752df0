"""The writer of Debian packages: what dpkg and lintian ask of any package, and the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from hdl.config import VERSION
from sim.make import deb
from sim.make.deb import Deb, File
from sim.rtl import env

pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="there is no dpkg-deb")

THING = Deb(
    name="thing",
    version="1:2.0",
    architecture="all",
    fields={"Section": "net", "Depends": "other (>= 3)", "Description": "a thing\n of two lines"},
    files={"usr/bin/thing": File(b"#!/bin/sh\n", 0o755), "etc/thing.conf": File(b"x" * 1025)},
    copyright="Format: x\n",
    scripts={"postinst": "#!/bin/sh\n"},
)


def run(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    return deb.write(THING, tmp_path / "out")


def test_control_files(made, tmp_path):
    run("dpkg-deb", "--control", made, tmp_path / "control")
    assert (tmp_path / "control/control").read_text() == (
        "Package: thing\nVersion: 1:2.0\nArchitecture: all\n"
        f"Maintainer: {deb.MAINTAINER}\n"
        # four files, of which one has more than 1 KiB, and seven folders
        "Installed-Size: 12\n"
        "Section: net\nDepends: other (>= 3)\nDescription: a thing\n of two lines\n"
    )
    assert (tmp_path / "control/conffiles").read_text() == "/etc/thing.conf\n"
    assert (tmp_path / "control/postinst").stat().st_mode & 0o777 == 0o755
    run("dpkg-deb", "--extract", made, tmp_path / "root")
    sums = [line.split("  ") for line in (tmp_path / "control/md5sums").read_text().splitlines()]
    assert {name: digest for digest, name in sums} == {
        str(path.relative_to(tmp_path / "root")): hashlib.md5(path.read_bytes()).hexdigest()
        for path in (tmp_path / "root/usr").rglob("*")
        if path.is_file()
    }


def test_files(made, tmp_path):
    """Root's, of the time that was given, with modes that no umask changes."""
    assert made.name == "thing_2.0_all.deb"
    listed = [line.split() for line in run("dpkg-deb", "--contents", made).splitlines()]
    assert {line[1] for line in listed} == {"root/root"}
    assert {line[3] for line in listed} <= {"1970-01-01", "1970-01-02"}  # where this machine is
    modes = {line[5]: line[0] for line in listed}
    assert modes["./usr/bin/thing"] == "-rwxr-xr-x" and modes["./etc/thing.conf"] == "-rw-r--r--"
    assert {mode for name, mode in modes.items() if name.endswith("/")} == {"drwxr-xr-x"}
    run("dpkg-deb", "--extract", made, tmp_path / "root")
    documents = tmp_path / "root/usr/share/doc/thing"
    changes = gzip.decompress((documents / "changelog.gz").read_bytes()).decode()
    assert changes.startswith("thing (1:2.0) unstable; urgency=medium\n")
    assert changes.endswith(f" -- {deb.MAINTAINER}  Fri, 02 Jan 1970 00:00:00 +0000\n")
    assert (documents / "copyright").read_text() == "Format: x\n"


def test_the_same_parts_make_the_same_package(made, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert deb.write(THING, tmp_path / "again").read_bytes() == made.read_bytes()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86401")
    assert deb.write(THING, tmp_path / "later").read_bytes() != made.read_bytes()


def test_time_is_the_commits(monkeypatch):
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    done = subprocess.run(
        ["git", "-C", env.REPO, "log", "-1", "--format=%ct"], capture_output=True, check=False
    )
    assert deb.epoch() == int(done.stdout or 1_700_000_000)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "7")
    assert deb.epoch() == 7
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "now")
    with pytest.raises(ValueError, match="not 'now'"):
        deb.epoch()


def test_what_dpkg_refuses_is_told(tmp_path):
    with pytest.raises(env.BuildError, match="package name"):
        deb.write(Deb("Th ing", "1", "all", {"Description": "x"}, {}, ""), tmp_path)


def test_version_is_the_projects():
    """The one that pyproject.toml tells hatch to read."""
    told = tomllib.loads((env.FILES / "pyproject.toml").read_text())["tool"]["hatch"]["version"]
    found = re.search(told["pattern"], (env.REPO / told["path"]).read_text())
    assert found is not None and found["version"] == VERSION
