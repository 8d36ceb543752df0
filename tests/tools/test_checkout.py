"""The commit that generated files name, in checkouts made here."""

import shutil
import subprocess

import pytest

from sim.tools.checkout import commit, commit_time

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is missing")


def git(folder, *arguments):
    who = ("-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "commit.gpgsign=false")
    command = ["git", "-C", folder, *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "inner").mkdir()
    (folder / "inner" / "file").write_text("one\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "one")
    return folder


def test_commit_of_a_checkout(checkout):
    assert f"{commit(checkout):08x}" == git(checkout, "rev-parse", "HEAD")[:8]
    (checkout / "untracked").write_text("")
    assert commit(checkout)


def test_files_that_differ_have_no_commit(checkout):
    (checkout / "inner" / "file").write_text("two\n")
    assert commit(checkout) == 0


def test_no_checkout(checkout, tmp_path, monkeypatch):
    assert commit(tmp_path) == 0
    assert commit(checkout / "inner") == 0
    monkeypatch.setenv("PATH", "")
    assert commit(checkout) == 0


def test_time_of_a_commit(checkout, tmp_path):
    assert str(commit_time(checkout)) == git(checkout, "log", "-1", "--format=%ct")
    (checkout / "inside").mkdir()
    assert commit_time(checkout / "inside") == 0
    assert commit_time(tmp_path / "nowhere") == 0
