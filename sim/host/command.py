"""``rocinante card``: builds the cards, starts their simulation, serves their functions."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import click

from sim.endpoint import options, relay
from sim.rtl import env
from sim.tools import console

__all__ = ["card"]

#: Bytes of a unix socket's path, and those of the longest name of a function's socket.
_LONGEST = 107
_NAME = len("/card0-function1")


def _folder(_context: Any, _option: Any, value: Path) -> Path:
    """A callback for --socket: a folder that is there, and whose sockets can have their names."""
    if len(os.fsencode(value)) + _NAME > _LONGEST:
        raise click.BadParameter(f"the path of a socket has {_LONGEST} bytes at most: {value}")
    try:
        value.mkdir(exist_ok=True)
    except OSError as error:
        raise click.BadParameter(f"{value}: {error.strerror}") from None
    return value


@click.command()
@click.option(
    "--socket",
    "folder",
    type=click.Path(file_okay=False, path_type=Path, resolve_path=True),
    required=True,
    metavar="DIR",
    callback=_folder,
    help="Folder of the sockets, card0-function1 and so on.",
)
@click.option(
    "--functions", type=click.IntRange(1, 4), default=1, show_default=True, help="Of each card."
)
@click.option(
    "--cards",
    type=click.IntRange(1, 2),
    default=1,
    show_default=True,
    help="Two are joined by a wire.",
)
@click.option(
    "--bound",
    "bound_us",
    type=console.Finite(0.1, 1e6),
    default=1000.0,
    show_default=True,
    metavar="US",
    help="How long a register write waits at most until the card is idle, simulated microseconds.",
)
@click.option(
    "--wire",
    metavar="unix:PATH",
    callback=options.wire_path,
    help="Unix stream socket for the frames of a single card, as QEMU's -netdev stream has it.",
)
@options.listen_option
@options.mac_option
@console.width_option
@click.option(
    "--pcap",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    callback=console.writable,
    help="Record the frames, in simulated time.",
)
@console.impair_option
@console.timer_scale_option
def card(
    folder: Path,
    cards: int,
    functions: int,
    wire: str | None,
    listen: bool,
    width: int,
    pcap: Path | None,
    **chosen: Any,
) -> None:
    """Serve the functions of simulated cards to guests, by vfio-user.

    docs/card.md says how QEMU and other clients use it. Ends with SIGINT or SIGTERM.
    """
    from hdl.config import NicConfig
    from sim.bench import testbench

    if wire is not None and cards > 1:
        raise console.UsageStop("--wire: two cards are joined by a wire of their own")
    if listen and wire is None:
        raise console.UsageStop("--listen: there is no --wire")
    with console.stops():
        env.require_compiler()
        config = NicConfig(width=width, functions=functions)
    with contextlib.ExitStack() as stack:
        try:
            listener = stack.enter_context(relay.listening(wire)) if wire and listen else None
        except OSError as error:
            raise console.UsageStop(f"{wire}: {error.strerror or error}") from None
        try:
            with console.progress(f"Building the cards at {width} bits"):
                model = testbench.build(config=config)  # of two cards: others use it too
            spec = {
                "width": width,
                "functions": functions,
                "cards": cards,
                "folder": str(folder),
                "wire": wire,
                "pcap": None if pcap is None else str(pcap.resolve()),
                **chosen,  # mac, bound_us, impair, timer_scale
            }
            relay.serve(model, "sim.host.bench", spec, listener, requests=False)
        except (env.BuildError, AssertionError) as error:
            raise click.ClickException(str(error)) from None
