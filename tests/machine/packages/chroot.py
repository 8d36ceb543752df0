"""A Debian in a folder, of unpacked packages, in which programs run that want to be installed."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from sim.machine import image
from sim.machine.releases import RELEASES
from sim.rtl.env import ToolError
from sim.rtl.verilog import digest

#: What Debian has in each installation, as far as programs here look for it.
_BASE = (
    *("base-files", "base-passwd", "bash", "coreutils", "dash", "debianutils", "diffutils"),
    *("dpkg", "findutils", "grep", "gzip", "hostname", "mawk", "perl-base", "sed", "tar"),
    *("util-linux",),
)
#: Programs that are looked at and tried.
_WANTED = (
    *("dh-dkms", "dkms", "gcc", "ibverbs-utils", "kmod", "libc6-dev", "lintian", "make"),
    "sparse",
)
#: With devices and /proc, in namespaces of its own: nobody has to be root.
_ENTER = """
mount --rbind /dev "$0/dev" && mount --rbind /proc "$0/proc" || exit 125
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C chroot "$0" "$@"
"""


@dataclass(frozen=True)
class Chroot:
    """``root``: the folder. kernel: the version of the headers that it has."""

    root: Path
    kernel: str

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command as the root of this system."""
        return subprocess.run(
            ["unshare", "--map-root-user", "--mount", "sh", "-c", _ENTER, self.root, *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def read(self, *command: str) -> str:
        """The output of a command that must succeed."""
        done = self.run(*command)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout


@functools.cache
def chroot(number: str) -> Chroot:
    """The Debian of a release; skips where there are no packages, or no namespaces."""
    enter = ["unshare", "--map-root-user", "--mount", "true"]
    if shutil.which("unshare") is None or subprocess.run(enter, check=False).returncode:
        pytest.skip("no namespaces for a user here")
    release = RELEASES[number]
    try:
        apt = image._apt(release.suite)
        kernel = image._kernel(apt)
        names = (*_BASE, *_WANTED, f"linux-headers-{kernel}")

        def make(target: Path) -> None:
            apt.fetch(names, target / "root", suite=release.suite)
            _settle(target / "root")

        kind = f"chroot-{number}-"
        return Chroot(image._kept(f"{kind}{digest(*names)}", make, instead=kind) / "root", kernel)
    except ToolError as error:
        pytest.skip(str(error))


def _settle(root: Path) -> None:
    """Do what the packages' scripts would have done, as far as it matters here."""
    for name in ("bin", "sbin", "lib", "lib64"):
        top, merged = root / name, root / "usr" / name
        merged.mkdir(exist_ok=True)
        if top.is_dir() and not top.is_symlink():
            subprocess.run(["cp", "-a", f"{top}/.", merged], check=True)
            shutil.rmtree(top)
        top.unlink(missing_ok=True)
        top.symlink_to(f"usr/{name}")
    _link(root / "usr/bin/awk", "mawk")
    _link(root / "usr/bin/sh", "dash")
    _link(root / "etc/dpkg/origins/default", "debian")
    for name in ("dev", "proc", "tmp", "var/lib/dpkg"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "var/lib/dpkg/status").touch()


def _link(path: Path, target: str) -> None:
    if not path.is_symlink() and not path.exists():
        path.symlink_to(target)


def install(root: Chroot, packages: Sequence[Path]) -> None:
    """Unpack packages of this project, as dpkg would put them into the system."""
    for path in packages:
        subprocess.run(["dpkg-deb", "--extract", path, root.root], check=True)
