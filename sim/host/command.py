"""``rocinante card``: builds the cards, starts their simulation, serves their functions."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from hdl.abi.virtio_net import LARGEST_MTU, MTU
from hdl.config import NicConfig
from sim.endpoint import options, relay
from sim.rtl import env
from sim.rtl.build import BuiltModel
from sim.tools import console

__all__ = ["card", "serve"]

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


def serve(
    model: BuiltModel,
    config: NicConfig,
    folder: Path,
    listener: socket.socket | None = None,
    **chosen: Any,
) -> None:
    """Serve the functions of the cards of a model, until a signal ends that.

    folder: of the sockets. listener: where the wire's peers connect. chosen: what else is not as
    the command has it by default, by the names of its options' parameters.
    """
    spec: dict[str, Any] = {
        "cards": 1,
        "wire": None,
        "mac": "02:00:00:00:00:01",
        "bound_us": 1000.0,
        "impair": "",
        "timer_scale": 1.0,
        "pcap": None,
        "mtu": MTU,
        **chosen,
        "config": asdict(config),
        "folder": str(folder),
    }
    if spec["pcap"] is not None:
        spec["pcap"] = str(spec["pcap"].resolve())
    # What the bench takes.
    asks = {signal.SIGUSR1: b"stall\n", signal.SIGUSR2: b"count\n"}
    relay.serve(model, "sim.host.bench", spec, listener, requests=False, asks=asks)


@click.command()
@click.option(
    "--socket",
    "folder",
    type=click.Path(file_okay=False, path_type=Path, resolve_path=True),
    required=True,
    metavar="DIR",
    callback=_folder,
    help="Folder of the sockets, card0-function1 and so on; the network function has number 0.",
)
@console.card_options
@click.option(
    "--functions", type=click.IntRange(1, 4), help="Of each card; default the profile's, or 1."
)
@click.option(
    "--network",
    type=click.IntRange(0, 8),
    metavar="PAIRS",
    help="Pairs of queues of each card's network function, 1, 2, 4 or 8; default the profile's.",
)
@click.option(
    "--mtu",
    type=click.IntRange(68, LARGEST_MTU),
    default=MTU,
    show_default=True,
    metavar="BYTES",
    help="The largest that the drivers of network functions are told.",
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
@options.with_option
@options.listen_option
@options.mac_option
@options.pcap_option
@console.impair_option
@console.timer_scale_option
def card(
    profile: str | None,
    config: NicConfig,
    folder: Path,
    functions: int | None,
    network: int | None,
    wire: str | None,
    listen: bool,
    **chosen: Any,
) -> None:
    """Serve the functions of simulated cards to guests, by vfio-user.

    docs/card.md says how QEMU and other clients use it. Ends with SIGINT or SIGTERM.
    """
    from sim.bench import testbench

    if wire is not None and chosen["cards"] > 1:
        raise console.UsageStop("--wire: two cards are joined by a wire of their own")
    if listen and wire is None:
        raise console.UsageStop("--listen: there is no --wire")
    with console.stops():
        env.require_compiler()
        if functions is not None:
            config = replace(config, functions=functions)
        if network is not None:
            config = replace(config, network=network)
        config = replace(config, **dict.fromkeys(chosen.pop("switches"), True))
    with contextlib.ExitStack() as stack:
        try:
            listener = stack.enter_context(relay.listening(wire)) if wire and listen else None
        except OSError as error:
            raise console.UsageStop(f"{wire}: {error.strerror or error}") from None
        try:
            with console.progress(f"Building the cards at {config.width} bits"):
                model = testbench.build(config=config)  # of two cards: others use it too
            serve(model, config, folder, listener, wire=wire, **chosen)
        except (env.BuildError, AssertionError) as error:
            raise click.ClickException(str(error)) from None
