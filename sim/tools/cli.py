"""The command line: ``./rocinante COMMAND``, or ``rocinante`` inside the environment.

A folder declares its commands in its ``__init__.py``: ``COMMANDS`` has for each the module that
holds it, under the command's own name, and a line for the list of all. This module knows the
folders. A command's module is imported when the command is called, and not before.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import Any

import click

from sim.rtl import env
from sim.tools import console, outputs

__all__ = ["FOLDERS", "Later", "main", "rocinante"]

#: Folders with commands.
FOLDERS = (
    "sim.tools",
    "sim.make",
    "sim.review",
    "sim.measure",
    "sim.campaign",
    "sim.explore",
    "sim.replay",
    "sim.endpoint",
    "sim.host",
    "sim.interop",
    "sim.machine",
    "sim.programs",
    "sim.board",
    "tests",
)


class Later(click.Command):
    """A command of another module, imported when it is called and not before."""

    def __init__(self, name: str, module: str, text: str) -> None:
        super().__init__(name, help=text)
        self._module = module

    def imported(self) -> click.Command:
        """The command itself: in its module, a dash of its name is an underscore."""
        module = importlib.import_module(self._module)
        command: click.Command = getattr(module, str(self.name).replace("-", "_"))
        return command

    def make_context(
        self, info_name: str | None, args: list[str], *more: Any, **extra: Any
    ) -> click.Context:
        """The context of the command itself, whose options are not known before."""
        return self.imported().make_context(info_name, args, *more, **extra)


class _Commands(click.Group):
    """The commands. A wrong argument, and what a command cannot write, ends it with one line."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with outputs.written():
                return super().invoke(ctx)
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            raise console.UsageStop(error.format_message()) from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(env.package_version("rocinante"), prog_name="rocinante")
def rocinante() -> None:
    """Rocinante, an RDMA NIC: generate it, simulate it, test it."""


def _add(folder: str) -> None:
    """Add the commands that ``folder`` declares, if it is there."""
    try:
        declared = importlib.import_module(folder).COMMANDS
    except ModuleNotFoundError as error:
        if error.name != folder:
            raise
        return
    for name, (module, text) in declared.items():
        rocinante.add_command(Later(name, module, text))


if not env.CHECKOUT:
    sys.path.insert(0, str(env.FILES))  # the tests, which prove and faults belong to
for _folder in FOLDERS:
    _add(_folder)


def main() -> Any:
    """Run the command line (the console script's entry)."""
    try:
        return rocinante(prog_name="rocinante")
    finally:
        _end_of_output()


def _end_of_output() -> None:
    """Write what standard output still holds; if that cannot be, say so and end with status 1."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for Python's own flush
        if error.errno != errno.EPIPE:  # whoever read it has gone on purpose
            print(f"Error: standard output: {error.strerror}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
