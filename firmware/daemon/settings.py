"""What whoever runs the card chooses: the options of the daemon, checked."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from firmware.daemon.metrics import Place
from hdl.bounds import finite, within

__all__ = ["Settings", "TableEntry", "add_bar", "number", "parser", "seconds", "settings"]

#: Default of --period: how often the firmware looks for work, s.
PERIOD_S = 0.001
_PROGRAM = "rocinante-firmware"


@dataclass(frozen=True)
class TableEntry:
    """``value`` for entry ``index`` of a table of guest function ``ordinal``, counted from 0."""

    ordinal: int
    index: int
    value: int


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options. ``mac`` has 6 bytes. ``period`` in seconds."""

    bar: str
    offset: int
    size: int | None
    period: float
    mac: bytes
    lossless: bool
    vlans: tuple[TableEntry, ...]
    pkeys: tuple[TableEntry, ...]
    state: Path | None
    metrics: Place | None
    level: str
    check: bool


def number(text: str) -> int:
    """The number of an option, 64 bits, decimal or with 0x."""
    try:
        found = int(text, 0)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
    if not 0 <= found < 1 << 64:
        raise argparse.ArgumentTypeError(f"must be 0 to 2^64 - 1, not {text!r}")
    return found


def seconds(low: float, high: float) -> Callable[[str], float]:
    """Reads an option in seconds, from ``low`` to ``high``."""

    def read(text: str) -> float:
        try:
            found = finite(text)
            within("it", found, low, high)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return found

    return read


def _mac(text: str) -> bytes:
    if not re.fullmatch(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}", text):
        raise argparse.ArgumentTypeError(f"must be as 02:00:00:00:00:01, not {text!r}")
    mac = bytes.fromhex(text.replace(":", ""))
    if mac[0] & 1 or not any(mac):
        raise argparse.ArgumentTypeError(f"{text} is no address of one card")
    return mac


def _place(text: str) -> Place:
    try:
        return Place.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _entry(text: str) -> TableEntry:
    found = re.fullmatch(r"(?:(\d+):)?(\d+)=(\w+)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"must be [FUNCTION:]INDEX=VALUE, not {text!r}")
    return TableEntry(int(found[1] or 0), int(found[2]), number(found[3]))


def add_bar(group: argparse._ArgumentGroup) -> None:
    """Add the options that say where a card is."""
    group.add_argument(
        "--bar",
        required=True,
        metavar="PATH",
        help="a file to map (sysfs resource0 of the function, /dev/uioN), or unix:PATH: a socket "
        "on which a simulation serves the registers",
    )
    group.add_argument(
        "--offset", type=number, default=0, metavar="BYTES", help="where the BAR begins in PATH"
    )
    group.add_argument(
        "--size", type=number, metavar="BYTES", help="of the BAR; default: the file's, or 1 MiB"
    )


def parser(program: str = _PROGRAM) -> argparse.ArgumentParser:
    """The command line of the daemon."""
    made = argparse.ArgumentParser(
        prog=program,
        description="Serve the control queues of a Rocinante card through BAR 0 of its management "
        "function. Ends in good order with SIGTERM or SIGINT; queue pairs go on without it.",
    )
    bar = made.add_argument_group("card")
    add_bar(bar)
    bar.add_argument(
        "--period",
        type=seconds(0.000_001, 1),
        default=PERIOD_S,
        metavar="S",
        help="longest time between two looks for work, s; default: %(default)s",
    )
    port = made.add_argument_group("port and tables")
    port.add_argument("--mac", type=_mac, metavar="ADDRESS", help="MAC address of the port")
    port.add_argument(
        "--lossless", action="store_true", help="the link holds frames back instead of losing them"
    )
    for name, what in (("vlan", "VLAN of what is sent from a GID"), ("pkey", "P_Key")):
        port.add_argument(
            f"--{name}",
            dest=f"{name}s",
            type=_entry,
            action="append",
            default=[],
            metavar="[FUNCTION:]INDEX=VALUE",
            help=f"{what}; FUNCTION counts the guest functions from 0",
        )
    made.add_argument(
        "--state",
        type=Path,
        metavar="FILE",
        help="journal by which the next firmware takes over a card in use; without it the next one "
        "begins when no driver is there",
    )
    made.add_argument(
        "--metrics",
        type=_place,
        metavar="PLACE",
        help="give Prometheus the counters at http://PLACE/metrics: PORT (of 127.0.0.1), HOST:PORT "
        "or unix:PATH; or write them to file:PATH every 15 s",
    )
    made.add_argument(
        "--log-level",
        dest="level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="least grave lines of the log; default: %(default)s",
    )
    made.add_argument(
        "--check",
        action="store_true",
        help="say in a JSON line what the card is, and end; nothing is changed",
    )
    return made


def settings(arguments: list[str] | None, program: str = _PROGRAM) -> Settings:
    """The options of a command line; ends the process when they cannot be."""
    made = parser(program)
    given = vars(made.parse_args(arguments))
    if given["mac"] is None and not given["check"]:
        made.error("--mac is needed")
    return Settings(
        **{
            **given,
            "mac": given["mac"] or bytes(6),
            "vlans": tuple(given["vlans"]),
            "pkeys": tuple(given["pkeys"]),
        }
    )
