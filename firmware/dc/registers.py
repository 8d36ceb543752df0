"""The registers of the connections of DC, as operations with a meaning: ``ConnectionHardware``."""

from __future__ import annotations

from firmware.device import HardwareError, Row
from firmware.mailbox import OnBus
from hdl.config import NicConfig
from hdl.csr.connections import RECEIVED, SENT
from hdl.csr.map import CsrMap, RowMap
from hdl.csr.row_layouts import row_layout_of

__all__ = ["ConnectionRegisters"]

#: Looks at a packet that does not leave before something is broken.
PATIENCE = 100_000


class ConnectionRegisters:
    """``ConnectionHardware`` on the bus of ``owner``. Errors: HardwareError."""

    def __init__(self, owner: OnBus, config: NicConfig):
        self._owner, self._map = owner, CsrMap(config)
        received, sent = row_layout_of(RECEIVED, 0), row_layout_of(SENT, 0)
        self._received = RowMap("received_row", received.fields, received.bits)
        self._sent = RowMap("sent_row", sent.fields, sent.bits)

    async def _read(self, path: str, word: int = 0) -> int:
        return await self._owner.bus.read(self._map.address(f"connections.{path}", word))

    async def _fields(self, path: str) -> dict[str, int]:
        return self._map.decode(f"connections.{path}", await self._read(path))

    async def _write(self, path: str, **values: int) -> None:
        path = f"connections.{path}"
        await self._owner.bus.write(self._map.address(path), self._map.encode(path, **values))

    async def asks(self) -> int:
        """How many requests have been held, modulo 256."""
        return (await self._fields("status"))["asks"]

    async def received(self) -> dict[str, int] | None:
        """Takes the oldest packet that has come; None: there is none."""
        if not (await self._fields("status"))["received"]:
            return None
        words = [await self._read("received_row", n) for n in range(self._received.words)]
        await self._write("control", take=1)
        return self._received.unpack(words)

    async def send(self, packet: Row) -> None:
        """Sends a packet when the one before has left."""
        for _ in range(PATIENCE):
            if not (await self._fields("status"))["sending"]:
                break
        else:
            raise HardwareError("A packet that opens or closes a connection does not leave")
        for n, word in enumerate(self._sent.pack(packet)):
            await self._owner.bus.write(self._map.address("connections.sent_row", n), word)
        await self._write("control", send=1)

    async def asked(self, pair: int) -> tuple[int, int] | None:
        """The destination that an initiator waits for, and the stream, if it does."""
        await self._write("qp", value=pair)
        if not (await self._fields("status"))["asked"]:
            return None
        found = await self._fields("asked")
        return found["destination"], found["stream"]

    async def forget(self, pair: int) -> None:
        """An initiator waits for nothing any more."""
        await self._write("qp", value=pair)
        await self._write("forget", value=1)
