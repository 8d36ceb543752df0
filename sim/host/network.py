"""What is at the end of a single card's wire: a peer on a unix socket, or nobody."""

from __future__ import annotations

import select
from ipaddress import IPv6Address

from sim.bench.system import Node
from sim.endpoint import peer
from sim.endpoint.neighbours import Neighbours
from sim.endpoint.peer import Peer
from sim.models import native
from sim.models.platform import Wire

__all__ = ["Network"]

#: Bytes from the peer that the card has not taken yet, from which on its socket is not read.
BEHIND = 1 << 18


class Network:
    """Passes frames between a card's wire and a peer; without one they are lost.

    Beside a card without a network function it answers ARP, neighbour solicitations and echo
    requests for the addresses that its guests have set, as their hosts' interfaces would.
    """

    def __init__(self, wire: Wire, peer: Peer | None, node: Node):
        self._wire, self._peer, self._node = wire, peer, node
        self._held = False

    def register(self, poll: select.poll) -> float | None:
        """Add what is waited for to ``poll``; seconds until ``service`` is due anyhow, if it is."""
        self._pass_on()
        if self._peer is None:
            return None
        return self._peer.register(poll, reading=self._reading)

    def service(self) -> None:
        """Pass on what can be."""
        if self._peer is None:
            return
        for frame in self._peer.service(reading=self._reading):
            if self._node.registers.network is not None:
                self._wire.inject(frame)
                continue
            neighbours = Neighbours(self._node.mac, self._addresses())
            if not neighbours.takes(frame):
                self._wire.inject(frame)
            elif (answer := neighbours.answer(frame)) is not None:
                self._peer.send(answer)

    @property
    def _reading(self) -> bool:
        if native.library().clock_idle():
            return True  # nothing is under way, and asking would wake the cards
        # While the peer does not read, this side goes on reading: both might be waiting.
        return self._wire.under_way(to_card=True) < (peer.MOST if self._held else BEHIND)

    def _pass_on(self) -> None:
        while (taken := self._wire.take()) is not None:
            if self._peer is not None:
                self._peer.send(taken[0])
        held = self._peer is not None and self._peer.backlog >= peer.HIGH
        if held != self._held:
            self._held = held
            self._wire.hold(held)

    def _addresses(self) -> list[str]:
        """Those of all guests' GIDs."""
        found = []
        for function in self._node.firmware.functions:
            for gid in function.commands.objects.gids.values():
                address = IPv6Address(bytes(gid))
                found.append(str(address.ipv4_mapped or address))
        return found
