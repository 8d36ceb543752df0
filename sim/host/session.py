"""What one client asks of a function, message by message."""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

from sim.host import protocol
from sim.host.channel import Channel, Message
from sim.host.function import Function
from sim.host.interrupts import ClientInterrupts
from sim.host.memory import ClientMemory
from sim.host.protocol import (
    ERROR,
    MOST_DATA,
    NO_REPLY,
    REPLY,
    TYPE,
    Command,
    DeviceFlag,
    Irq,
    Region,
    RegionFlag,
)
from sim.models.spaces import Space

__all__ = ["Session"]


class Session:
    """One client of a function, from its first message on.

    settled: returns when a write to a BAR may be answered. trouble: why the connection is to end,
    "" while it is not. The function tells of its interrupts and of memory that it cannot reach.
    """

    def __init__(
        self,
        function: Function,
        space: Space,
        channel: Channel,
        settled: Callable[[Session], Awaitable[None]],
    ):
        self._function, self._settled = function, settled
        self.channel = channel
        #: Where commands of the server go: the client may want a socket of their own for them.
        self.asking = channel
        self._space = space
        self.interrupts = ClientInterrupts(function)
        self._memory = ClientMemory(space, channel)
        self._welcome = False
        #: Messages behind writes that the client has not answered.
        self._behind: list[tuple[int, int]] = []
        self._handlers: dict[int, Callable[[Message], Awaitable[bytes]]] = {
            Command.DMA_MAP: self._dma_map,
            Command.DMA_UNMAP: self._dma_unmap,
            Command.DEVICE_GET_INFO: self._get_info,
            Command.DEVICE_GET_REGION_INFO: self._get_region_info,
            Command.DEVICE_GET_IRQ_INFO: self._get_irq_info,
            Command.DEVICE_SET_IRQS: self._set_irqs,
            Command.REGION_READ: self._region_read,
            Command.REGION_WRITE: self._region_write,
            Command.REGION_WRITE_MULTI: self._region_write_multi,
            Command.DEVICE_RESET: self._device_reset,
        }

    @property
    def number(self) -> int:
        """The PCI function that it is a client of."""
        return self._function.number

    # What the card does -------------------------------------------------------------------------

    def message(self, addr: int, data: int) -> None:
        """The card has sent an interrupt's message, which does not pass the writes before it."""
        if self.asked:
            self._behind.append((addr, data))
        else:
            self.interrupts.message(addr, data)

    def fetch(self, addr: int, length: int, done: Callable[[bytes | None], None]) -> None:
        """The card reads memory that the client must be asked for."""
        self._memory.fetch(addr, length, done)

    def store(self, addr: int, data: bytes) -> None:
        """The card writes such memory."""
        self._memory.store(addr, data)

    @property
    def asked(self) -> int:
        """What the client has not answered of that."""
        return self._memory.asked

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Its sockets: one, or two."""
        return (self.channel,) if self.asking is self.channel else (self.channel, self.asking)

    # What the client says -----------------------------------------------------------------------

    def take_answers(self) -> None:
        """Take the client's answers out of its messages: they do not wait for commands."""
        for channel in self.channels:
            for answer in [one for one in channel.inbox if one.is_reply]:
                channel.inbox.remove(answer)
                answer.close()
                try:
                    self._memory.answered(answer)
                except ValueError as error:
                    self.channel.fail(f"it sends {error}")
            if channel.trouble:
                self.channel.fail(channel.trouble)
                self._memory.lost()
        if self._behind and not self.asked:
            behind, self._behind = self._behind, []
            for addr, data in behind:
                self.interrupts.message(addr, data)

    async def handle(self, message: Message) -> None:
        """Do what a message asks for, and answer it."""
        try:
            if not self._welcome:
                self._greet(message)
                return
            if message.flags & TYPE:
                raise OSError(errno.EINVAL, "no command")
            handler = self._handlers.get(message.command)
            if handler is None:
                raise OSError(errno.ENOTSUP, "no such command")
            body = await handler(message)
        except OSError as error:
            self._reply(message, error=error.errno or errno.EIO)
        else:
            self._reply(message, body)
        finally:
            message.close()

    def close(self) -> None:
        """The client has gone: forget its memory and its descriptors."""
        self._memory.lost()
        self._memory.unmap_all()
        self.interrupts.close()
        for channel in self.channels:
            channel.close()

    def _reply(self, to: Message, body: bytes = b"", *, error: int = 0) -> None:
        if not to.flags & NO_REPLY:
            flags = REPLY | (ERROR if error else 0)
            self.channel.send(to.id, to.command, body, flags=flags, error=error)

    # Version ------------------------------------------------------------------------------------

    def _greet(self, message: Message) -> None:
        """The first message proposes a version. Whoever does not is no client."""
        if message.command != Command.VERSION or message.flags & TYPE:
            self.channel.fail(f"its first message is command {message.command}, not VERSION")
            return
        try:
            major, minor = protocol.VERSION.unpack_from(message.body)
            wanted = _capabilities(message.body[protocol.VERSION.size :])
        except (ValueError, RecursionError, struct.error) as error:
            self.channel.fail(f"its VERSION makes no sense: {error}")
            return
        if major != protocol.MAJOR:
            self.channel.fail(f"it speaks version {major}, not {protocol.MAJOR}")
            return
        self._welcome = True
        ours: dict[str, Any] = {
            "max_msg_fds": protocol.MOST_FILES // 2,
            "max_data_xfer_size": MOST_DATA,
            "max_dma_maps": protocol.MOST_PIECES,
            "pgsizes": protocol.PAGE_SIZES,
            "write_multiple": True,
        }
        files = []
        twin = wanted.get("twin_socket")
        if isinstance(twin, dict) and twin.get("supported") is True:
            mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            self.asking = Channel(mine)
            self._memory.channel = self.asking
            files = [theirs.detach()]
            ours["twin_socket"] = {"supported": True, "fd_index": 0}
        offered = {name: value for name, value in ours.items() if name in wanted}
        text = json.dumps({"capabilities": offered}).encode() + b"\0"
        body = protocol.VERSION.pack(protocol.MAJOR, min(minor, protocol.MINOR)) + text
        self.channel.send(message.id, Command.VERSION, body, flags=REPLY, files=files)

    # Memory -------------------------------------------------------------------------------------

    async def _dma_map(self, message: Message) -> bytes:
        _, flags, offset, addr, size = _sized(protocol.DMA_MAP, message)
        if not flags or flags & ~3 or len(message.files) > 1:
            raise _invalid()
        if self._memory.pieces >= protocol.MOST_PIECES:
            raise OSError(errno.ENOSPC, "too many pieces")
        file = message.files[0] if message.files else None
        self._memory.map(addr, size, file=file, offset=offset, rights=flags)
        return b""

    async def _dma_unmap(self, message: Message) -> bytes:
        _, flags, addr, size = _sized(protocol.DMA_UNMAP, message)
        if flags == protocol.UNMAP_ALL and not addr and not size:
            self._memory.unmap_all()
        elif flags:
            raise _invalid()
        else:
            self._memory.unmap(addr, size)
        return message.body[: protocol.DMA_UNMAP.size]

    # What there is ------------------------------------------------------------------------------

    async def _get_info(self, message: Message) -> bytes:
        layout = protocol.DEVICE_INFO
        _sized(layout, message)
        flags = DeviceFlag.RESET | DeviceFlag.PCI
        return layout.pack(layout.size, flags, protocol.REGIONS, len(Irq))

    async def _get_region_info(self, message: Message) -> bytes:
        layout = protocol.REGION_INFO
        _, _, index, _, _, _ = _sized(layout, message)
        if index >= protocol.REGIONS:
            raise _invalid()
        size = self._function.sizes.get(index, 0)
        flags = RegionFlag.READ | RegionFlag.WRITE if size else 0
        return layout.pack(layout.size, flags, index, 0, size, 0)

    async def _get_irq_info(self, message: Message) -> bytes:
        layout = protocol.IRQ_INFO
        _, _, index, _ = _sized(layout, message)
        if index not in list(Irq):
            raise _invalid()
        flags, count = self.interrupts.flags(index), self.interrupts.count(index)
        return layout.pack(layout.size, flags, index, count)

    # What is done -------------------------------------------------------------------------------

    async def _set_irqs(self, message: Message) -> bytes:
        layout = protocol.IRQ_SET
        _, flags, index, start, count = _sized(layout, message)
        chosen = message.body[layout.size :]
        await self.interrupts.set(flags, index, start, count, chosen, message.files)
        return b""

    async def _region_read(self, message: Message) -> bytes:
        layout = protocol.REGION_ACCESS
        offset, region, count = _unpack(layout, message)
        self._check(region, offset, count)
        data = await self._function.read(region, offset, count)
        if self.asked:
            await self._settled(self)  # an answer does not pass the writes before it
        return layout.pack(offset, region, count) + data

    async def _region_write(self, message: Message) -> bytes:
        layout = protocol.REGION_ACCESS
        offset, region, count = _unpack(layout, message)
        data = message.body[layout.size :]
        if len(data) != count:
            raise _invalid()
        await self._write(region, offset, data)
        return layout.pack(offset, region, count)

    async def _region_write_multi(self, message: Message) -> bytes:
        (writes,) = _unpack(protocol.WRITE_MULTI, message)
        each = protocol.REGION_ACCESS.size + protocol.MULTI_BYTES
        rest = message.body[protocol.WRITE_MULTI.size :]
        if len(rest) != writes * each:
            raise _invalid()
        for at in range(0, len(rest), each):
            offset, region, count = protocol.REGION_ACCESS.unpack_from(rest, at)
            if count > protocol.MULTI_BYTES:
                raise _invalid()
            data = rest[at + protocol.REGION_ACCESS.size :][:count]
            await self._write(region, offset, data)
        return protocol.WRITE_MULTI.pack(writes)

    async def _write(self, region: int, offset: int, data: bytes) -> None:
        self._check(region, offset, len(data))
        await self._function.write(region, offset, data)
        if region != Region.CONFIG:
            await self._settled(self)

    def _check(self, region: int, offset: int, count: int) -> None:
        size = self._function.sizes.get(region, 0)
        if not 0 < count <= MOST_DATA or offset + count > size:
            raise _invalid()

    async def _device_reset(self, message: Message) -> bytes:
        if message.body:
            raise _invalid()
        done = await self._function.reset()
        await self.interrupts.program()
        if not done:
            raise OSError(errno.ETIMEDOUT, "the device reset goes on")
        return b""


def _unpack(layout: Any, message: Message) -> tuple[Any, ...]:
    """The fields of a message's body; OSError(EINVAL) for a body that is too short."""
    if len(message.body) < layout.size:
        raise _invalid()
    return tuple(layout.unpack_from(message.body))


def _sized(layout: Any, message: Message) -> tuple[Any, ...]:
    """The same of a body whose first field, argsz, says how much the client can take."""
    fields = _unpack(layout, message)
    if fields[0] < layout.size:
        raise _invalid()
    return fields


def _capabilities(text: bytes) -> dict[str, Any]:
    """What a client proposes; ValueError for what is no JSON object."""
    if not text:
        return {}
    found = json.loads(text.rstrip(b"\0").decode())
    if not isinstance(found, dict) or not isinstance(found.get("capabilities", {}), dict):
        raise ValueError("the capabilities are no object")
    return dict(found.get("capabilities", {}))


def _invalid() -> OSError:
    return OSError(errno.EINVAL, os.strerror(errno.EINVAL))
