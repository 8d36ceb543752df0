"""The devices that a program sees: each is a function of a simulated card with its driver."""

from __future__ import annotations

import errno
from collections.abc import Coroutine
from typing import Any

from hdl.abi.multicast import is_multicast_gid, multicast_mac
from sim.bench.system import Node
from sim.guest.driver.errors import RdmaError
from sim.guest.verbs import PD, Context
from sim.programs.errand import Errands
from sim.programs.inboxes import Inboxes
from sim.programs.memory import Pinned

__all__ = ["Card", "cards", "offer"]


class Card:
    """One device. ``context``: its driver, which all contexts of programs share.

    ``pds`` and ``mrs``: by number, for those that a program imports into a second context.
    ``xrcds``: XRC domains by the inode that names each, and how many handles it has.
    ``vendor``: what it passes for (``vendors.py``); None for itself.
    """

    def __init__(
        self, name: str, node: Node, errands: Errands, vendor: tuple[int, int] | None = None
    ):
        self.name, self.node, self.errands, self.vendor = name, node, errands, vendor
        self.context: Context = node.context
        self.pinned = Pinned(node.host.index)
        self.inboxes = Inboxes()
        self.pds: dict[int, PD] = {}
        self.mrs: dict[int, Any] = {}
        self.xrcds: dict[tuple[int, int], list[Any]] = {}

    async def look(self) -> None:
        """For the simulation, again and again: take the events that there are."""
        events = self.context.events
        while events is not None and events.due and (event := await events.poll()) is not None:
            self.inboxes.put(event)

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Have the simulation do something, and wait for its result; OSError."""
        return self.errands.do(work)

    def mac_of(self, gid: bytes) -> bytes:
        """The MAC address behind a GID, as a kernel resolves it; RdmaError(EHOSTUNREACH)."""
        if is_multicast_gid(gid):
            return bytes(multicast_mac(gid))
        for card in _CARDS:
            if gid in card.context.gids().values():
                return card.node.mac
        raise RdmaError(errno.EHOSTUNREACH, f"Nobody has the GID {gid.hex()}")


_CARDS: list[Card] = []


def offer(found: list[Card]) -> None:
    """These are the devices of this process from now on."""
    _CARDS[:] = found


def cards() -> list[Card]:
    """The devices of this process."""
    return list(_CARDS)
