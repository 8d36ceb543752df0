"""The card's registers: tables, commands, mailbox, counters, over an abstract register bus.

Everything here knows names only; addresses and fields come from ``hdl/csr``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from hdl.config import NicConfig
from hdl.csr.map import MAGIC, CsrMap, row_map

__all__ = ["HardwareError", "RegisterBus", "Registers"]

#: Reads of a busy flag before the hardware counts as dead: far more than a sweep of the largest table.
BUSY_POLLS = 20_000


class HardwareError(RuntimeError):
    """The card does not do what its registers promise."""


class RegisterBus(Protocol):
    """32-bit registers of the management function: a simulated bus, a BAR or a UIO mapping."""

    async def read(self, addr: int) -> int:
        """The register at byte address ``addr``."""

    async def write(self, addr: int, value: int) -> None:
        """Posted write; arrives before any later access."""


class Registers:
    """Named access to everything the firmware uses.

    Only one task uses the windows of the tables at a time; the firmware is one task.
    """

    def __init__(self, bus: RegisterBus, config: NicConfig):
        self.bus, self.config = bus, config
        self.map = CsrMap(config)

    async def check(self) -> None:
        """HardwareError unless this is a card of ours with the configuration the firmware expects."""
        magic = await self.get("core.magic")
        if magic != MAGIC:
            raise HardwareError(f"No Rocinante here: magic is {magic:#x}, not {MAGIC:#x}")
        for name in ("width", "qps", "cqs", "mrs", "gids"):
            found, want = await self.get(f"core.config_{name}"), getattr(self.config, name)
            if found != want:
                raise HardwareError(f"The card has {name} {found}, the firmware expects {want}")

    # Registers.

    async def get(self, path: str, word: int = 0) -> int:
        """A whole register, or one word of a window."""
        return await self.bus.read(self.map.address(path, word))

    async def set(self, path: str, value: int, word: int = 0) -> None:
        """Write a whole register."""
        await self.bus.write(self.map.address(path, word), value)

    async def get_fields(self, path: str) -> dict[str, int]:
        """A register's fields by name."""
        return self.map.decode(path, await self.get(path))

    async def set_fields(self, path: str, **values: int) -> None:
        """Write a register; fields that are not named become 0."""
        await self.set(path, self.map.encode(path, **values))

    # Tables.

    async def read_row(self, table: str, index: int) -> dict[str, int]:
        """A row's fields (dotted for nested ones)."""
        await self._table_command(table, index, read=1)
        row = row_map(table)
        return row.unpack([await self.get(f"{table}.row", word) for word in range(row.words)])

    async def write_row(
        self, table: str, index: int, values: Mapping[str, int] | None = None, /, **more: Any
    ) -> None:
        """Replace a row in one step; fields that are not named become 0."""
        for word, value in enumerate(row_map(table).pack(values, **more)):
            await self.set(f"{table}.row", value, word)
        await self._table_command(table, index, commit=1)

    async def change_row(self, table: str, index: int, **changes: Any) -> None:
        """Read a row, change the named fields, write it back."""
        row = await self.read_row(table, index)
        await self.write_row(table, index, row | changes)

    async def _table_command(self, table: str, index: int, **command: int) -> None:
        await self.set(f"{table}.index", index)
        await self.set_fields(f"{table}.command", **command)
        for _ in range(BUSY_POLLS):
            status = await self.get_fields(f"{table}.status")
            if not status["busy"]:
                break
        else:
            raise HardwareError(f"Table {table} stays busy with row {index}")
        if status["error"]:
            raise IndexError(f"Table {table} has no row {index}")

    # Commands to the rooms.

    async def command(self, name: str, **arguments: int) -> None:
        """Give a command and wait until it has been taken (streams) or done (drain, invalidate)."""
        await self.set_fields(f"command.{name}", **arguments)
        for _ in range(BUSY_POLLS):
            if not (await self.get_fields("command.busy"))[name]:
                return
        raise HardwareError(f"Command {name} {arguments} stays busy")

    # Mailbox.

    async def request(self) -> tuple[bytes, int] | None:
        """The waiting control request and the bytes its driver made writable; None if there is none."""
        if not (await self.get_fields("mailbox.status"))["pending"]:
            return None
        length = await self.get("mailbox.request_length")
        writable = await self.get("mailbox.writable_length")
        words = -(-min(length, self._mailbox_bytes) // 4)
        raw = b"".join(
            [(await self.get("mailbox.request", word)).to_bytes(4, "little") for word in range(words)]
        )
        return raw[:length], writable

    async def respond(self, response: bytes) -> None:
        """Complete the waiting request."""
        if len(response) > self._mailbox_bytes:
            raise ValueError(f"Response must fit {self._mailbox_bytes} bytes, not {len(response)}")
        padded = response + bytes(-len(response) % 4)
        for word in range(len(padded) // 4):
            value = int.from_bytes(padded[4 * word : 4 * word + 4], "little")
            await self.set("mailbox.response", value, word)
        await self.set("mailbox.response_length", len(response))
        await self.set_fields("mailbox.control", done=1)

    @property
    def _mailbox_bytes(self) -> int:
        block = self.map.blocks["mailbox"]
        return 4 * next(item.words for item in block.items if item.name == "request")

    # Counters.

    async def counters(self, block: str = "counters") -> dict[str, int]:
        """All counters of ``counters`` or ``port`` by name."""
        from hdl.csr.counter_names import COUNTERS, PORT_COUNTERS

        names = PORT_COUNTERS if block == "port" else COUNTERS
        return {name: await self.get(f"{block}.{name}") for name in names}
