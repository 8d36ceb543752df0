"""What a start of the command consists of: which cards, which guests, and how they are joined."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sim.endpoint import peer
from sim.endpoint.values import mac_bytes
from sim.machine.cards import Cards
from sim.machine.guests import ENDS, NETDEV_MTU, Card, Guest, Plan
from sim.machine.image import Image
from sim.machine.pairs import CLIENT, SERVER
from sim.machine.qemu import Qemu
from sim.machine.session import Run, Session
from sim.machine.switch import Switch

__all__ = ["Lab", "cards_of"]

#: Seconds in which a card whose socket is there connects to its peer's.
CONNECT_S = 60


def cards_of(
    index: int, chosen: Mapping[str, Any], folder: Path | None, space: str = ""
) -> list[Card]:
    """The functions of card ``index``, each with an interface of its own beside it.

    They have the card's MAC address, so all but the first one's link-local addresses are given.
    """
    number = int.from_bytes(mac_bytes(chosen["mac"]), "big") + index
    mac = number.to_bytes(6, "big").hex(":")
    found = []
    for function in range(chosen["functions"] or 1):
        host = 1 + index + 2 * function
        addresses = [f"10.0.0.{host}/24", f"fd00::{host}/64"]
        if function:
            addresses.insert(0, f"fe80::{host}/64")
        path = None if folder is None else folder / f"card{index}-function{1 + function}"
        network = None
        if folder is not None and chosen["network"]:
            network = folder / f"card{index}-function0"
        found.append(Card(mac, addresses, path, network, space))
    return found


class Lab:
    """Cards and guests from their start to their end; ``session`` is what goes on.

    folder: of what lasts as long as they do. chosen: the command's options.
    """

    def __init__(
        self,
        qemu: Qemu,
        image: Image,
        folder: Path,
        commands: Sequence[Sequence[str]],
        chosen: Mapping[str, Any],
    ) -> None:
        self._qemu, self._image, self._folder = qemu, image, folder
        self._commands, self._chosen = commands, chosen
        self._stack = contextlib.ExitStack()
        self.session: Session

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self) -> int:
        """Start all, and run the commands or the shell; the status."""
        sockets = self._folder / "cards"
        sockets.mkdir()
        listener, wire = None, self._folder / "wire"
        if self._chosen["peer"] == "soft-roce":
            listener = self._stack.enter_context(peer.listen(str(wire)))
        cards = Cards(sockets, self._options(wire if listener else None))
        self._stack.callback(cards.close)
        self.session = Session(cards, limit=self._chosen["timeout"])
        self.session.await_cards()
        guests = self._guests(sockets, listener)
        self.session.guests = guests
        self.session.await_guests()
        self.session.runs = self._runs(guests)
        return self.session.command() if self._commands else self.session.shell()

    def _options(self, wire: Path | None) -> list[str]:
        """Those of ``rocinante card``."""
        chosen = self._chosen
        both = chosen["cards"] == 2 or chosen["peer"] == "card"
        options = {
            "--width": chosen["width"],
            "--cards": 2 if both else 1,
            "--functions": chosen["functions"] or 1,
            "--network": chosen["network"],
            "--mtu": NETDEV_MTU if chosen["network"] else None,
            "--mac": chosen["mac"],
            "--timer-scale": chosen["timer_scale"],
            "--impair": chosen["impair"] or None,
            "--pcap": chosen["pcap"],
            "--wire": wire and f"unix:{wire}",
        }
        given = {name: str(value) for name, value in options.items() if value is not None}
        words = [word for pair in given.items() for word in pair]
        return words + [word for switch in chosen["switches"] for word in ("--with", switch)]

    def end(self) -> None:
        """End all in good order."""
        self.session.end_guests()
        self.session.cards.end()

    def _guests(self, sockets: Path, listener: socket.socket | None) -> list[Guest]:
        """The guest; with a peer the peer's too. Each has a name, which is also its address's."""
        chosen = self._chosen
        first = cards_of(0, chosen, sockets)
        if chosen["peer"] == "none":
            second = cards_of(1, chosen, sockets, CLIENT) if chosen["cards"] == 2 else []
            return [self._guest("guest", [*first, *second], None)]
        if listener is None:
            second = cards_of(1, chosen, sockets)
            wires = socket.socketpair()
        else:
            second = cards_of(1, chosen, None)[:1]
            wires = self._switched(listener)
        return [self._guest(SERVER, first, wires[0]), self._guest(CLIENT, second, wires[1])]

    def _switched(self, listener: socket.socket) -> tuple[socket.socket, socket.socket]:
        """The Ethernets of the guest with the card and of its peer, when the card has connected."""
        listener.settimeout(CONNECT_S)
        card, _ = listener.accept()
        card.settimeout(None)
        (ours, beside), (peers, other) = socket.socketpair(), socket.socketpair()
        switch = Switch(card, ours, peers)
        self._stack.callback(switch.close)
        return beside, other

    def _guest(self, name: str, cards: Sequence[Card], wire: socket.socket | None) -> Guest:
        chosen, commands = self._chosen, self._commands
        alone, two = chosen["peer"] == "none", chosen["cards"] == 2
        soft = all(card.socket is None for card in cards)
        mine = dict(
            zip(ENDS, commands if alone else commands[:1] if name == SERVER else commands[1:])
        )
        # Of two clocks neither waits for the other, nor does one for the time-outs of a card.
        waits = not alone or chosen["impair"] or chosen["timer_scale"] != 1.0
        plan = Plan(
            name,
            cards,
            {SERVER: "10.0.0.1", CLIENT: "10.0.0.1" if alone and not two else "10.0.0.2"},
            mine,
            sleep=bool(waits or not commands),
            driver=None if soft else "",
            soft_roce=soft,
            spaces={ENDS[1]: CLIENT} if alone and two else {},
        )
        guest = Guest(self._qemu, self._image, plan, self._folder, wire)
        self._stack.callback(guest.close)
        return guest

    def _runs(self, guests: Sequence[Guest]) -> list[Run]:
        if len(self._commands) < 2:
            return [Run(guests[0], ENDS[0])]
        ends = ENDS if len(guests) == 1 else (ENDS[0], ENDS[0])
        return [
            Run(guest, end, name)
            for guest, end, name in zip((guests[0], guests[-1]), ends, (SERVER, CLIENT))
        ]
