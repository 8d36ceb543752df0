"""Driver and firmware behind the bridge: ``sim.guest.driver.platform`` for a board on a UART.

The driver looks at its memory as at an array. Here that is a copy: what the driver has changed goes
to the board before each register access and each wait, and what the card has written comes back
with each wait and each register read.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hdl.abi.virtio_pci import Feature
from hdl.bridge.protocol import BLOCK_BYTES, MESSAGE_WINDOW, MESSAGES, WORD_BYTES
from sim.guest.bridge.link import Link
from sim.guest.driver import platform
from sim.guest.driver.device import ALL_FEATURES
from sim.guest.driver.memory import GuestMemory
from sim.guest.driver.platform import Message

__all__ = ["FEATURES", "BridgeInterrupts", "BridgeMemory", "BridgeMmio", "BridgePlatform"]

#: What a driver behind the bridge can use. With EVENT_IDX it would have to read the device's index
#: behind its own write of the available index: in a copy it finds an old one, and rings no doorbell
#: where the device waits for it.
FEATURES = ALL_FEATURES & ~Feature.EVENT_IDX.mask
#: Bits of an offset and of a BAR in the address of a register (docs/core.md).
_OFFSET_BITS, _BAR_BITS = 20, 3


class BridgeMmio:
    """Registers; implements ``platform.Mmio``. A write returns when the card has taken it."""

    def __init__(self, link: Link):
        self._link = link

    async def read(self, function: int, bar: int, addr: int, size: int) -> int:
        """Read ``size`` (1, 2, 4) bytes that lie within one aligned word."""
        place, lane = self._place(function, bar, addr, size)
        word = await self._link.read_register(place, ((1 << size) - 1) << lane)
        return word >> 8 * lane & ((1 << 8 * size) - 1)

    async def write(self, function: int, bar: int, addr: int, size: int, value: int) -> None:
        """Write ``size`` bytes."""
        if not 0 <= value < 1 << (8 * size):
            raise ValueError(f"value {value:#x} does not fit into {size} bytes")
        place, lane = self._place(function, bar, addr, size)
        await self._link.write_register(place, ((1 << size) - 1) << lane, value << 8 * lane)

    @staticmethod
    def _place(function: int, bar: int, addr: int, size: int) -> tuple[int, int]:
        if size not in (1, 2, 4) or addr % 4 + size > 4:
            raise ValueError(f"Access of {size} bytes at {addr:#x} is not within an aligned word")
        if not (0 <= bar < 1 << _BAR_BITS and 0 <= addr < 1 << _OFFSET_BITS):
            raise ValueError(f"No such place: bar {bar}, addr {addr:#x}")
        return (function << _BAR_BITS | bar) << _OFFSET_BITS | addr & ~3, addr % 4


class BridgeMemory(GuestMemory):
    """A copy of the board's memory, ``size`` bytes from address 0 on."""

    def __init__(self, link: Link, size: int):
        super().__init__(np.zeros(size, np.uint8), seed=None)
        self._link = link
        self._there = np.zeros(size, np.uint8)  # what the board has
        self._last: list[slice] = []

    async def clear(self) -> None:
        """Make the board's memory what this is: nothing is known of it before."""
        strobes = b"\xff" * (self.bytes.size // WORD_BYTES)
        await self._link.write_memory(0, self.bytes.tobytes(), strobes)
        self._there[:] = self.bytes

    def written_last(self, addr: int, size: int) -> None:
        """These bytes tell the card of others: they are passed on behind all others."""
        self._last.append(slice(addr, addr + size))

    async def flush(self) -> None:
        """Pass on what the driver has written."""
        now = self.bytes.copy()
        changed = now != self._there
        if not changed.any():
            return
        last = np.zeros(changed.size, bool)
        for piece in self._last:
            last[piece] = True
        for some in (changed & ~last, changed & last):
            await self._write(now, some)
            self._there[some] = now[some]

    async def _write(self, now: np.ndarray, changed: np.ndarray) -> None:
        """Write the bytes that ``changed`` marks, words that follow one another together."""
        strobes = np.packbits(changed, bitorder="little")
        words = np.flatnonzero(strobes)
        if not words.size:
            return
        for run in np.split(words, np.flatnonzero(np.diff(words) != 1) + 1):
            first, end = int(run[0]), int(run[-1]) + 1
            octets = now[WORD_BYTES * first : WORD_BYTES * end].tobytes()
            await self._link.write_memory(WORD_BYTES * first, octets, strobes[first:end].tobytes())

    def arrived(self, block: int, octets: bytes) -> None:
        """The card has written: take what is in a block now, beside what the driver has written
        there and not passed on yet."""
        place = slice(BLOCK_BYTES * block, BLOCK_BYTES * (block + 1))
        found = np.frombuffer(octets, np.uint8)
        ours = self.bytes[place] != self._there[place]
        self._there[place] = found
        self.bytes[place] = np.where(ours, self.bytes[place], found)


class BridgeInterrupts:
    """Messages of the card; implements ``platform.Interrupts``. There are ``MESSAGES`` of them."""

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[], None]] = {}
        self.received = 0

    def allocate(self, handler: Callable[[], None]) -> Message:
        """A new message; OSError when all are in use."""
        free = [number for number in range(MESSAGES) if number not in self._handlers]
        if not free:
            raise OSError(f"All {MESSAGES} messages of the bridge are in use")
        self._handlers[free[0]] = handler
        return Message(MESSAGE_WINDOW + 4 * free[0], free[0])

    def release(self, message: Message) -> None:
        """Later arrivals are ignored."""
        del self._handlers[message.data]

    def arrived(self, messages: int) -> None:
        """Bit n: message n has arrived, once or more often."""
        for number in range(MESSAGES):
            if messages >> number & 1:
                self.received += 1
                if (handler := self._handlers.get(number)) is not None:
                    handler()


