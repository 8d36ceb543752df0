"""When a register access is answered: what the client's clock sees of simulated time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cocotb.triggers import Event

from hdl.config import FUNCTION_NET
from sim.host.session import Session

__all__ = ["Pace"]


@dataclass
class _Waiting:
    """An access that is not answered yet."""

    session: Session
    until: int
    told: int
    over: Event = field(default_factory=Event)


class Pace:
    """Holds answers back until the card has nothing left to do.

    now: simulated time in ns. bound_ns: how long one is held back at most, of simulated time.
    """

    def __init__(self, now: Callable[[], int], bound_ns: int):
        self._now, self._bound_ns = now, bound_ns
        self._waiting: list[_Waiting] = []

    def holds(self, session: Session) -> bool:
        """Whether an access of a client is held back."""
        return any(one.session is session for one in self._waiting)

    async def settled(self, session: Session) -> None:
        """Until nothing goes on any more, or an interrupt of the client is due, or the bound.

        A network function's interrupts do not count: they say that a frame has been fetched, when
        whom it is for has not got it.
        """
        until = self._now() + self._bound_ns
        one = _Waiting(session, until, session.interrupts.told)
        self._waiting.append(one)
        await one.over.wait()

    def look(self, quiet: bool) -> bool:
        """Let go on who need not wait any longer; whether there was one."""
        now = self._now()
        due = [one for one in self._waiting if self._is_due(one, quiet, now)]
        self._waiting = [one for one in self._waiting if one not in due]
        for one in due:
            one.over.set()
        return bool(due)

    def _is_due(self, one: _Waiting, quiet: bool, now: int) -> bool:
        session = one.session
        if session.channel.trouble or now >= one.until:
            return True
        hurries = session.number != FUNCTION_NET and session.interrupts.told != one.told
        return not session.asked and (quiet or hurries)
