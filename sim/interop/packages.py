"""Packages of the distribution: what is installed, and what is only unpacked for the guest."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from sim.rtl.env import ToolError

__all__ = ["kernel_packages", "require_commands", "unpack"]

#: Packages that stand for the current kernel, Debian's and Ubuntu's name of it.
_KERNELS = ("linux-image-amd64", "linux-image-generic")
#: Parts of a kernel: its image, and the modules where they are packages of their own.
_KERNEL_PART = re.compile(r"linux-(image|modules|modules-extra)-\d")

#: How long to wait for somebody else who is installing, seconds.
_LOCK_SECONDS = 120


def require_commands(packages: dict[str, str]) -> None:
    """Install what is missing of ``packages`` (command -> packages) when that is allowed.

    Raises ToolError with the line to run when it is not, or when it fails.
    """
    wanted = [names.split() for tool, names in packages.items() if shutil.which(tool) is None]
    missing = sorted({name for names in wanted for name in names})
    if missing:
        line = f"apt-get install {' '.join(missing)}"
        _as_root(["install", "--no-install-recommends", *missing], f"Missing packages: {line}")


def kernel_packages() -> list[str]:
    """The packages of the distribution's kernel, with its modules. ToolError if there is none."""
    architecture = _output("dpkg", "--print-architecture").strip()
    if architecture != "amd64":
        raise ToolError(f"The guest is an amd64 one, this machine {architecture or 'not Debian'}")
    for retry in (False, True):
        for name in _KERNELS:
            if parts := _kernel_parts(name):
                return parts
        if not retry:
            _update()
    raise ToolError(f"apt knows none of {', '.join(_KERNELS)}")


def unpack(names: Sequence[str], folder: Path) -> list[str]:
    """Download packages and unpack them into ``folder``: nothing is installed.

    Returns their file names, which hold the versions. Raises ToolError.
    """
    downloads = folder / "packages"
    downloads.mkdir(parents=True)
    done = _download(names, downloads)
    if done.returncode:
        _update()
        done = _download(names, downloads)
    if done.returncode:
        raise ToolError(f"apt-get download {' '.join(names)}: {_last(done.stderr)}")
    files = sorted(downloads.glob("*.deb"))
    for path in files:
        _run("dpkg-deb", "-x", str(path), str(folder))
    shutil.rmtree(downloads)
    return [path.name for path in files]


def _kernel_parts(name: str) -> list[str]:
    """What a package depends on of the kernel's parts, and these in turn."""
    found: list[str] = []
    asked = [name]
    while asked:
        depends = _output("apt-cache", "depends", "--important", asked.pop())
        for part in re.findall(r"Depends: (\S+)", depends):
            if _KERNEL_PART.match(part) and part not in found:
                found.append(part)
                asked.append(part)
    return found


def _download(names: Iterable[str], folder: Path) -> subprocess.CompletedProcess[str]:
    # Without a user of its own apt can write to any folder that we can write to.
    command = ["apt-get", "-q", "-o", "APT::Sandbox::User=", "download", *names]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def _update() -> None:
    _as_root(["update"], "apt's package lists are missing or old: apt-get update")


def _as_root(arguments: list[str], otherwise: str) -> None:
    """Run apt-get as root, directly or by sudo; ToolError(``otherwise``) when that cannot be."""
    if shutil.which("apt-get") is None:
        raise ToolError(f"{otherwise} (this machine has no apt-get)")
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if sudo and subprocess.run([*sudo, "true"], capture_output=True, check=False).returncode:
        raise ToolError(otherwise)
    command = [*sudo, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-y"]
    command += ["-o", f"DPkg::Lock::Timeout={_LOCK_SECONDS}", *arguments]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ToolError(f"{otherwise} ({_last(done.stderr)})")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolError(f"{' '.join(command[:2])}: {_last(done.stderr)}")


def _output(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"
