"""What commands share: terminal output, progress of long steps, common options, errors."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from hdl.bounds import finite, within
from hdl.config import WIDTHS, NicConfig
from sim.models.impairments import Impairments
from sim.rtl.env import ToolError
from sim.tools import outputs

out = Console()
err = Console(stderr=True)


def writable(_context: Any, _option: Any, value: Path | None) -> Path | None:
    """A callback for options: refuses, before any work, a file that cannot be written later."""
    if value is not None:
        try:
            outputs.require_file(value)
        except outputs.Unwritable as error:
            raise click.BadParameter(str(error)) from None
    return value


class Finite(click.ParamType):
    """A number from ``low`` to ``high``, neither NaN nor infinite."""

    name = "number"

    def __init__(self, low: float, high: float) -> None:
        self._low, self._high = low, high

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number; fails with what is wrong with the text."""
        try:
            found = finite(str(value))
            within("it", found, self._low, self._high)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return found


_WIDTHS = click.Choice([str(width) for width in WIDTHS])
width_option = click.option(
    "--width",
    type=_WIDTHS,
    default="512",
    show_default=True,
    callback=lambda _context, _option, value: int(value),
    help="Data path width in bits.",
)


class _ProfileName(click.ParamType):
    """The name of a card in ``boards.profiles``, which is imported when one is given."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name; fails with all of them when there is no such card."""
        from boards.profiles import PROFILES

        return str(click.Choice(list(PROFILES)).convert(value, param, ctx))


def card_options(command: Callable[..., None]) -> Callable[..., None]:
    """A decorator: ``--profile`` and ``--width``. The command gets ``profile``, a name or None, and
    ``config``, a ``NicConfig``."""

    @click.option(
        "--profile",
        type=_ProfileName(),
        metavar="NAME",
        help="A card with a name: smallest, board or everything; without it the default card.",
    )
    @click.option(
        "--width",
        type=_WIDTHS,
        help="Data path width in bits; default the profile's, or 512.",
    )
    @functools.wraps(command)
    def chosen(*, profile: str | None, width: str | None, **others: Any) -> None:
        config = NicConfig()
        if profile is not None:
            from boards.profiles import PROFILES

            config = PROFILES[profile]
        if width is not None:
            config = replace(config, width=int(width))
        command(profile=profile, config=config, **others)

    return chosen


json_option = click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    callback=writable,
    help="Write the same figures as JSON; - is standard output.",
)


def _impairments(_context: Any, _option: Any, text: str) -> str:
    """A callback for options: refuses what is no description of a bad network."""
    try:
        Impairments.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return text


impair_option = click.option(
    "--impair",
    metavar="WHAT",
    default="",
    callback=_impairments,
    help="A bad network, as in 'loss=1%,reorder=16,seed=7' (docs/simulation.md).",
)
timer_scale_option = click.option(
    "--timer-scale",
    type=Finite(1 / 250, 250),
    default=1.0,
    show_default=True,
    metavar="N",
    help="The cards' time-outs and RNR pauses last N times as long as their codes say.",
)
waves_option = click.option("--waves", is_flag=True, help="Record waves (FST); slower.")


class UsageStop(click.ClickException):
    """Ends a command with one line on standard error and exit status 2."""

    exit_code = 2


def octets(count: int) -> str:
    """Bytes as a person writes them: 64 KiB, 1 MiB."""
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if count >= 1 << shift and count % (1 << shift) == 0:
            return f"{count >> shift} {unit}"
    return f"{count} B"


@contextmanager
def stops() -> Iterator[None]:
    """Turn a missing tool or a bad value into one line and exit status 2."""
    try:
        yield
    except (ToolError, ValueError) as error:
        raise UsageStop(str(error)) from error


def write_json(target: Path | None, data: Any) -> None:
    """Write ``data`` to the file of ``--json`` (``-``: standard output), if one was given."""
    if target is None:
        return
    text = json.dumps(data, indent=2)
    if str(target) == "-":
        click.echo(text)
    else:
        outputs.write_text(target, text + "\n")


@contextmanager
def bar(title: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """Show how many of ``total`` things are done: a bar on a terminal, plain lines elsewhere.

    Yields a function that takes how many more are done, and how many of these failed.
    """
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    done = failed = said = 0
    with Progress(*columns, console=err, disable=not err.is_terminal) as shown:
        task = shown.add_task(title, total=total)

        def step(more: int, bad: int) -> None:
            nonlocal done, failed, said
            done, failed = done + more, failed + bad
            text = f"{title}, {failed} failed" if failed else title
            shown.update(task, advance=more, description=text)
            if not err.is_terminal and (20 * done // total > said or bad):
                said = 20 * done // total
                err.print(f"{text}: {done} of {total}", markup=False, highlight=False)

        yield step


class _Progress(logging.Handler):
    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        self._show(record.getMessage())


@contextmanager
def progress(title: str) -> Iterator[Callable[[str], None]]:
    """Show that something is under way: a spinner on a terminal, plain lines elsewhere.

    Yields a function that says what is going on now. Steps of ``sim.rtl.build`` say so themselves.
    """
    log = logging.getLogger("rocinante")
    level = log.level
    with err.status(title) as status:

        def show(text: str) -> None:
            status.update(f"{title}: {text}")
            if not err.is_terminal:
                err.print(f"{title}: {text}", markup=False, highlight=False)

        handler = _Progress(show)
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        try:
            yield show
        finally:
            log.removeHandler(handler)
            log.setLevel(level)
