"""``rocinante package``: the firmware, the kernel module and the provider as Debian packages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from sim.machine import image
from sim.machine.packages import module
from sim.make import package as firmware
from sim.rtl import env
from sim.tools import console, outputs

__all__ = ["package"]

#: What writes each package, by the name that a user gives.
_WRITERS: dict[str, Callable[[Path], Path]] = {
    "firmware": firmware.build,
    "module": module.write,
    "provider": image.write_provider,
}


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder for the packages; default: package in the folder of all that is built.",
)
@click.argument("names", nargs=-1, type=click.Choice(list(_WRITERS)), metavar="[NAME]...")
def package(output: Path | None, names: tuple[str, ...]) -> None:
    """Build Debian packages; prints the name of each file.

    NAME is one or more of these; without one, all are built.

    \b
    firmware   the firmware with a systemd unit for each card; it needs Python
    module     the sources of the kernel module, for dkms
    provider   what libibverbs loads for its devices; its build fetches sources of rdma-core
    """
    with console.stops():
        folder = output or env.build_root() / "package"
        outputs.require_folder(folder)
        for name in names or _WRITERS:
            try:
                click.echo(_WRITERS[name](folder))
            except env.BuildError as error:
                raise click.ClickException(str(error)) from None
