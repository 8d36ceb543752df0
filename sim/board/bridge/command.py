"""``rocinante bridge``: firmware and driver for a board behind a UART; verbs as JSON lines."""

from __future__ import annotations

import asyncio
import errno
import os
import threading

import click
from serial import SerialException

from boards.ecpix5.card import BAUD, CONFIG
from firmware.device import HardwareError
from sim.board.bridge.board import Board
from sim.endpoint import options
from sim.endpoint.lines import LONGEST
from sim.endpoint.session import Session, failure
from sim.endpoint.values import mac_bytes
from sim.guest.bridge.link import BridgeError
from sim.guest.bridge.serial_line import SerialLine
from sim.tools import console

__all__ = ["bridge"]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--port", required=True, metavar="PATH", help="The board's UART, as in /dev/ttyUSB1.")
@click.option(
    "--baud",
    type=click.IntRange(1, 100_000_000),
    default=BAUD,
    show_default=True,
    help="Bits per second of the UART.",
)
@click.option(
    "--timeout",
    type=console.Finite(0.001, 86_400),
    default=1.0,
    show_default=True,
    metavar="S",
    help="Longest wait for an answer of the board; a simulated one takes longer.",
)
@options.mac_option
@options.ip_option
@click.option(
    "--fresh",
    is_flag=True,
    help="The board was loaded a moment ago: its memory is zero and need not be cleared.",
)
def bridge(
    port: str, baud: int, timeout: float, mac: str, addresses: list[str], fresh: bool
) -> None:
    """Bring up an ECPIX-5 through its UART; its verbs are JSON lines on standard input/output.

    docs/endpoint.md has the protocol, docs/boards.md the way to such a board. Ends with
    {"op":"quit"} or at the end of its input.
    """
    if len(addresses) > CONFIG.gids:
        raise console.UsageStop(f"--ip: {len(addresses)} addresses, the board has {CONFIG.gids}")
    try:
        line = SerialLine(port, baud, timeout_s=timeout)
    except SerialException as error:
        raise console.UsageStop(str(error)) from None
    try:
        asyncio.run(_serve(line, mac_bytes(mac), addresses, fresh))
    except (BridgeError, HardwareError, OSError) as error:
        raise click.ClickException(f"{port}: {error}") from None
    finally:
        line.close()


async def _serve(line: SerialLine, mac: bytes, addresses: list[str], fresh: bool) -> None:
    """Bring the board up and serve the client until it has quit or gone."""
    board = Board(line)
    with console.progress(f"Bringing up the board at {line.path}"):
        await board.start(mac, addresses, fresh=fresh)
    session = Session(board.context, board, mac=mac, addresses=addresses)
    requests = _requests()
    while not session.over and (request := await board.guard(requests.get())):
        if len(request) > LONGEST:
            reply = failure(errno.EMSGSIZE, f"A line has at most {LONGEST} bytes")
        else:
            reply = await board.guard(_answer(board, session, request))
        while reply:
            reply = reply[os.write(1, reply) :]
    await board.close()


async def _answer(board: Board, session: Session, request: bytes) -> bytes:
    """The reply to a request; what it has written is on the board by then."""
    board.rest(False)
    reply = await session.handle(request)
    await board.flush()
    board.rest(True)
    return reply


def _requests() -> asyncio.Queue[bytes]:
    """Lines of standard input; an empty one is its end."""
    loop, lines = asyncio.get_running_loop(), asyncio.Queue[bytes]()

    def read() -> None:
        with open(0, "rb", closefd=False) as client:
            for line in client:
                loop.call_soon_threadsafe(lines.put_nowait, line)
        loop.call_soon_threadsafe(lines.put_nowait, b"")

    threading.Thread(target=read, daemon=True).start()
    return lines
