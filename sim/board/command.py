"""``rocinante board``: a whole board in the simulation, for those who have none."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from sim.endpoint import options, relay
from sim.rtl import env
from sim.tools import console

__all__ = ["board"]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@options.wire_option
@options.listen_option
@options.mac_option
@options.ip_option
@click.option(
    "--pcap",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    callback=console.writable,
    help="Record the frames at the card's MAC, in simulated time.",
)
def board(wire: str, listen: bool, mac: str, addresses: list[str], pcap: Path | None) -> None:
    """Run the ECPIX-5 in the simulation: bitstream's top, UART, PHY.

    Prints the name of a pseudo terminal that is its UART, for `bridge --port`. --mac and --ip are
    those that `bridge` gives the card: software answers ARP and ping for them. Ends at the end of
    its input. docs/boards.md says more.
    """
    from boards.ecpix5.card import Ecpix5Card
    from boards.ecpix5.top import Ecpix5Top
    from sim.board import model
    from sim.board.pins import DIVISOR

    with console.stops():
        env.require_compiler()
    with contextlib.ExitStack() as stack:
        try:
            listener = stack.enter_context(relay.listening(wire)) if listen else None
        except OSError as error:
            raise console.UsageStop(f"{wire}: {error.strerror or error}") from None
        try:
            with console.progress("Building the board"):
                top = Ecpix5Top(Ecpix5Card(divisor=DIVISOR))
                built = model.build(model.verilog(top))
            spec = {
                "wire": wire,
                "mac": mac,
                "addresses": addresses,
                "pcap": None if pcap is None else str(pcap.resolve()),
            }
            relay.serve(built, "sim.board.bench", spec, listener)
        except (env.BuildError, AssertionError) as error:
            raise click.ClickException(str(error)) from None
