"""``rocinante firmware`` and ``trace``: the firmware package's programs, on a BAR.

A BAR is a card's or a simulation's. The package has the programs without the tools of this command
line, so their options are the package's own.
"""

from __future__ import annotations

import sys

import click

__all__ = ["firmware", "trace"]

_command = click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
_arguments = click.argument("arguments", nargs=-1, type=click.UNPROCESSED)


@_command
@_arguments
def firmware(arguments: tuple[str, ...]) -> None:
    """Serve the control queues of a card through its management BAR."""
    from firmware.daemon.command import main

    sys.exit(main(list(arguments), "rocinante firmware"))


@_command
@_arguments
def trace(arguments: tuple[str, ...]) -> None:
    """Record the headers of a card's frames through its management BAR."""
    from firmware.daemon.trace import main

    sys.exit(main(list(arguments), "rocinante trace"))
