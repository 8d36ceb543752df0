"""A Debian package, from its fields and the bytes of its files, written by dpkg-deb.

The same parts make the same bytes: all time stamps are the commit's, all files are root's.

Spec: Debian Policy 4.6.2: 4.4 (changelog), 5.3 (control file), 12.5 (copyright).
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sim.rtl import env
from sim.tools import checkout

__all__ = ["MAINTAINER", "Deb", "File", "copyright_of", "epoch", "folder_of", "write"]

#: There is no address of the project's.
MAINTAINER = "The Rocinante developers <rocinante@localhost>"
#: Time stamp of a tree that is no commit, s since 1970.
_NO_COMMIT = 1_700_000_000
_KIB = 1024


@dataclass(frozen=True)
class File:
    """A file of a package: its contents and its mode."""

    data: bytes
    mode: int = 0o644


@dataclass(frozen=True)
class Deb:
    """A package.

    fields: of the control file, beside those that are members here. files: by their paths below the
    root of a system. copyright: the file of that name. scripts: those of the maintainer, by name.
    """

    name: str
    version: str
    architecture: str
    fields: Mapping[str, str]
    files: Mapping[str, File]
    copyright: str
    scripts: Mapping[str, str] = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        """As Debian names packages; what has an epoch has it in its control file alone."""
        version = self.version.rpartition(":")[2]
        return f"{self.name}_{version}_{self.architecture}.deb"


def epoch() -> int:
    """The time stamp of all that is packaged, s since 1970.

    SOURCE_DATE_EPOCH, or the commit's date; a fixed time where there is neither.
    """
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        if not given.isdigit():
            raise ValueError(f"SOURCE_DATE_EPOCH must be seconds since 1970, not {given!r}")
        return int(given)
    return checkout.commit_time() or _NO_COMMIT


def copyright_of(licence: str, text: str) -> str:
    """The file ``copyright`` of a package under one licence.

    licence: its short name. text: where it is to be read, in lines.
    Spec: Machine-readable debian/copyright file, version 1.0.
    """
    paragraph = "".join(f" {line}\n" if line else " .\n" for line in text.splitlines())
    return (
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"
        "Upstream-Name: rocinante\n"
        "\n"
        "Files: *\n"
        f"Copyright: {time.gmtime(epoch()).tm_year} the Rocinante developers\n"
        f"License: {licence}\n"
        f"{paragraph}"
    )


def folder_of(folder: Path, target: str) -> dict[str, File]:
    """The files right in ``folder``, as they are placed in the folder ``target`` of a system."""
    return {
        f"{target}/{path.name}": File(path.read_bytes())
        for path in sorted(folder.iterdir())
        if path.is_file()
    }


def write(deb: Deb, folder: Path) -> Path:
    """Write the package into ``folder``, which is made; its path. Raises BuildError."""
    if shutil.which("dpkg-deb") is None:
        raise env.BuildError("dpkg-deb is missing: it comes with Debian and Ubuntu (package dpkg)")
    folder.mkdir(parents=True, exist_ok=True)
    made, stamp = folder / deb.file_name, epoch()
    files = {**deb.files, **_documents(deb, stamp)}
    with tempfile.TemporaryDirectory(prefix="rocinante") as temporary:
        root = Path(temporary, "root")
        root.mkdir()
        for name, file in files.items():
            _place(root / name, file)
        for name, file in _control(deb, files).items():
            _place(root / "DEBIAN" / name, file)
        for path in (root, *(path for path in root.rglob("*") if path.is_dir())):
            path.chmod(0o755)
        done = subprocess.run(
            ["dpkg-deb", "-Zxz", "--root-owner-group", "--build", root, made],
            env={**os.environ, "SOURCE_DATE_EPOCH": str(stamp), "LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise env.BuildError(f"dpkg-deb: {done.stderr.strip()}")
    return made


def _place(path: Path, file: File) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file.data)
    path.chmod(file.mode)


def _documents(deb: Deb, stamp: int) -> dict[str, File]:
    """What each package has below /usr/share/doc. The versions of a whole project are native."""
    date = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(stamp))
    changes = (
        f"{deb.name} ({deb.version}) unstable; urgency=medium\n\n"
        "  * What has changed is told in the project's CHANGELOG.md.\n\n"
        f" -- {MAINTAINER}  {date}\n"
    )
    documents = f"usr/share/doc/{deb.name}"
    return {
        f"{documents}/copyright": File(deb.copyright.encode()),
        f"{documents}/changelog.gz": File(gzip.compress(changes.encode(), 9, mtime=0)),
    }


def _control(deb: Deb, files: Mapping[str, File]) -> dict[str, File]:
    """What dpkg itself reads. A file in /etc is the administrator's after its installation."""
    folders = {parent for name in files for parent in Path(name).parents}
    size = sum(-(-len(file.data) // _KIB) for file in files.values()) + len(folders)
    fields = {
        "Package": deb.name,
        "Version": deb.version,
        "Architecture": deb.architecture,
        "Maintainer": MAINTAINER,
        "Installed-Size": str(size),
        **deb.fields,
    }
    sums = "".join(
        f"{hashlib.md5(file.data, usedforsecurity=False).hexdigest()}  {name}\n"
        for name, file in sorted(files.items())
        if not name.startswith("etc/")
    )
    found = {
        "control": File("".join(f"{key}: {value}\n" for key, value in fields.items()).encode()),
        "md5sums": File(sums.encode()),
        **{name: File(text.encode(), 0o755) for name, text in deb.scripts.items()},
    }
    if settings := [f"/{name}\n" for name in sorted(files) if name.startswith("etc/")]:
        found["conffiles"] = File("".join(settings).encode())
    return found