class BridgePlatform:
    """Implements ``platform.Platform``; the firmware's registers are ``registers``, an Mmio.

    link: to the bridge; size: bytes of its memory; now: the time in ns.
    """

    def __init__(self, link: Link, size: int, now: Callable[[], int]):
        self._link, self.now = link, now
        # The exchange of one task must not end behind that of another which began later.
        self._exchange = link.lock()
        self.memory = BridgeMemory(link, size)
        self.interrupts = BridgeInterrupts()
        self.registers = BridgeMmio(link)
        self.mmio: platform.Mmio = _Synchronised(self)

    async def wait_event(self, timeout_ns: int) -> None:
        """Exchange memory and interrupts with the board; that takes the time that it takes."""
        async with self._exchange:
            await self.memory.flush()
            await self._fetch()

    async def flush(self) -> None:
        """Pass on what the driver has written."""
        async with self._exchange:
            await self.memory.flush()

    async def fetch(self) -> None:
        """Take all that the card has written, and the interrupts that have come.

        Nobody sees a part of it: what tells of other bytes may come before them.
        """
        async with self._exchange:
            await self._fetch()

    async def _fetch(self) -> None:
        arrived, blocks = 0, dict[int, bytes]()
        while True:
            interrupts, block, octets = await self._link.poll()
            arrived |= interrupts
            if block is None:
                break
            blocks[block] = octets
        for block, octets in blocks.items():
            self.memory.arrived(block, octets)
        self.interrupts.arrived(arrived)


class _Synchronised:
    """The driver's registers: memory is exchanged with each access."""

    def __init__(self, bridge: BridgePlatform):
        self._bridge = bridge

    async def read(self, function: int, bar: int, addr: int, size: int) -> int:
        await self._bridge.flush()
        value = await self._bridge.registers.read(function, bar, addr, size)
        await self._bridge.fetch()
        return value

    async def write(self, function: int, bar: int, addr: int, size: int, value: int) -> None:
        await self._bridge.flush()
        await self._bridge.registers.write(function, bar, addr, size, value)
