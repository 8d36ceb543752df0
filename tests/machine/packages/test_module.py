"""The package of the kernel module: its contents, its scripts, and that dkms builds from it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hdl.config import VERSION
from sim.machine.packages import module
from sim.machine.toolchain import SOURCES
from sim.make import header
from tests.machine.packages.chroot import chroot, install

pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="there is no dpkg-deb")


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return module.write(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def unpacked(package, tmp_path_factory):
    """All of the package: its files, and in DEBIAN what dpkg reads."""
    folder = tmp_path_factory.mktemp("unpacked") / "root"
    subprocess.run(["dpkg-deb", "--raw-extract", package, folder], check=True)
    return folder


def test_control(package, unpacked):
    fields = (unpacked / "DEBIAN/control").read_text()
    assert package.name == f"rocinante-rdma-dkms_{VERSION}_all.deb"
    for line in (
        *("Package: rocinante-rdma-dkms", f"Version: {VERSION}", "Architecture: all"),
        *("Depends: dkms (>= 3.0.3-4~)", "Recommends: librocinante-rdmav34"),
    ):
        assert f"{line}\n" in fields


def test_sources_are_the_drivers(unpacked):
    """All that Kbuild names and what those files include; the ABI is the generated one."""
    folder = unpacked / module.SOURCE_FOLDER
    objects = re.findall(r"\b(\w+)\.o\b", (folder / "Kbuild").read_text())
    kernel = SOURCES / "kernel"
    assert {f"{one}.c" for one in objects if one != "rocinante"} == {
        path.name for path in folder.glob("*.c")
    }
    for path in folder.glob("*.c"):
        assert path.read_bytes() == (kernel / path.name).read_bytes()
        included = set(re.findall(r'^#include "(.*)"', path.read_text(), re.MULTILINE))
        assert included <= {one.name for one in folder.glob("*.h")}
    assert (folder / "virtio_rdma.h").read_text() == header.text()
    assert "GPL-2" in (unpacked / "usr/share/doc/rocinante-rdma-dkms/copyright").read_text()


def test_no_version_is_left_open(unpacked):
    files = [path for path in unpacked.rglob("*") if path.is_file()]
    assert not [path for path in files if b"#MODULE_VERSION#" in path.read_bytes()]
    settings = (unpacked / module.SOURCE_FOLDER / "dkms.conf").read_text()
    assert f'PACKAGE_VERSION="{VERSION}"\n' in settings
    assert (unpacked / f"usr/src/rocinante-rdma-{VERSION}").is_dir()  # as dkms looks for it


@pytest.mark.parametrize(
    ("kernel", "builds"),
    [
        *(("5.10.0-30-amd64", False), ("6.0.0-6-amd64", False), ("6.1.0-50-amd64", True)),
        *(("6.12.117+deb13-amd64", True), ("7.0.1-amd64", True), ("10.1-amd64", True)),
    ],
)
def test_kernels_that_it_is_built_for(unpacked, kernel, builds):
    settings = (unpacked / module.SOURCE_FOLDER / "dkms.conf").read_text()
    (pattern,) = re.findall('^BUILD_EXCLUSIVE_KERNEL="(.*)"$', settings, re.MULTILINE)
    done = subprocess.run(["bash", "-c", "[[ $1 =~ $2 ]]", "-", kernel, pattern], check=False)
    assert (done.returncode == 0) == builds


@pytest.fixture
def told(tmp_path):
    """A function: what a script with some arguments tells dkms, by lines."""
    log = tmp_path / "log"
    for name, label in (("dkms", "dkms"), ("common.postinst", "common")):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{label} $*" >>{log}\necho added\n')
        (tmp_path / name).chmod(0o755)

    def run(text: str, *words: str) -> list[str]:
        log.write_text("")
        text = text.replace("/usr/lib/dkms/common.postinst", str(tmp_path / "common.postinst"))
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        subprocess.run(["sh", "-c", text, "script", *words], check=True, env=environment)
        return log.read_text().splitlines()

    return run


def test_scripts_tell_dkms(unpacked, told):
    """postinst when the package is configured, prerm when it goes; else nothing."""
    postinst, prerm = ((unpacked / "DEBIAN" / one).read_text() for one in ("postinst", "prerm"))
    assert told(postinst, "configure", "0.0.9") == [
        f"common rocinante-rdma {VERSION} /usr/share/rocinante-rdma-dkms  0.0.9"
    ]
    assert told(postinst, "abort-upgrade") == []
    for reason in ("remove", "upgrade", "deconfigure"):
        assert told(prerm, reason) == [
            f"dkms status -m rocinante-rdma -v {VERSION}",
            f"dkms remove -m rocinante-rdma -v {VERSION} --all",
        ]
    assert told(prerm, "failed-upgrade") == []


def test_the_same_sources_make_the_same_package(package, tmp_path):
    assert module.write(tmp_path).read_bytes() == package.read_bytes()


def built(debian) -> bytes:
    """The module as dkms of a Debian has built it, signed with a key of that machine."""
    tree = f"/var/lib/dkms/rocinante-rdma/{VERSION}"
    folder = f"{tree}/{debian.kernel}/x86_64/module"
    debian.read("rm", "-rf", "/var/lib/dkms/rocinante-rdma")
    log = debian.run("dkms", "build", f"rocinante-rdma/{VERSION}", "-k", debian.kernel)
    notes = debian.run("cat", f"{tree}/build/make.log").stdout
    assert log.returncode == 0, log.stdout + log.stderr + notes
    debian.read("sh", "-c", f"! ls {folder}/*.xz 2>/dev/null || xz -d {folder}/*.xz")
    return Path(f"{debian.root}{folder}/rocinante.ko").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("release", ["12", "13"])
def test_dkms_builds_it(package, release):
    debian = chroot(release)
    install(debian, [package])
    data = built(debian)
    assert f"vermagic={debian.kernel} ".encode() in data
    assert b"alias=virtio:d0000002Av*" in data  # what loads it for the device


@pytest.mark.slow
@pytest.mark.parametrize("release", ["12", "13"])
@pytest.mark.parametrize("script", ["postinst", "prerm"])
def test_scripts_do_what_those_of_dh_dkms_do(unpacked, told, release, script):
    debian = chroot(release)
    ours = (unpacked / "DEBIAN" / script).read_text()
    theirs = (debian.root / f"usr/share/debhelper/autoscripts/{script}-dkms").read_text()
    theirs = theirs.replace("#MODULE_NAME#", "rocinante-rdma").replace("#MODULE_VERSION#", VERSION)
    lines = 0
    for words in (["configure", "0.0.9"], ["configure"], ["remove"], ["upgrade", "1"], ["purge"]):
        assert told(ours, *words) == told(theirs, *words)
        lines += len(told(theirs, *words))
    assert lines
