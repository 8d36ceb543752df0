"""A board behind a UART, up: firmware, driver, and what a session of the endpoint needs."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from boards.ecpix5.card import CONFIG, MEMORY_BYTES
from firmware.registers import Registers
from firmware.service import Firmware
from sim.guest.bridge.link import Line, Link
from sim.guest.bridge.platform import FEATURES, BridgePlatform
from sim.guest.driver.device import DriverOptions
from sim.guest.driver.errors import RdmaError
from sim.guest.driver.management import Management
from sim.guest.verbs import Context
from sim.models.impairments import Impairments

__all__ = ["Board"]

Result = TypeVar("Result")

#: How long the firmware waits between two looks for work, while a request is served, s.
FIRMWARE_PAUSE_S = 0.001
#: Time that the driver gives the device for an answer, ns. It waits for the line most of it.
PATIENCE_NS = 60_000_000_000


class Board:
    """An ECPIX-5 at the other end of ``line``; implements ``sim.endpoint.world.World``.

    ``context`` is the open device. The firmware runs beside the driver, and ends with HardwareError
    or when the line does, with its error (BridgeError, SerialException).
    """

    max_inline_data = CONFIG.max_inline

    def __init__(self, line: Line):
        self._host = BridgePlatform(Link(line), MEMORY_BYTES, time.monotonic_ns)
        self._registers = Registers(
            Management(self._host.registers, CONFIG.management_function), CONFIG
        )
        self._firmware = Firmware(self._registers, CONFIG)
        self._awake = asyncio.Event()
        self._beside = set[asyncio.Task[Any]]()
        self._task: asyncio.Task[None]
        self.context: Context

    async def start(self, mac: bytes, addresses: Sequence[str], *, fresh: bool) -> None:
        """Bring firmware and driver up. fresh: the board's memory is zero, as after it was loaded.

        Raises RdmaError, HardwareError, BridgeError, SerialException.
        """
        if not fresh:
            await self._host.memory.clear()
        await self._registers.check()
        await self._registers.set_port(mac, lossless=False)
        self._task = asyncio.create_task(self._firmware.run(self._idle))
        self.rest(False)
        await self.guard(self._open(addresses))
        self.rest(True)

    async def _open(self, addresses: Sequence[str]) -> None:
        options = DriverOptions(FEATURES, vectors=CONFIG.vectors, timeout_ns=PATIENCE_NS)
        number = self._firmware.functions[0].number
        self.context = await Context.open(self._host, number, options=options)
        for index, address in enumerate(addresses):
            await self.context.add_gid(index, address)

    async def close(self) -> None:
        """Reset the card, which leaves the board's memory alone from then on."""
        self.rest(False)
        await self.guard(self.context.close())

    async def guard(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of ``work``; raises the firmware's error if that ends meanwhile."""
        task = asyncio.create_task(work)
        await asyncio.wait({task, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            self._task.result()
        return await task

    def rest(self, rests: bool) -> None:
        """Let the firmware look for work no more, or again: each look takes time of the line."""
        if rests:
            self._awake.clear()
        else:
            self._awake.set()

    async def flush(self) -> None:
        """Pass on what the driver has written: a peer may read it."""
        await self._host.flush()

    async def _idle(self) -> None:
        await asyncio.sleep(FIRMWARE_PAUSE_S)
        await self._awake.wait()

    # World --------------------------------------------------------------------------------------

    async def wait(self, until: float) -> None:
        """Exchange memory and interrupts with the board once."""
        self.rest(True)
        await self._host.wait_event(0)
        self.rest(False)

    async def shown(self) -> None:
        """What the card has acknowledged is in its memory: take it from there."""
        await self._host.fetch()

    def beside(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task of the event loop."""
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task

    def facts(self) -> dict[str, Any]:
        """Width in bits, state of the wire (which nobody asks the PHY for), time in ns."""
        return {"width": CONFIG.width, "wire": "unknown", "time_ns": time.monotonic_ns()}

    def counters(self) -> dict[str, int]:
        """None beside the device's."""
        return {}

    def impair(self, what: Impairments) -> None:
        """Refused: the network is a real one."""
        raise RdmaError(errno.EOPNOTSUPP, "A board's network is not simulated")

    def refusal(self) -> str:
        """The firmware's reason."""
        return self._firmware.refusal
