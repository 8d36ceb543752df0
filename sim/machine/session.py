"""Cards and guests, up and running: what passes between them and the user, to the end."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sim.machine import terminal
from sim.machine.cards import SO_FAR, Cards
from sim.machine.guests import Guest

__all__ = ["HUNG", "Failure", "Run", "Session"]

#: The status of a command that has been stopped for its time, as of timeout(1).
HUNG = 124
#: Wall-clock seconds: for the cards to be served, for a guest to be up, for the other side of a
#: command that has come to its end, for the cards to say where they stand, for a guest to go.
SERVE_S, BOOT_S, OTHER_S, REPORT_S, GO_S = 300.0, 600.0, 20.0, 20.0, 10.0
_CHUNK = 1 << 16


class Failure(RuntimeError):
    """Cards or guests do not run as they should: a line that says so, and what is known of it."""


@dataclass
class Run:
    """A command in a guest. ``end``: the number of its line. ``name``: before its output's lines,
    "" for a command alone. ``status``: None while it runs."""

    guest: Guest
    end: int
    name: str = ""
    status: int | None = None
    listening: bool = False
    rest: bytes = b""


@dataclass
class _Line:
    """A descriptor that is read, and by whom."""

    read: Callable[[], bool]


@dataclass
class Session:
    """What goes on. limit: seconds for commands, from their start."""

    cards: Cards
    guests: Sequence[Guest] = ()
    runs: Sequence[Run] = ()
    limit: float | None = None
    up: set[str] = field(default_factory=set)
    _lines: dict[int, _Line] = field(default_factory=dict)
    _control: dict[str, bytes] = field(default_factory=dict)

    # Steps --------------------------------------------------------------------------------------

    def await_cards(self) -> None:
        """Until the sockets are there."""
        self._lines[self.cards.fileno()] = _Line(self.cards.read)
        self._until(lambda: self.cards.served, SERVE_S, "the cards are not served")

    def await_guests(self) -> None:
        """Until each guest can run commands."""
        for guest in self.guests:
            self._lines[guest.control.fileno()] = _Line(self._reader(guest))
        self._until(lambda: len(self.up) == len(self.guests), BOOT_S, "a guest has not come up")

    def command(self) -> int:
        """Run the commands; the status of the last one that says something."""
        server, client = self.runs[0], self.runs[-1]
        for run in self.runs:
            self._lines[run.guest.lines[run.end].fileno()] = _Line(self._printer(run))
        until = None if self.limit is None else time.monotonic() + self.limit
        self._start(server)
        self._follow(lambda: server.listening or server.status is not None, until)
        if client is not server and server.status in (None, 0):
            self._start(client)
            self._follow(lambda: client.status is not None, until)
            over = time.monotonic() + (0.0 if client.status else OTHER_S)
            with contextlib.suppress(TimeoutError):
                self._follow(lambda: server.status is not None, over)
        else:
            self._follow(lambda: server.status is not None, until)
        for run in self.runs:
            _print(run, b"", end=True)
        return next((run.status for run in (client, server) if run.status), 0)

    def shell(self) -> int:
        """Give the first guest's shell the terminal; its status, or that of a guest cut off."""
        (run,) = self.runs
        line = run.guest.lines[run.end]
        self._lines[line.fileno()] = _Line(self._printer(run))
        rows, columns = terminal.size()
        gone: list[bool] = []

        def keys() -> bool:
            data = os.read(0, _CHUNK)
            if terminal.ESCAPE in data or not data:
                gone.append(True)
                return False
            line.sendall(data)
            return True

        self._lines[0] = _Line(keys)
        run.guest.control.sendall(f"shell rows {rows} columns {columns}\n".encode())
        with terminal.raw():
            self._follow(lambda: run.status is not None or bool(gone), None)
        return run.status or 0

    def end_guests(self) -> None:
        """Let the guests go in good order."""
        for guest in self.guests:
            with contextlib.suppress(OSError):
                guest.control.sendall(b"end\n")
        until = time.monotonic() + GO_S
        while time.monotonic() < until and any(one.process.poll() is None for one in self.guests):
            self._exchange(0.1)

    def account(self, *, stall: bool = False) -> list[str]:
        """What the cards have counted; if they hang, where they stand and what consoles say."""
        before = len(self.cards.lines)
        self.cards.ask(stall)
        until = time.monotonic() + REPORT_S
        while time.monotonic() < until and self.cards.process.poll() is None:
            if self.cards.lines[before:] and self.cards.lines[-1].endswith(SO_FAR):
                break
            self._exchange(0.2)
        found = self.cards.lines[before:]
        for guest in self.guests if stall else ():
            found += [f"{guest.plan.name}'s console:", *guest.last_lines()]
        return found

    # The loop -----------------------------------------------------------------------------------

    def _until(self, done: Callable[[], bool], seconds: float, what: str) -> None:
        try:
            self._follow(done, time.monotonic() + seconds)
        except TimeoutError:
            raise self._failure(f"{what} within {seconds:.0f} s") from None

    def _follow(self, done: Callable[[], bool], until: float | None) -> None:
        """Pass on what there is until ``done``; TimeoutError at ``until``, Failure if one dies."""
        while not done():
            left = 0.5 if until is None else until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._exchange(min(left, 0.5))
            if done():
                return
            if self.cards.process.poll() is not None:
                self._exchange(0)
                raise self._failure(
                    f"the cards have ended with status {self.cards.process.returncode}"
                )
            for guest in self.guests:
                if guest.process.poll() is not None:
                    self._exchange(0)
                    if done():
                        return
                    raise self._failure(f"{guest.plan.name}: {guest.ended}")

    def _exchange(self, patience: float) -> None:
        poll = select.poll()
        for descriptor in self._lines:
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(1000 * patience):
            try:
                more = self._lines[descriptor].read()
            except OSError:
                more = False
            if not more:
                del self._lines[descriptor]

    def _failure(self, what: str) -> Failure:
        lines = [what]
        if self.cards.process.poll() is not None or not self.cards.served:
            lines += [f"  | {line}" for line in self.cards.lines[-8:]]
        for guest in self.guests:
            if guest.process.poll() is not None or guest.plan.name not in self.up:
                lines += [f"  | {line}" for line in guest.last_lines()]
        return Failure("\n".join(lines))

    # Lines --------------------------------------------------------------------------------------

    def _reader(self, guest: Guest) -> Callable[[], bool]:
        """Reads a guest's control line."""
        name = guest.plan.name

        def read() -> bool:
            data = guest.control.recv(_CHUNK)
            *lines, rest = (self._control.get(name, b"") + data).split(b"\n")
            self._control[name] = rest
            for line in lines:
                self._told(guest, line.decode(errors="replace").split())
            return bool(data)

        return read

    def _told(self, guest: Guest, words: Sequence[str]) -> None:
        match words:
            case ["up"]:
                self.up.add(guest.plan.name)
            case ["trouble", *what]:
                raise Failure(f"{guest.plan.name}: {' '.join(what)}")
            case ["listening", end]:
                for run in self._runs_of(guest, end):
                    run.listening = True
            case ["status", end, status] if status.isdigit():
                for run in self._runs_of(guest, end):
                    run.status = int(status)

    def _runs_of(self, guest: Guest, end: str) -> list[Run]:
        return [run for run in self.runs if run.guest is guest and str(run.end) == end]

    def _start(self, run: Run) -> None:
        run.guest.control.sendall(f"run {run.end}\n".encode())

    def _printer(self, run: Run) -> Callable[[], bool]:
        """Prints what a command says, as it comes."""

        def read() -> bool:
            data = run.guest.lines[run.end].recv(_CHUNK)
            _print(run, data)
            return bool(data)

        return read


def _print(run: Run, data: bytes, *, end: bool = False) -> None:
    """Write to standard output; of two commands whole lines, each with its command's name."""
    out = sys.stdout.buffer
    if run.name:
        *lines, run.rest = (run.rest + data).split(b"\n")
        if end and run.rest:
            lines, run.rest = [*lines, run.rest], b""
        data = b"".join(run.name.encode() + b": " + line + b"\n" for line in lines)
    out.write(data)
    out.flush()
