"""The command line of ``rocinante package``: which packages, where, and what it refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from hdl.config import VERSION
from sim.machine.packages import command
from sim.rtl import env


def run(*words):
    return CliRunner().invoke(command.package, [str(word) for word in words])


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="there is no dpkg-deb")
def test_packages_that_are_named_are_built(tmp_path):
    """In the order in which they are named, and no other; the output names the files."""
    done = run("-o", tmp_path / "out", "module", "firmware")
    assert done.exit_code == 0, done.output
    paths = [Path(line) for line in done.output.splitlines()]
    assert [path.name for path in paths] == [
        f"rocinante-rdma-dkms_{VERSION}_all.deb",
        f"rocinante-firmware_{VERSION}_all.deb",
    ]
    assert sorted((tmp_path / "out").iterdir()) == sorted(paths)


def test_a_name_that_is_none(tmp_path):
    done = run("-o", tmp_path / "out", "kernel")
    assert done.exit_code == 2 and "'kernel' is not one of" in done.output
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    done = run("-o", tmp_path / "file" / "out", "module")
    assert done.exit_code == 2 and "cannot be written" in done.output


def test_without_dpkg(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    done = run("-o", tmp_path, "module")
    assert done.exit_code == 1
    assert "dpkg-deb is missing" in done.output


def test_files_are_where_all_is_built(monkeypatch, tmp_path):
    monkeypatch.setenv("ROCINANTE_BUILD_DIR", str(tmp_path))
    written = []
    monkeypatch.setitem(command._WRITERS, "module", written.append)
    assert run("module").exit_code == 0
    assert written == [env.build_root() / "package"] == [tmp_path / "package"]
