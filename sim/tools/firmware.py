"""``rocinante firmware``: the firmware as a process, on a BAR of a card or of a simulation."""

from __future__ import annotations

import sys

import click

from firmware.daemon.command import main

__all__ = ["firmware"]


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def firmware(arguments: tuple[str, ...]) -> None:
    """Serve the control queues of a card through its management BAR.

    The options are those of the package's program, which is made without the tools of this one.
    """
    sys.exit(main(list(arguments), "rocinante firmware"))
