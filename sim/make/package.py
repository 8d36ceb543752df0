"""``rocinante package``: the firmware as a Debian package, with nothing that it does not import."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from hdl.csr.blocks import TABLES
from hdl.csr.row_layouts import FILE, described
from sim.rtl import env
from sim.tools import console, outputs

__all__ = ["build", "modules", "package"]

NAME = "rocinante-firmware"
_PARTS = env.REPO / "firmware" / "package"
_UNIT = "rocinante-firmware@.service"
#: Time stamp of all files, s since 1970: the same sources make the same package.
_EPOCH = "1700000000"
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


def _control(version: str) -> str:
    return (
        f"Package: {NAME}\n"
        f"Version: {version}\n"
        "Architecture: all\n"
        "Section: net\n"
        "Priority: optional\n"
        "Maintainer: The Rocinante developers <rocinante@localhost>\n"
        "Depends: python3 (>= 3.11)\n"
        "Description: firmware of the Rocinante RDMA card\n"
        " Serves the control queues of a card's virtio-rdma functions through the BAR of its\n"
        " management function. There is a systemd unit for each card.\n"
    )


def _fill(root: Path, version: str) -> None:
    """Put all files of the package below ``root``."""
    library = root / "usr" / "lib" / NAME
    for path in modules():
        _copy(env.REPO / path, library / path)
    rows = library / FILE.relative_to(env.REPO)
    rows.write_text(described({info.row for info in TABLES.values() if info.row is not None}))
    rows.chmod(0o644)
    for program in (NAME, "rocinante-trace"):
        _copy(_PARTS / program, root / "usr" / "bin" / program, mode=0o755)
    _copy(_PARTS / _UNIT, root / "usr" / "lib" / "systemd" / "system" / _UNIT)
    documents = root / "usr" / "share" / "doc" / NAME
    _copy(env.FILES / "LICENSE", documents / "copyright")
    _copy(env.FILES / "docs" / "firmware_service.md", documents / "firmware_service.md")
    control = root / "DEBIAN" / "control"
    control.parent.mkdir()
    control.write_text(_control(version))
    control.chmod(0o644)
    for folder in (root, *(path for path in root.rglob("*") if path.is_dir())):
        folder.chmod(0o755)


def _copy(source: Path, target: Path, *, mode: int = 0o644) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def build(folder: Path) -> Path:
    """Write the package into ``folder``; its path. Raises BuildError."""
    if shutil.which("dpkg-deb") is None:
        raise env.BuildError("dpkg-deb is missing: it comes with Debian and Ubuntu (package dpkg)")
    version = env.package_version("rocinante")
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"{NAME}_{version}_all.deb"
    with tempfile.TemporaryDirectory(prefix="rocinante") as temporary:
        root = Path(temporary) / "root"
        root.mkdir()
        _fill(root, version)
        done = subprocess.run(
            ["dpkg-deb", "--root-owner-group", "--build", root, made],
            env={**os.environ, "SOURCE_DATE_EPOCH": _EPOCH},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise env.BuildError(f"dpkg-deb: {done.stderr.strip()}")
    return made


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder for the package; default: package in the folder of all that is built.",
)
def package(output: Path | None) -> None:
    """Build the firmware's Debian package, with a systemd unit; prints the file's name.

    It needs Python on the host of the card, and nothing else.
    """
    with console.stops():
        folder = output or env.build_root() / "package"
        outputs.require_folder(folder)
        try:
            made = build(folder)
        except env.BuildError as error:
            raise click.ClickException(str(error)) from None
    click.echo(made)
