"""The package of the provider: what libibverbs loads for the devices of the kernel module.

A provider fits each libibverbs with the number of the interface between both, which is in the
provider's name, and which Debian 12 and 13 have in common.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from hdl.config import VERSION
from sim.machine import toolchain
from sim.machine.packages import dependencies
from sim.make import deb
from sim.make.deb import Deb, File
from sim.rtl.env import ToolError

__all__ = ["LIBRARY_PACKAGES", "NAME", "write"]

_LIBRARY = "librocinante-rdmav34.so"
NAME = _LIBRARY.removesuffix(".so")
#: Packages with the libraries that a provider needs.
LIBRARY_PACKAGES = ("libibverbs1", "libc6")
#: As Debian's own packages are compiled; no path of this machine is left in the library.
_SETTINGS = (
    "CFLAGS=-g0 -fstack-protector-strong -D_FORTIFY_SOURCE=2",
    "LDFLAGS=-Wl,-z,relro -Wl,-z,now -Wl,--as-needed",
)
_LICENCE = """\
This software is available to you under a choice of one of two licences: the GNU General Public
License, version 2, whose text is on Debian systems in /usr/share/common-licenses/GPL-2, or this
one:

Redistribution and use in source and binary forms, with or without modification, are permitted
provided that the following conditions are met:

 * Redistributions of source code must retain the above copyright notice, this list of
   conditions and the following disclaimer.
 * Redistributions in binary form must reproduce the above copyright notice, this list of
   conditions and the following disclaimer in the documentation and/or other materials provided
   with the distribution.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM,
DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT
OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE."""


def write(source: Path, libraries: Path, controls: Iterable[Path], folder: Path) -> Path:
    """Compile it and write the package into ``folder``; its path. Raises BuildError.

    source: of rdma-core. libraries: a folder with libibverbs.so.1. controls: folders with the
    control files of ``LIBRARY_PACKAGES``, whose symbols say what the package depends on.
    """
    with tempfile.TemporaryDirectory(prefix="rocinante") as work:
        made = toolchain.build_provider(source, libraries, Path(work), *_SETTINGS)
        library, named = made
        _strip(library)
        package = Deb(
            name=NAME,
            version=VERSION,
            architecture="amd64",
            fields={
                "Section": "libs",
                "Priority": "optional",
                "Depends": dependencies.depends(library, controls),
                "Recommends": "rocinante-rdma-dkms",
                "Enhances": "libibverbs1",
                "Description": (
                    "libibverbs provider for Rocinante RDMA cards\n"
                    " libibverbs loads this library for virtio-rdma devices, as the functions of\n"
                    " a Rocinante card are. Their kernel driver is in the package\n"
                    " rocinante-rdma-dkms."
                ),
            },
            files={
                f"usr/lib/{libraries.name}/libibverbs/{library.name}": File(library.read_bytes()),
                f"etc/libibverbs.d/{named.name}": File(named.read_bytes()),
            },
            copyright=deb.copyright_of("GPL-2 or BSD-2-clause", _LICENCE),
        )
        return deb.write(package, folder)


def _strip(library: Path) -> None:
    """Take away what only a debugger reads."""
    if shutil.which("strip") is None:
        raise ToolError("strip not found: apt-get install binutils")
    options = ("--strip-unneeded", "--remove-section=.comment", "--remove-section=.note")
    subprocess.run(["strip", *options, str(library)], check=True)
