"""``rocinante endpoint``: builds the NIC, starts its simulation, passes the client's lines on."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from sim.endpoint import options, relay
from sim.endpoint.fields import schema
from sim.rtl import env
from sim.tools import console, outputs

__all__ = ["endpoint"]


def _schema(context: click.Context, _option: Any, asked: bool) -> None:
    """A callback for --schema: prints it, and ends the command."""
    if asked:
        click.echo(json.dumps(schema(), indent=2))
        context.exit()


@click.command()
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_schema,
    help="Print the JSON Schema of the requests, and do nothing else.",
)
@options.wire_option
@options.listen_option
@options.mac_option
@options.ip_option
@click.option(
    "--function-ip",
    "function_addresses",
    metavar="ADDRESS",
    multiple=True,
    callback=options.host_addresses,
    help="Of a further guest function of the card (up to three; again for each). Requests name it "
    "by their field function.",
)
@console.width_option
@options.with_option
@click.option(
    "--pcap",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    callback=console.writable,
    help="Record the frames of the card, in simulated time.",
)
@console.waves_option
@console.impair_option
@console.timer_scale_option
def endpoint(
    wire: str,
    listen: bool,
    addresses: list[str],
    function_addresses: list[str],
    width: int,
    pcap: Path | None,
    waves: bool,
    **chosen: Any,
) -> None:
    """Put one simulated NIC on a unix socket; its verbs are JSON lines on standard input/output.

    docs/endpoint.md has the protocol. Ends with {"op":"quit"} or at the end of its input.
    """
    from hdl.config import NicConfig
    from sim.bench import testbench

    with console.stops():
        env.require_compiler()
        kept = pcap.with_suffix(".fst") if pcap else Path("endpoint.fst")
        if waves:
            env.require_waves()
            outputs.require_file(kept)
        features = dict.fromkeys(chosen.pop("switches"), True)
        config = NicConfig(width=width, functions=1 + len(function_addresses), **features)
        if len(addresses) > config.gids:
            raise ValueError(f"--ip: {len(addresses)} addresses, the NIC has {config.gids} GIDs")
    with contextlib.ExitStack() as stack:
        try:
            listener = stack.enter_context(relay.listening(wire)) if listen else None
        except OSError as error:
            what = error.filename or wire
            raise console.UsageStop(f"{what}: {error.strerror or error}") from None
        try:
            with console.progress(f"Building the NIC at {width} bits"):
                # Without waves the model is that of two cards, which others use too.
                model = testbench.build(config=config, waves=waves, nics=1 if waves else 2)
            spec = {
                "config": asdict(config),
                "addresses": addresses,
                "function_addresses": function_addresses,
                "wire": wire,
                "pcap": None if pcap is None else str(pcap.resolve()),
                **chosen,  # mac, impair, timer_scale
            }
            result = relay.serve(model, "sim.endpoint.bench", spec, listener)
        except (env.BuildError, AssertionError) as error:
            raise click.ClickException(str(error)) from None
    if result.waves is not None:
        from sim.tools.waves import keep

        saved = keep(result.waves, kept, width=width)
        console.err.print(f"{kept}: waves; gtkwave {saved}", highlight=False)
