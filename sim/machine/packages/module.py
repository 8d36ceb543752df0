"""The package of the kernel module: sources, which dkms compiles for each kernel of a machine.

The scripts do what dh_dkms has in those that it writes.
"""

from __future__ import annotations

from pathlib import Path

from hdl.config import VERSION
from sim.machine.toolchain import SOURCES
from sim.make import deb, header
from sim.make.deb import Deb, File

__all__ = ["NAME", "SOURCE_FOLDER", "files", "write"]

NAME = "rocinante-rdma-dkms"
#: Where the sources are in a system.
SOURCE_FOLDER = f"usr/src/rocinante-rdma-{VERSION}"
_DKMS = SOURCES / "dkms"
#: What the scripts and dkms.conf have where the version belongs.
_MARK = "#MODULE_VERSION#"
_SUFFIXES = {".c", ".h"}
_LICENCE = (
    "This program is free software; you can redistribute it and/or modify it under the terms\n"
    "of the GNU General Public License, version 2, as published by the Free Software\n"
    "Foundation.\n"
    "\n"
    "On Debian systems its text is in /usr/share/common-licenses/GPL-2."
)


def write(folder: Path) -> Path:
    """Write the package into ``folder``; its path. Raises BuildError."""
    package = Deb(
        name=NAME,
        version=VERSION,
        architecture="all",
        fields={
            "Section": "kernel",
            "Priority": "optional",
            "Depends": "dkms (>= 3.0.3-4~)",  # the first that knows BUILD_EXCLUSIVE_CONFIG
            "Recommends": "librocinante-rdmav34",
            "Description": (
                "kernel driver for Rocinante RDMA cards (DKMS)\n"
                " The driver serves virtio-rdma devices, as the functions of a Rocinante card\n"
                " are. Programs reach it by libibverbs, with the provider of the package\n"
                " librocinante-rdmav34. dkms compiles it for each kernel that is installed."
            ),
        },
        files=files(),
        copyright=deb.copyright_of("GPL-2", _LICENCE),
        scripts={name: _filled(name) for name in ("postinst", "prerm")},
    )
    return deb.write(package, folder)


def files() -> dict[str, File]:
    """The module's sources in one folder, with the ABI that ``./rocinante header`` writes."""
    kernel = SOURCES / "kernel"
    chosen = [path for path in sorted(kernel.iterdir()) if path.suffix in _SUFFIXES]
    chosen += [kernel / "Kbuild", SOURCES / "include/rocinante-abi.h", _DKMS / "Makefile"]
    texts = {path.name: path.read_text() for path in chosen}
    texts |= {"virtio_rdma.h": header.text(), "dkms.conf": _filled("dkms.conf")}
    return {f"{SOURCE_FOLDER}/{name}": File(text.encode()) for name, text in texts.items()}


def _filled(name: str) -> str:
    return (_DKMS / name).read_text().replace(_MARK, VERSION)
