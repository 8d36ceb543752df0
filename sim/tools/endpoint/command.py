"""``rocinante endpoint``: builds the NIC, starts its simulation, passes the client's lines on."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import math
import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from sim.rtl import env
from sim.tools import console
from sim.tools.endpoint import peer
from sim.tools.endpoint.fields import card_mac

__all__ = ["endpoint"]

_CHUNK = 1 << 16


def _mac(_context: Any, _option: Any, value: str) -> str:
    try:
        return card_mac(value).hex(":")
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _addresses(_context: Any, _option: Any, values: tuple[str, ...]) -> list[str]:
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


def _wire(_context: Any, _option: Any, value: str) -> str:
    kind, _, path = value.partition(":")
    if kind != "unix" or not path:
        raise click.BadParameter(f"must be unix:PATH, not {value!r}")
    return path


@click.command()
@click.option(
    "--wire",
    metavar="unix:PATH",
    required=True,
    callback=_wire,
    help="Unix stream socket for the frames, as QEMU's -netdev stream has it.",
)
@click.option("--listen", is_flag=True, help="Listen there; otherwise connect, until it works.")
@click.option("--mac", default="02:00:00:00:00:01", show_default=True, callback=_mac)
@click.option(
    "--ip",
    "addresses",
    multiple=True,
    default=["10.0.0.1"],
    show_default=True,
    callback=_addresses,
    metavar="ADDRESS",
    help="IPv4 or IPv6 address; several become GID 0, 1, ...",
)
@console.width_option
@click.option(
    "--pcap",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Record the frames of the card, in simulated time.",
)
@console.waves_option
@console.impair_option
@console.timer_scale_option
def endpoint(
    wire: str,
    listen: bool,
    addresses: list[str],
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
            console.require_writable(kept)
        config = NicConfig(width=width)
        if len(addresses) > config.gids:
            raise ValueError(f"--ip: {len(addresses)} addresses, the NIC has {config.gids} GIDs")
    with contextlib.ExitStack() as stack:
        try:
            listener = stack.enter_context(_listening(wire)) if listen else None
            if pcap is not None:
                pcap.write_bytes(b"")
        except OSError as error:
            what = error.filename or wire
            raise console.UsageStop(f"{what}: {error.strerror or error}") from None
        try:
            with console.progress(f"Building the NIC at {width} bits"):
                model = testbench.build(config=config, waves=waves)
            spec = {
                "width": width,
                "addresses": addresses,
                "wire": wire,
                "pcap": None if pcap is None else str(pcap.resolve()),
                **chosen,  # mac, impair, timer_scale
            }
            result = _run(model, spec, listener)
        except (env.BuildError, AssertionError) as error:
            raise click.ClickException(str(error)) from None
    if result.waves is not None:
        console.err.print(f"{shutil.copyfile(result.waves, kept)}: waves", highlight=False)


@contextlib.contextmanager
def _listening(path: str) -> Iterator[socket.socket]:
    """A listening socket whose file goes when it does."""
    with peer.listen(path) as listener:
        try:
            yield listener
        finally:
            Path(path).unlink(missing_ok=True)


def _run(model: Any, spec: dict[str, Any], listener: socket.socket | None) -> Any:
    """Run the simulation; its results. Standard input and output are the client's meanwhile."""
    from sim.rtl.build import run

    with tempfile.TemporaryDirectory(prefix="rocinante") as folder:
        relay = Relay(Path(folder) / "control", listener)
        with relay.stopped_by_signals():
            try:
                return run(
                    model,
                    test_module="sim.tools.endpoint.bench",
                    extra_env={
                        "ROCINANTE_ENDPOINT": json.dumps({**spec, "control": relay.path}),
                        "COCOTB_REWRITE_ASSERTION_FILES": "",  # for tests; here it takes time
                    },
                    timeout_s=math.inf,
                )
            finally:
                relay.close()


class Relay:
    """Joins standard input and output to the simulation's end of a socket.

    A simulation's own output goes to a log; and whatever happens to this process, the simulation
    sees its socket close, and ends.
    """

    def __init__(self, path: Path, listener: socket.socket | None):
        self.path = str(path)
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._door.bind(self.path)
        self._door.listen(1)
        self._descriptors = [2] if listener is None else [2, listener.fileno()]
        self._connection: socket.socket | None = None
        self._stopping = False
        self._replies = threading.Thread(target=self._serve, daemon=True)
        self._replies.start()

    def stop(self) -> None:
        """Tell the simulation that nobody is there any more."""
        self._stopping = True
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def stopped_by_signals(self) -> Iterator[None]:
        """End in good order when told to."""
        signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, lambda *_: self.stop()) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def close(self) -> None:
        """The simulation has ended: pass on what it still had to say."""
        with contextlib.suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)  # wakes accept
        self._replies.join()
        self._door.close()

    def _serve(self) -> None:
        try:
            self._connection, _ = self._door.accept()
        except OSError:
            return  # the simulation has ended before it began
        with self._connection as connection:
            socket.send_fds(connection, [b"+"], self._descriptors)
            if self._stopping:
                self.stop()
            threading.Thread(target=self._requests, args=(connection,), daemon=True).start()
            with contextlib.suppress(OSError):
                while data := connection.recv(_CHUNK):
                    _write(1, data)
            self.stop()

    def _requests(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(0, _CHUNK):
                connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
