"""BAR 0 of the management function, as ``firmware.registers.Bus`` for a process on a host.

``MappedBar`` is a BAR that the kernel maps, ``SocketBar`` one that another process serves, because
a plain file cannot tell anybody that it is written. ``open_bar`` chooses by the path.

The protocol of the socket: requests of 12 bytes, little-endian (``REQUEST``): what to do (0 read,
1 write), three bytes of 0, byte address, value (0 for a read). A read is answered with the value,
4 bytes; a write with nothing. Requests are carried out in their order.
"""

from __future__ import annotations

import asyncio
import fcntl
import mmap
import os
import stat
import struct
import sys
from pathlib import Path

from firmware.device import HardwareError

__all__ = [
    "ANSWER",
    "BAR_BYTES",
    "REQUEST",
    "SOCKET_PREFIX",
    "WRITE",
    "BarError",
    "MappedBar",
    "SocketBar",
    "open_bar",
]

#: Size of the management function's BAR 0 (docs/pcie.md): the address space of the registers.
BAR_BYTES = 1 << 20
#: Begins the name of a BAR that a unix socket serves.
SOCKET_PREFIX = "unix:"
REQUEST, ANSWER = struct.Struct("<B3xII"), struct.Struct("<I")
READ, WRITE = 0, 1
WORD_BYTES = 4


class BarError(HardwareError):
    """The BAR cannot be opened, or has gone."""


def _check(addr: int, size: int, value: int = 0) -> None:
    """Raises ValueError unless one whole word of the BAR is accessed."""
    if addr % WORD_BYTES or not 0 <= addr <= size - WORD_BYTES:
        raise ValueError(f"No register at {addr:#x} of a BAR with {size:#x} bytes")
    if not 0 <= value < 1 << 32:
        raise ValueError(f"{value:#x} is no word of 32 bits")


class MappedBar:
    """A BAR that is mapped into this process, ``size`` bytes from byte ``offset`` of ``path`` on.

    Each access is one load or store of 32 bits, in the order of the calls. A load waits for the
    card, which sends its answer behind all that was written to it before (PCIe, ordering rules).
    ``device`` is the open file if it is a device, which may give interrupts. ``alone``: the file is
    locked, as one firmware serves a card. Errors: BarError.
    """

    def __init__(self, path: str, *, offset: int = 0, size: int = BAR_BYTES, alone: bool = True):
        if offset < 0 or offset % WORD_BYTES:
            raise BarError(f"{path}: the offset must be a multiple of 4, not {offset:#x}")
        if size < WORD_BYTES or size % WORD_BYTES:
            raise BarError(f"{path}: the size must be a multiple of 4, not {size:#x}")
        if sys.byteorder != "little":
            raise BarError("Registers are little-endian, this machine is not")
        self.path, self.size = path, size
        try:
            self._file = os.open(path, os.O_RDWR | os.O_SYNC | os.O_CLOEXEC)
        except OSError as error:
            raise BarError(f"{path}: {error.strerror}") from None
        try:
            self._map, self._words = self._mapped(offset, alone)
        except BaseException:
            os.close(self._file)
            raise

    def _mapped(self, offset: int, alone: bool) -> tuple[mmap.mmap, memoryview]:
        path, size = self.path, self.size
        try:
            if alone:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BarError(f"{path}: another firmware serves this card") from None
        there = os.fstat(self._file)
        if stat.S_ISREG(there.st_mode) and offset + size > there.st_size:
            raise BarError(
                f"{path}: {there.st_size:#x} bytes, not {size:#x} from offset {offset:#x} on"
            )
        within = offset % mmap.ALLOCATIONGRANULARITY
        try:
            mapped = mmap.mmap(self._file, within + size, offset=offset - within)
        except (OSError, ValueError) as error:
            raise BarError(f"{path}: cannot be mapped: {error}") from None
        # An item of a view of type "I" is copied as a whole: one load or store of 4 bytes.
        return mapped, memoryview(mapped)[within : within + size].cast("I")

    @property
    def device(self) -> int | None:
        """Descriptor of the device; None for a regular file, as sysfs has it."""
        return self._file if stat.S_ISCHR(os.fstat(self._file).st_mode) else None

    async def read(self, addr: int) -> int:
        """Reads a register."""
        _check(addr, self.size)
        return self._words[addr // WORD_BYTES]

    async def write(self, addr: int, value: int) -> None:
        """Writes a register."""
        _check(addr, self.size, value)
        self._words[addr // WORD_BYTES] = value

    def close(self) -> None:
        """Unmap the BAR and let another firmware have it."""
        self._words.release()
        self._map.close()
        os.close(self._file)


class SocketBar:
    """A BAR that another process serves on a unix stream socket. Errors: BarError."""

    device: int | None = None

    def __init__(self, path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.path, self.size = SOCKET_PREFIX + path, BAR_BYTES
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, path: str) -> SocketBar:
        """A connection to the socket ``path``."""
        try:
            return cls(path, *await asyncio.open_unix_connection(path))
        except OSError as error:
            raise BarError(f"{SOCKET_PREFIX}{path}: {error.strerror}") from None

    async def read(self, addr: int) -> int:
        """Reads a register."""
        _check(addr, self.size)
        self._send(READ, addr, 0)
        try:
            (value,) = ANSWER.unpack(await self._reader.readexactly(ANSWER.size))
        except (OSError, asyncio.IncompleteReadError):
            raise self._gone() from None
        return int(value)

    async def write(self, addr: int, value: int) -> None:
        """Writes a register."""
        _check(addr, self.size, value)
        self._send(WRITE, addr, value)
        try:
            await self._writer.drain()
        except OSError:
            raise self._gone() from None

    def _send(self, what: int, addr: int, value: int) -> None:
        self._writer.write(REQUEST.pack(what, addr, value))

    def _gone(self) -> BarError:
        return BarError(f"{self.path}: the other end has gone")

    def close(self) -> None:
        """Leave the other end."""
        self._writer.close()


async def open_bar(
    path: str, *, offset: int = 0, size: int | None = None, alone: bool = True
) -> MappedBar | SocketBar:
    """The BAR at ``path``, a file to map or ``unix:PATH``. alone: see ``MappedBar``.

    size: default: what a regular file has behind ``offset``, at most ``BAR_BYTES``; of a device,
    whose size nobody tells, ``BAR_BYTES``. Errors: BarError.
    """
    if path.startswith(SOCKET_PREFIX):
        if offset or size is not None:
            raise BarError(f"{path}: a socket has neither offset nor size")
        return await SocketBar.connect(path.removeprefix(SOCKET_PREFIX))
    if size is None:
        size = BAR_BYTES
        try:
            there = Path(path).stat()
        except OSError as error:
            raise BarError(f"{path}: {error.strerror}") from None
        if stat.S_ISREG(there.st_mode):
            size = min(size, (there.st_size - offset) // WORD_BYTES * WORD_BYTES)
    return MappedBar(path, offset=offset, size=size, alone=alone)
