"""The socket of a function, and who comes and goes there."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Callable
from typing import Any

import cocotb
from cocotb.triggers import Event

from sim.endpoint.peer import listen
from sim.host.channel import Channel
from sim.host.function import Function
from sim.host.pace import Pace
from sim.host.session import Session

__all__ = ["Door"]


class Door:
    """Serves a function to one client at a time; implements ``sim.models.spaces.Guest``.

    When a client goes, the function is reset before the next one is let in. ``say`` takes lines
    about what happens. Raises OSError when there can be no socket at ``path``.
    """

    def __init__(self, path: str, function: Function, pace: Pace, say: Callable[[str], None]):
        self.path, self.function = path, function
        self._pace, self._say = pace, say
        self._listener = listen(path)
        self._listener.setblocking(False)
        self._space = function.host.lend(function.number, self)
        self._session: Session | None = None
        self._news = Event()
        self._working = self._leaving = False
        self._since = 0
        self._faults = (0, 0)
        self.clients = 0

    # What the card does -------------------------------------------------------------------------

    def message(self, addr: int, data: int) -> None:
        """An interrupt; without a client it is nobody's."""
        if self._session is not None:
            self._session.message(addr, data)

    def fetch(self, addr: int, length: int, done: Callable[[bytes | None], None]) -> None:
        """A read of memory that the client must be asked for."""
        assert self._session is not None
        self._session.fetch(addr, length, done)

    def store(self, addr: int, data: bytes) -> None:
        """A write of such memory."""
        if self._session is not None:
            self._session.store(addr, data)

    def intx_changed(self) -> None:
        """The level of INTx may be another."""
        if self._session is not None:
            self._session.interrupts.intx_changed()

    # What clients do ----------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether something goes on here that needs simulated time, or will in a moment."""
        session = self._session
        if session is None:
            return False
        if self._leaving or session.channel.trouble:
            return True
        waits = bool(session.channel.inbox) and not session.channel.blocked
        return not self._pace.holds(session) and (self._working or waits)

    @property
    def asked(self) -> int:
        """Reads and writes that the client has not answered."""
        return 0 if self._session is None else self._session.asked

    def register(self, poll: select.poll) -> None:
        """Add what is waited for to ``poll``. Who comes while the last one's is cleared waits."""
        session = self._session
        if session is None or not session.channel.trouble:
            poll.register(self._listener, select.POLLIN)
        if session is not None:
            for channel in session.channels:
                channel.register(poll, eager=session.asked > 0)

    def service(self, found: dict[int, int]) -> None:
        """Do what ``poll`` says can be done."""
        session = self._session
        if session is not None:
            for channel in session.channels:
                channel.service(found)
            session.take_answers()
            self._news.set()
        if found.get(self._listener.fileno(), 0):
            self._admit()

    def close(self) -> None:
        """Serve nobody any more."""
        if self._session is not None:
            self._session.close()
        self._listener.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    def _admit(self) -> None:
        session = self._session
        if session is not None and session.channel.trouble:
            return
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        if session is not None:
            connection.close()
            self._say(f"{self.path}: a second client is turned away: the function has one")
            return
        self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        channel = Channel(connection)
        self._session = Session(self.function, self._space, channel, self._pace.settled)
        self._since, self.function.accesses = self.function.host.now(), 0
        self._faults = self._space.faults
        self.clients += 1
        self._say(f"{self.path}: a client is connected")
        cocotb.start_soon(self._attend(self._session))

    async def _attend(self, session: Session) -> None:
        """Do what a client asks for, one after the other, until it goes."""
        channel = session.channel
        while not channel.trouble:
            if channel.inbox and not channel.blocked:
                self._working = True
                await session.handle(channel.inbox.popleft())
                self._working = False
            else:
                self._news.clear()
                await self._news.wait()
        self._leaving = True
        trouble = channel.trouble
        done = await self.function.reset()
        session.close()
        self._say(f"{self.path}: the connection has ended: {trouble}; {self._account(session)}")
        if not done:
            self._say(f"{self.path}: the function is clean, but its device reset goes on")
        self._session, self._leaving = None, False

    def _account(self, session: Session) -> str:
        """What a client has done, in numbers."""
        facts: dict[str, Any] = {
            "accesses": self.function.accesses,
            "interrupts": session.interrupts.told,
            "ns of simulated time": self.function.host.now() - self._since,
        }
        for what, before, now in zip(("reads", "writes"), self._faults, self._space.faults):
            if now > before:
                facts[f"{what} of memory that was not mapped"] = now - before
        return ", ".join(f"{value} {name}" for name, value in facts.items())
