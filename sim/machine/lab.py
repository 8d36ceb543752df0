"""What a start of the command consists of: which cards, which guests, and how they are joined."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sim.endpoint import peer
from sim.endpoint.values import mac_bytes
from sim.machine.cards import Cards
from sim.machine.guests import ENDS, Card, Guest, Plan
from sim.machine.image import Image
from sim.machine.pairs import CLIENT, SERVER
from sim.machine.qemu import Qemu
from sim.machine.session import Run, Session
from sim.machine.switch import Switch

__all__ = ["Lab", "cards_of"]


def cards_of(index: int, chosen: Mapping[str, Any], folder: Path | None, space: str = "") -> list[Card]:
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
        found.append(Card(mac, addresses, path, space))
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
        chosen = self._chosen
        both = chosen["cards"] == 2 or chosen["peer"] == "card"
        sockets = self._folder / "cards"
        sockets.mkdir()
        words = ["--width", chosen["width"], "--cards", "2" if both else "1", "--mac", chosen["mac"]]
        words += ["--functions", str(chosen["functions"] or 1)]
        words += ["--timer-scale", str(chosen["timer_scale"])]
        words += ["--impair", chosen["impair"]] if chosen["impair"] else []
        words += ["--pcap", str(chosen["pcap"])] if chosen["pcap"] else []
        listener = None
        if chosen["peer"] == "soft-roce":
            listener = self._stack.enter_context(peer.listen(str(self._folder / "wire")))
            words += ["--wire", f"unix:{self._folder / 'wire'}"]
        cards = Cards(sockets, words)
        self._stack.callback(cards.close)
        self.session = Session(cards, limit=chosen["timeout"])
        self.session.await_cards()
        guests = self._guests(sockets, listener)
        self.session.guests = guests
        self.session.await_guests()
        self.session.runs = self._runs(guests)
        return self.session.command() if self._commands else self.session.shell()

    def end(self) -> None:
        """End all in good order."""
        self.session.end_guests()
        self.session.cards.end()

    def _guests(self, sockets: Path, listener: socket.socket | None) -> list[Guest]:
        chosen, wires = self._chosen, [None, None]
        first = cards_of(0, chosen, sockets)
        second = cards_of(1, chosen, sockets if listener is None else None)
        if listener is None and chosen["peer"] == "none":
            second = cards_of(1, chosen, sockets, CLIENT)
            cards = [*first, *(second if chosen["cards"] == 2 else [])]
            return [self._guest("guest", cards, None)]
        if listener is None:
            wires = list(socket.socketpair())
        else:
            listener.settimeout(60)
            card, _ = listener.accept()
            card.settimeout(None)
            (ours, beside), (peers, other) = socket.socketpair(), socket.socketpair()
            switch = Switch(card, ours, peers)
            self._stack.callback(switch.close)
            wires = [beside, other]
        return [
            self._guest(SERVER, first, wires[0]),
            self._guest(CLIENT, second[:1] if listener else second, wires[1]),
        ]

    def _guest(self, name: str, cards: Sequence[Card], wire: socket.socket | None) -> Guest:
        chosen, commands = self._chosen, self._commands
        soft = all(card.socket is None for card in cards)
        alone = chosen["peer"] == "none"
        mine: dict[int, Sequence[str]] = {}
        if alone:
            mine = dict(zip(ENDS, commands))
        elif commands:
            mine = {ENDS[0]: commands[0 if name == SERVER else -1]}
        hosts = {SERVER: "10.0.0.1", CLIENT: "10.0.0.2" if self._two else "10.0.0.1"}
        # Nothing is waited for but the guest's own work, as each doorbell returns with its own.
        sleep = not (alone and commands and not chosen["impair"] and chosen["timer_scale"] == 1.0)
        spaces = {ENDS[1]: CLIENT} if alone and chosen["cards"] == 2 else {}
        driver = None if soft else ""
        plan = Plan(name, cards, hosts, mine, sleep, driver, soft, spaces)
        guest = Guest(self._qemu, self._image, plan, self._folder, wire)
        self._stack.callback(guest.close)
        return guest

    @property
    def _two(self) -> bool:
        return self._chosen["cards"] == 2 or self._chosen["peer"] != "none"

    def _runs(self, guests: Sequence[Guest]) -> list[Run]:
        if len(self._commands) < 2:  # noqa: PLR2004
            return [Run(guests[0], ENDS[0])]
        ends = ENDS if len(guests) == 1 else (ENDS[0], ENDS[0])
        return [
            Run(guest, end, name)
            for guest, end, name in zip((guests[0], guests[-1]), ends, (SERVER, CLIENT))
        ]
