"""``rocinante pyverbs`` and ``rocinante verbs-tests``: build the cards, start the simulation."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from hdl.config import NicConfig
from sim.bench.cards import EVERYTHING
from sim.endpoint import options
from sim.machine.releases import RELEASES
from sim.programs.vendors import VENDORS
from sim.rtl import env
from sim.tools import console

__all__ = ["pyverbs", "verbs_tests"]

_vendor_option = click.option(
    "--as",
    "vendor",
    type=click.Choice(list(VENDORS)),
    help="Library whose calls beyond verbs are there; devices tell its vendor's number.",
)


def _plain(chosen: dict[str, Any]) -> dict[str, Any]:
    """Options as a job has them."""
    pcap = chosen["pcap"]
    mac = int(chosen["mac"].replace(":", ""), 16)
    pcap = None if pcap is None else str(pcap.resolve())
    return {**chosen, "mac": mac, "pcap": pcap, "vendor": chosen["vendor"] or ""}


@contextlib.contextmanager
def _terminal(folder: Path) -> Iterator[str]:
    """A socket over which the simulation gets this process's standard files, and Ctrl-C.

    It stays open as long as this process lives.
    """
    path, takers = folder / "terminal", list[socket.socket]()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.bind(str(path))
        door.listen(1)

        def give() -> None:
            with contextlib.suppress(OSError):
                takers.append(door.accept()[0])
                socket.send_fds(takers[0], [b"+"], [0, 1, 2])

        def tell(*_: object) -> None:
            if not takers:
                raise KeyboardInterrupt
            with contextlib.suppress(OSError):
                takers[0].send(b"!")

        giver = threading.Thread(target=give, daemon=True)
        giver.start()
        before = signal.signal(signal.SIGINT, tell)
        try:
            yield str(path)
        finally:
            signal.signal(signal.SIGINT, before)
            with contextlib.suppress(OSError):
                door.shutdown(socket.SHUT_RDWR)  # wakes accept
            giver.join()
            for taker in takers:
                taker.close()


def simulate(config: NicConfig, program: str, spec: dict[str, Any], **chosen: Any) -> int:
    """Run a program of this package on cards; its status. chosen: the rest of a job."""
    from sim.bench import testbench
    from sim.bench.job import run_job

    with console.stops():
        env.require_compiler()
        try:
            with console.progress(f"Building the cards at {config.width} bits"):
                model = testbench.build(config=config)
        except env.BuildError as error:
            raise click.ClickException(str(error)) from None
    with tempfile.TemporaryDirectory(prefix="rocinante") as name, _terminal(Path(name)) as terminal:
        job = {
            "config": asdict(config),
            "program": program,
            "spec": spec,
            "folder": os.getcwd(),
            "terminal": terminal,
            **chosen,
        }
        kept, _ = run_job(
            model,
            "sim.programs.bench",
            job,
            lambda text: console.err.print(text, highlight=False),
            timeout_s=math.inf,
        )
    return int(kept["status"])


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--cards",
    type=click.IntRange(1, 2),
    default=2,
    show_default=True,
    help="Devices rocinante0 and rocinante1; two are joined by a wire.",
)
@_vendor_option
@options.mac_option
@options.pcap_option
@console.impair_option
@console.timer_scale_option
@click.argument("script", type=click.Path(dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def pyverbs(script: str, arguments: tuple[str, ...], **chosen: Any) -> None:
    """Run SCRIPT, a program that uses pyverbs, on simulated cards.

    The script, its threads and the cards are one process, which ends with the script's status.
    docs/pyverbs.md says what of pyverbs there is.
    """
    with console.stops():
        if not Path(script).is_file():
            raise ValueError(f"There is no {script}")
    spec = {"path": script, "arguments": list(arguments)}
    raise click.exceptions.Exit(simulate(EVERYTHING, "script", spec, **_plain(chosen)))


@click.command()
@click.option(
    "--release",
    type=click.Choice(list(RELEASES)),
    default="12",
    show_default=True,
    help="Of Debian, whose package the tests come from.",
)
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="Of the random values that the tests choose.",
)
@click.option(
    "--limit",
    type=console.Finite(0.01, 86_400),
    default=600.0,
    show_default=True,
    metavar="S",
    help="Seconds of wall time that one test may take.",
)
@console.json_option
@_vendor_option
@options.mac_option
@options.pcap_option
@console.impair_option
@console.timer_scale_option
@click.argument("names", nargs=-1, metavar="[NAME]...")
def verbs_tests(
    names: tuple[str, ...],
    release: str,
    seed: int,
    limit: float,
    json_file: Path | None,
    **chosen: Any,
) -> None:
    """Run rdma-core's own tests, unmodified, on a simulated card.

    NAME is a file of them or a test in it, as in test_pd or test_qp.QPTest.test_query_rc_qp;
    without one all are run. They come from a package of Debian, which is fetched. The status is 1
    if a test fails. docs/pyverbs.md says what is skipped, and why.
    """
    from sim.programs import fetched

    with console.stops(), console.progress("Preparing the tests") as say:
        folder = fetched.suite(RELEASES[release], say)
        fetched.check(folder, names)
    spec = {
        "folder": str(folder),
        "names": list(names),
        "device": "rocinante0",
        "seed": seed,
        "limit_s": limit,
        "kept": "" if json_file is None else str(json_file.resolve()),
    }
    raise click.exceptions.Exit(simulate(EVERYTHING, "suite", spec, cards=1, **_plain(chosen)))
