"""The firmware as a Debian package, with nothing that it does not import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from hdl.config import VERSION
from hdl.csr.blocks import TABLES
from hdl.csr.connections import RECEIVED, SENT
from hdl.csr.row_layouts import FILE, described
from sim.make import deb
from sim.make.deb import File
from sim.rtl import env

__all__ = ["build", "modules"]

NAME = "rocinante-firmware"
_PARTS = env.REPO / "firmware" / "package"
_UNIT = "rocinante-firmware@.service"
_LICENCE = (
    "On Debian systems the text of the Apache License, Version 2.0, is in\n"
    "/usr/share/common-licenses/Apache-2.0."
)
_FIND = """
import json, sys
sys.modules["amaranth"] = None  # whoever imports it ends here
import firmware.daemon.command, firmware.daemon.trace
names = [name for name in sys.modules if name.split(".")[0] in ("firmware", "hdl")]
print(json.dumps([sys.modules[name].__file__ for name in names]))
"""


def modules() -> list[Path]:
    """The files that the firmware's process imports, relative to the repository."""
    environment = {**os.environ, "PYTHONPATH": str(env.REPO)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", _FIND],
        cwd=env.REPO,
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    return sorted(Path(name).relative_to(env.REPO) for name in json.loads(done.stdout))


def _files() -> dict[str, File]:
    """All files of the package, by their paths below a system's root."""
    library = f"usr/lib/{NAME}"
    tables = {info.row for info in TABLES.values() if info.row is not None}
    rows = described(tables | {RECEIVED, SENT})
    files = {f"{library}/{path}": File((env.REPO / path).read_bytes()) for path in modules()}
    files[f"{library}/{FILE.relative_to(env.REPO)}"] = File(rows.encode())
    for program in (NAME, "rocinante-trace"):
        files[f"usr/bin/{program}"] = File((_PARTS / program).read_bytes(), 0o755)
    files[f"usr/lib/systemd/system/{_UNIT}"] = File((_PARTS / _UNIT).read_bytes())
    page = (env.FILES / "docs" / "firmware_service.md").read_bytes()
    files[f"usr/share/doc/{NAME}/firmware_service.md"] = File(page)
    return files


def build(folder: Path) -> Path:
    """Write the package into ``folder``; its path. Raises BuildError."""
    package = deb.Deb(
        name=NAME,
        version=VERSION,
        architecture="all",
        fields={
            "Section": "net",
            "Priority": "optional",
            "Depends": "python3 (>= 3.11)",
            "Description": (
                "firmware of the Rocinante RDMA card\n"
                " Serves the control queues of a card's virtio-rdma functions through the BAR of\n"
                " its management function. There is a systemd unit for each card."
            ),
        },
        files=_files(),
        copyright=deb.copyright_of("Apache-2.0", _LICENCE),
    )
    return deb.write(package, folder)
