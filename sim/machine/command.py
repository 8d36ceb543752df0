"""``rocinante guest``: prepares what a guest needs, starts cards and guests, runs a command."""

from __future__ import annotations

import contextlib
import signal
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from hdl.config import NicConfig
from sim.endpoint import options
from sim.machine.pairs import CLIENT, SERVER, sides
from sim.machine.releases import RELEASES
from sim.rtl import env
from sim.tools import console

__all__ = ["guest"]

_LIMIT_S = 1800.0
_INTERRUPTED, _TERMINATED = 130, 143


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--cards",
    type=click.IntRange(1, 2),
    help="In the guest, two joined by a wire; default 2 if COMMAND has two sides, otherwise 1.",
)
@click.option(
    "--functions", type=click.IntRange(1, 4), help="Of each card, each a device; default 1."
)
@click.option(
    "--network",
    type=click.IntRange(0, 8),
    metavar="PAIRS",
    help="Of queues of each card's network function, 1, 2, 4 or 8; default: QEMU's card instead.",
)
@click.option(
    "--peer",
    type=click.Choice(["none", "card", "soft-roce"]),
    default="none",
    show_default=True,
    help="At the other end of the card's wire: a guest with a card, or one with Soft-RoCE.",
)
@click.option(
    "--release",
    type=click.Choice(list(RELEASES)),
    default="12",
    show_default=True,
    help="Of Debian, which the guests are.",
)
@click.option(
    "--timeout",
    type=console.Finite(1, 86_400),
    default=_LIMIT_S,
    show_default=True,
    metavar="S",
    help="Seconds of wall time that COMMAND may take.",
)
@click.option(
    "--width",
    type=click.Choice(["64", "128", "256", "512"]),
    default="64",
    show_default=True,
    help="Data path width of the cards in bits.",
)
@options.with_option
@options.mac_option
@options.pcap_option
@console.impair_option
@console.timer_scale_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND]...")
def guest(command: tuple[str, ...], **chosen: Any) -> None:
    """Boot a Debian guest whose PCI devices are simulated cards.

    Without COMMAND its shell has the terminal, and Ctrl-] ends it. COMMAND runs in the guest, and
    its status is this command's. SERVER :: CLIENT are two commands, one for each card; a program of
    perftest and the like is both. docs/linux.md says more.
    """
    from sim.machine import terminal

    with console.stops():
        commands = sides(command)
        _check(commands, chosen)
        if not command and not terminal.is_there():
            raise ValueError("COMMAND is missing: without one the guest needs a terminal")
        env.require_compiler()
    with _signals():
        status = _run(commands if command else (), chosen)
    raise click.exceptions.Exit(status)


def _check(commands: Sequence[Sequence[str]], chosen: dict[str, Any]) -> None:
    """Complete the choice of cards; ValueError for what cannot be."""
    peer, two = chosen["peer"], len(commands) > 1
    if peer != "none" and chosen["cards"] == 2:
        raise ValueError(f"--cards 2 are joined by a wire, which leaves none for --peer {peer}")
    if peer == "soft-roce" and chosen["network"]:
        raise ValueError("--network: the frames of Soft-RoCE go to a network card of QEMU's")
    if chosen["cards"] is None:
        chosen["cards"] = 2 if two and peer == "none" else 1


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into the end of a ``with``, and Ctrl-C into a line."""

    class Ended(BaseException):
        pass

    def end(*_: Any) -> None:
        raise Ended

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    except KeyboardInterrupt:
        console.err.print("Error: stopped by Ctrl-C", highlight=False)
        raise click.exceptions.Exit(_INTERRUPTED) from None
    except Ended:
        raise click.exceptions.Exit(_TERMINATED) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(commands: Sequence[Sequence[str]], chosen: dict[str, Any]) -> int:
    """Prepare, and run; the status."""
    from sim.bench import testbench
    from sim.machine import image
    from sim.machine.lab import Lab
    from sim.machine.session import HUNG, Failure

    with console.stops():
        with console.progress("Preparing the guest") as say:
            qemu = image.fetch_qemu(say)
            made = image.build(RELEASES[chosen["release"]], say)
        config = NicConfig(
            width=int(chosen["width"]),
            functions=chosen["functions"] or 1,
            network=chosen["network"] or 0,
            **dict.fromkeys(chosen["switches"], True),
        )
        try:
            with console.progress(f"Building the cards at {config.width} bits"):
                testbench.build(config=config)
        except env.BuildError as error:
            raise click.ClickException(str(error)) from None
    for name, words in zip((SERVER, CLIENT), commands if len(commands) > 1 else ()):
        shown = " ".join(words).partition("\n")
        rest = " ..." if shown[1] else ""
        console.err.print(
            f"{name}: {shown[0]}{rest}", markup=False, highlight=False, soft_wrap=True
        )
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rocinante")))
        lab = stack.enter_context(Lab(qemu, made, folder, commands, chosen))
        try:
            status = lab.run()
        except TimeoutError:
            status = HUNG
            console.err.print(f"Error: stopped after {chosen['timeout']:g} s", highlight=False)
        except Failure as error:
            raise click.ClickException(str(error)) from None
        for line in lab.session.account(stall=status == HUNG):
            console.err.print(line, markup=False, highlight=False, soft_wrap=True)
        lab.end()
    return status
