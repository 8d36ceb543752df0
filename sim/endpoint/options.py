"""Options that commands with a card on a wire share."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

import click

from hdl.config import SWITCHES
from sim.endpoint.values import card_mac
from sim.tools import console

__all__ = [
    "host_addresses",
    "ip_option",
    "listen_option",
    "mac_option",
    "pcap_option",
    "wire_option",
    "with_option",
    "wire_path",
]


def _mac(_context: Any, _option: Any, value: str) -> str:
    try:
        return card_mac(value).hex(":")
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def host_addresses(_context: Any, _option: Any, values: tuple[str, ...]) -> list[str]:
    """Addresses of hosts, as an option of click gives them."""
    found = []
    for value in values:
        try:
            address = ipaddress.ip_address(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
        if address.is_multicast or address.is_unspecified or "%" in value:
            raise click.BadParameter(f"must be the address of one host, not {value}")
        mapped = getattr(address, "ipv4_mapped", None)
        found.append(str(mapped or address))
    return found


def wire_path(_context: Any, _option: Any, value: str | None) -> str | None:
    """A callback for ``--wire``: the path in unix:PATH, None without one."""
    if value is None:
        return None
    kind, _, path = value.partition(":")
    if kind != "unix" or not path:
        raise click.BadParameter(f"must be unix:PATH, not {value!r}")
    return path


wire_option = click.option(
    "--wire",
    metavar="unix:PATH",
    required=True,
    callback=wire_path,
    help="Unix stream socket for the frames, as QEMU's -netdev stream has it.",
)
listen_option = click.option(
    "--listen", is_flag=True, help="Listen there; otherwise connect, until it works."
)
mac_option = click.option(
    "--mac", default="02:00:00:00:00:01", show_default=True, callback=_mac, help="Of the card."
)
pcap_option = click.option(
    "--pcap",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    callback=console.writable,
    help="Record the frames, in simulated time.",
)
with_option = click.option(
    "--with",
    "switches",
    type=click.Choice(sorted(SWITCHES)),
    metavar="SWITCH",
    multiple=True,
    help="A feature of the card that is off by default, as xrc or mp_wr (again for each).",
)
ip_option = click.option(
    "--ip",
    "addresses",
    multiple=True,
    default=["10.0.0.1"],
    show_default=True,
    callback=host_addresses,
    metavar="ADDRESS",
    help="IPv4 or IPv6 address; several become GID 0, 1, ...",
)
