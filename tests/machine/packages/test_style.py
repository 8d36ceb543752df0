"""What the kernel's own checks say of the module's sources: checkpatch and sparse. Slow."""

from __future__ import annotations

import re
import subprocess
import tarfile

import pytest

from sim.machine import image
from sim.machine.packages import module
from sim.machine.releases import RELEASES
from sim.machine.toolchain import SOURCES
from sim.rtl.env import ToolError
from tests.machine.packages.chroot import chroot, install

pytestmark = pytest.mark.slow

#: The check, and what it reads.
CHECK = ("checkpatch.pl", "spelling.txt", "const_structs.checkpatch")


@pytest.fixture(scope="module")
def checkpatch():
    """The check of the release's kernel, of whose sources nothing else is kept."""
    try:
        apt = image._apt(RELEASES["12"].suite)
        series = ".".join(image._kernel(apt).split(".")[:2])

        def make(folder):
            whole = folder / "whole"
            apt.fetch_alone(f"linux-source-{series}", whole)
            (archive,) = whole.rglob("linux-source-*.tar.xz")
            with tarfile.open(archive) as tar:
                for one in tar:
                    name = one.name.rpartition("/scripts/")[2]
                    if name in CHECK and (data := tar.extractfile(one)) is not None:
                        (folder / name).write_bytes(data.read())
            subprocess.run(["rm", "-rf", whole], check=True)

        return image._kept(f"checkpatch-{series}", make) / CHECK[0]
    except ToolError as error:
        pytest.skip(str(error))


def test_checkpatch_has_nothing_to_say(checkpatch):
    files = [*(SOURCES / "kernel").glob("*.[ch]"), *(SOURCES / "include").glob("*.h")]
    assert len(files) > 10
    command = ["perl", checkpatch, "--no-tree", "--strict", "--terse", "--file", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("release", ["12", "13"])
def test_sparse_has_nothing_to_say(release, tmp_path):
    debian = chroot(release)
    install(debian, [module.write(tmp_path)])
    sources = f"/{module.SOURCE_FOLDER}"
    kernel = f"KDIR=/usr/src/linux-headers-{debian.kernel}"
    debian.read("make", "-C", sources, kernel, "clean")
    done = debian.run("make", "-C", sources, kernel, "C=2", "CHECK=sparse", "W=1")
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    assert len(re.findall(r"^ +CHECK ", text, re.MULTILINE)) > 10, text
    assert not re.findall(r"^.*\b(?:warning|error):.*$", text, re.MULTILINE)
