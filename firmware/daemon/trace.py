"""``rocinante trace``, and ``rocinante-trace`` of the package: a card's trace as a capture."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from firmware.daemon.bars import open_bar
from firmware.daemon.outputs import require_file
from firmware.daemon.settings import add_bar, number, seconds
from firmware.device import HardwareError
from firmware.identity import read_config
from firmware.pcapng import INBOUND, OUTBOUND, Interface, Packet, pcapng
from firmware.registers import Registers
from firmware.tracer import TracedFrame, Tracer
from hdl.config import TRACE_BYTES, VERSION
from hdl.ports.counter_names import DROP_REASONS

__all__ = ["capture", "main", "parser"]

#: How often it is looked whether a drop has ended the trace, s.
_PERIOD_S = 0.05
_PREFIX = "rx_drops_"
_PROGRAM = "rocinante-trace"


def _reasons(text: str) -> tuple[str, ...]:
    if text == "any":
        return DROP_REASONS
    names = tuple(_PREFIX + name.removeprefix(_PREFIX) for name in text.split(","))
    for name in names:
        if name not in DROP_REASONS:
            known = ", ".join(one.removeprefix(_PREFIX) for one in DROP_REASONS)
            raise argparse.ArgumentTypeError(
                f"no frame is dropped for {name.removeprefix(_PREFIX)!r}; there are any, {known}"
            )
    return names


def _snap(text: str) -> int:
    found = number(text)
    if not 0 <= found <= TRACE_BYTES:
        raise argparse.ArgumentTypeError(f"must be 0 to {TRACE_BYTES}, not {text!r}")
    return found


def parser(program: str = _PROGRAM) -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog=program,
        description="Record the headers of the frames that a Rocinante card sends and receives, "
        "and write the last of them to a pcapng file, with the reason of each drop. A firmware "
        "may run beside.",
    )
    add_bar(made.add_argument_group("card"))
    made.add_argument("-o", "--output", type=Path, metavar="FILE", help="the capture")
    made.add_argument(
        "--snap",
        type=_snap,
        default=TRACE_BYTES,
        metavar="BYTES",
        help="of a frame that are recorded; default and most: %(default)s",
    )
    made.add_argument(
        "--stop-at",
        type=_reasons,
        default=(),
        metavar="REASON,...",
        help="end when a frame is dropped for one of these reasons: counters without rx_drops_, "
        "or any",
    )
    made.add_argument(
        "--seconds",
        type=seconds(0, 10**9),
        metavar="S",
        help="end after that time; default: with SIGINT or SIGTERM",
    )
    only = made.add_mutually_exclusive_group()
    only.add_argument("--start", action="store_true", help="only begin, and leave it running")
    only.add_argument("--read", action="store_true", help="only end what runs, and write FILE")
    return made


def capture(frames: Sequence[TracedFrame], *, card: str, now: int, time_ns: int, hz: int) -> bytes:
    """The frames as a pcapng file.

    card: its version; now: the card's time in cycles at ``time_ns`` since 1970; hz: of its clock.
    """
    interfaces = [
        Interface("tx", f"frames that the card has sent ({card})", TRACE_BYTES),
        Interface("rx", f"frames that have come to the card ({card})", TRACE_BYTES),
    ]
    packets = [
        Packet(
            interface=int(one.received),
            time=time_ns - (now - one.time) * 10**9 // hz,
            octets=one.octets,
            length=one.length,
            direction=INBOUND if one.received else OUTBOUND,
            comment=one.comment,
        )
        for one in frames
    ]
    return pcapng(f"{_PROGRAM} {VERSION}", interfaces, packets)


async def _wait(tracer: Tracer, seconds: float | None) -> None:
    """Until a drop has ended the trace, the time is over or a signal comes."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, stopped.set)
    ends = None if seconds is None else time.monotonic() + seconds
    while not stopped.is_set() and await tracer.running():
        left = _PERIOD_S if ends is None else min(_PERIOD_S, ends - time.monotonic())
        if left <= 0:
            return
        try:
            await asyncio.wait_for(stopped.wait(), left)
        except TimeoutError:
            continue


async def _run(chosen: argparse.Namespace) -> None:
    bar = await open_bar(chosen.bar, offset=chosen.offset, size=chosen.size, alone=False)
    try:
        config = await read_config(bar)
        registers, tracer = Registers(bar, config), Tracer(bar, config)
        if not chosen.read:
            await tracer.start(snap=chosen.snap, stop_at=chosen.stop_at)
            if chosen.start:
                return
            await _wait(tracer, chosen.seconds)
        await tracer.stop()
        dropped = await tracer.dropped()
        frames = await tracer.frames()
        now, time_ns = await tracer.now(), time.time_ns()
        card = f"{await registers.version()} {registers.commit}".rstrip()
        made = capture(frames, card=card, now=now, time_ns=time_ns, hz=config.clock_hz)
        chosen.output.write_bytes(made)
        drops = sum(bool(one.reason) for one in frames)
        ended = ", ended by a drop" if dropped else ""
        print(f"{chosen.output}: {len(frames)} frames, {drops} of them dropped{ended}")
    finally:
        bar.close()


def main(arguments: list[str] | None = None, program: str = _PROGRAM) -> int:
    """Trace; the exit status: 0, or 1 when the card is bad or has no trace."""
    made = parser(program)
    chosen = made.parse_args(arguments)
    if chosen.output is None and not chosen.start:
        made.error("-o is needed")
    if chosen.output is not None:
        try:
            require_file(chosen.output)
        except OSError as error:
            made.error(f"-o {chosen.output}: {error.strerror}")
    try:
        asyncio.run(_run(chosen))
    except (HardwareError, OSError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
