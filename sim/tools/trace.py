"""``rocinante trace``: the headers of the frames of a running card, as a capture."""

from __future__ import annotations

import sys

import click

from firmware.daemon.trace import main

__all__ = ["trace"]


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def trace(arguments: tuple[str, ...]) -> None:
    """Record the headers of a card's frames through its management BAR.

    The options are those of the package's program.
    """
    sys.exit(main(list(arguments), "rocinante trace"))
