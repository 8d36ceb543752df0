"""A client's memory: what the card reaches by itself, and what the client is asked for."""

from __future__ import annotations

from collections.abc import Callable

from sim.host.channel import Channel, Message
from sim.host.protocol import DMA_ACCESS, Command
from sim.models.spaces import Space

__all__ = ["ClientMemory"]

Done = Callable[[bytes | None], None]


class ClientMemory:
    """What DMA_MAP has told of, of one client.

    channel: where DMA_READ and DMA_WRITE go, in the order in which the card reads and writes; the
    client answers there. ``asked`` counts what it has not answered.
    """

    def __init__(self, space: Space, channel: Channel):
        self._space, self.channel = space, channel
        self._pieces: dict[int, int] = {}
        self._waiting: dict[int, tuple[int, Done | None]] = {}
        self._number = 0

    @property
    def pieces(self) -> int:
        """How many are mapped."""
        return len(self._pieces)

    @property
    def asked(self) -> int:
        """Reads and writes that the client has not answered."""
        return len(self._waiting)

    def map(self, addr: int, size: int, *, file: int | None, offset: int, rights: int) -> None:
        """Let the card reach a piece; see ``Space.map``."""
        self._space.map(addr, size, file=file, offset=offset, rights=rights)
        self._pieces[addr] = size

    def unmap(self, addr: int, size: int) -> None:
        """Take all pieces in a range away; see ``Space.unmap``."""
        self._space.unmap(addr, size)
        self._pieces = {a: n for a, n in self._pieces.items() if not addr <= a < addr + size}

    def unmap_all(self) -> None:
        """Take everything away."""
        for addr, size in self._pieces.items():
            self._space.unmap(addr, size)
        self._pieces.clear()

    def fetch(self, addr: int, length: int, done: Done) -> None:
        """Ask the client for bytes."""
        self._ask(Command.DMA_READ, addr, length, b"", done)

    def store(self, addr: int, data: bytes) -> None:
        """Give the client bytes."""
        self._ask(Command.DMA_WRITE, addr, len(data), data, None)

    def answered(self, message: Message) -> None:
        """The client has answered. ValueError for what is no answer to anything."""
        length, done = self._waiting.pop(message.id, (0, None))
        if message.command not in (Command.DMA_READ, Command.DMA_WRITE) or not length:
            raise ValueError(f"an answer with id {message.id}, command {message.command}")
        if done is None:
            return
        data = message.body[DMA_ACCESS.size :]
        if message.failed or len(message.body) < DMA_ACCESS.size or len(data) != length:
            done(None)
        else:
            done(data)

    def lost(self) -> None:
        """The client answers no more: what waits for it fails."""
        waiting, self._waiting = self._waiting, {}
        for _, done in waiting.values():
            if done is not None:
                done(None)

    def _ask(
        self, command: Command, addr: int, length: int, data: bytes, done: Done | None
    ) -> None:
        if self.channel.trouble:
            if done is not None:
                done(None)
            return
        self._number = (self._number + 1) % 0x10000
        if self._number in self._waiting:
            self.channel.fail(f"it leaves {len(self._waiting)} of our messages unanswered")
            self.lost()
            return self._ask(command, addr, length, data, done)
        self._waiting[self._number] = (length, done)
        self.channel.send(self._number, command, DMA_ACCESS.pack(addr, length) + data)
        return None
