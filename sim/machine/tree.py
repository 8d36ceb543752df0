"""Files of unpacked packages as a guest's first file system has them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from sim.interop.cpio import Node
from sim.machine.toolchain import LOADER
from sim.rtl.env import ToolError

__all__ = ["UNUSED_PYTHON", "libraries_of", "loader_of", "nodes_of", "only", "placed"]

_ELF = b"\x7fELF"
#: Folders that a guest has under /usr alone; at the top there is a link.
_MERGED = ("bin", "sbin", "lib", "lib64")
#: Parts of Python that nobody needs in a guest.
UNUSED_PYTHON = "/python3[.0-9]*/(test|idlelib|lib2to3|distutils|ensurepip|tkinter|pydoc_data)/"
#: What nobody reads in a guest.
_LEFT_OUT = re.compile(
    "/usr/share/(doc|man|locale|info|lintian|bash-completion|bug|menu|pixmaps|applications)/"
    rf"|/usr/include/|/etc/(init\.d|apparmor\.d)/|/systemd/|{UNUSED_PYTHON}"
)
_FOLDER = "usr/lib/x86_64-linux-gnu"


def placed(path: str) -> str:
    """Where a file of a package is in a guest: ``./bin/ip`` is ``/usr/bin/ip``."""
    pure = PurePosixPath("/", path)
    top = pure.parts[1] if len(pure.parts) > 1 else ""
    return str(PurePosixPath("/usr", *pure.parts[1:])) if top in _MERGED else str(pure)


def nodes_of(root: Path, paths: Iterable[str]) -> dict[str, Node]:
    """The files of packages which were unpacked in ``root``, without documents.

    Beside each module of Python there is what it was compiled to, if it was.
    """
    found = {}
    for path in paths:
        place, here = placed(path), root / path
        if _LEFT_OUT.search(place):
            continue
        if here.is_symlink():
            found[place] = Node.link(os.readlink(here))
        elif here.is_file():
            executable = bool(here.stat().st_mode & 0o111)
            found[place] = Node.file(here.read_bytes(), executable=executable)
            if here.suffix == ".py":
                for compiled in here.parent.glob(f"__pycache__/{here.stem}.*.pyc"):
                    beside = str(PurePosixPath(place).parent / "__pycache__" / compiled.name)
                    found[beside] = Node.file(compiled.read_bytes())
    return found


def only(root: Path, *patterns: str) -> Path:
    """The first file below ``root`` that is found; ToolError without one."""
    for pattern in patterns:
        for path in sorted(root.glob(pattern)):
            if path.is_file():
                return path
    raise ToolError(f"The packages have no {patterns[0]}")


def loader_of(root: Path) -> Path:
    """The loader of the packages in ``root``."""
    return only(root, f"usr/lib64/{LOADER}", f"lib64/{LOADER}")


def libraries_of(root: Path, nodes: Mapping[str, Node]) -> dict[str, Node]:
    """The libraries that programs among ``nodes`` load, and the loader, each in its place."""
    loader = loader_of(root)
    folders = [root / _FOLDER, root / _FOLDER.removeprefix("usr/")]
    search = ":".join(str(folder) for folder in folders if folder.is_dir())
    found = {f"/usr/lib64/{LOADER}": Node.file(loader.read_bytes(), executable=True)}
    needed: set[str] = set()
    for place, node in nodes.items():
        if node.data.startswith(_ELF):
            needed |= _needed(loader, search, _unpacked(root, place))
    for path in sorted(needed):
        name = Path(path).name
        if name != LOADER:
            found[f"/{_FOLDER}/{name}"] = Node.file(Path(path).read_bytes(), executable=True)
    return found


def _unpacked(root: Path, place: str) -> Path:
    """The file that is at a place of the guest."""
    merged = root / place[1:]
    return merged if merged.exists() else root / place.removeprefix("/usr/")


def _needed(loader: Path, search: str, program: Path) -> set[str]:
    """The files that the loader would load for a program; none for a static one."""
    done = subprocess.run(
        [loader, "--library-path", search, "--list", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    words = re.findall(r"=> (\S+) \(0x", done.stdout)
    return {word for word in words if word.startswith(tuple(search.split(":")))}
