"""What goes over a card's host port, for a reader: reads, writes, register writes with their times.

Runs inside a cocotb simulation, beside ``sim.models.platform``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sim.models import native

__all__ = ["Access", "AccessKind", "PortLog"]


class AccessKind(Enum):
    """What a transaction is: ``AccessKind`` of the host model."""

    READ = 0
    WRITE = 1
    REGISTER = 2


@dataclass(frozen=True)
class Access:
    """A transaction that the host, or of a register the card, has accepted. ``time`` in ps.

    value: bytes that the card reads or writes, or what a register is written with.
    """

    kind: AccessKind
    function: int
    addr: int
    value: int
    time: int


class PortLog:
    """The transactions of the host with number ``index``, from now until ``take``."""

    def __init__(self, index: int):
        self._index = index
        native.library().host_log(index, True)

    def take(self) -> list[Access]:
        """What was kept, oldest first; nothing more is kept."""
        found, one = [], native.Access()
        while native.library().host_logged(self._index, native.byref(one)):
            kind = AccessKind(one.kind)
            found.append(Access(kind, one.function, one.addr, one.value, one.time))
        native.library().host_log(self._index, False)
        return found
