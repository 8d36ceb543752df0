"""The daemon: a firmware on a BAR, from its start to a signal that ends it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
from collections.abc import AsyncIterator, Callable

from firmware.daemon.bars import BarError, MappedBar, SocketBar, open_bar
from firmware.daemon.interrupts import Interrupts
from firmware.daemon.logs import log
from firmware.daemon.metrics import Exporter, Metrics
from firmware.daemon.notify import ServiceManager
from firmware.daemon.settings import Settings, TableEntry
from firmware.identity import read_config
from firmware.journal import Journal
from firmware.registers import SPACE, Registers
from firmware.service import Firmware, GuestFunction
from firmware.takeover import JournalKeeper, check_unused
from hdl.config import VERSION

__all__ = ["Daemon", "SettingError"]


class SettingError(ValueError):
    """An option does not fit the card."""


class Daemon:
    """One firmware on one card. ``run`` ends after ``stop``, between two requests."""

    def __init__(self, settings: Settings, bar: MappedBar | SocketBar, registers: Registers):
        self._settings, self._registers = settings, registers
        self._firmware = Firmware(registers, registers.config)
        self._journal = Journal(settings.state) if settings.state is not None else None
        self._metrics = Metrics(registers, self._firmware)
        self._exporter = None
        if settings.metrics is not None:
            self._exporter = Exporter(settings.metrics, self._text)
        #: Whoever uses the registers, which are one's at a time.
        self._turn = asyncio.Lock()
        self._interrupts = Interrupts(bar.device)
        self._manager = ServiceManager(dict(os.environ))
        self._stopping, self._broken = False, False

    def stop(self) -> None:
        """End when the request that is being served is answered."""
        self._stopping = True

    async def run(self) -> None:
        """Serve until ``stop``. Raises HardwareError, SettingError."""
        try:
            await self._start()
            while not self._stopping:
                self._manager.alive()
                async with self._turn:
                    acted = await self._step()
                if acted:
                    await asyncio.sleep(0)  # signals have their turn
                else:
                    await self._interrupts.wait(self._settings.period)
            log("info", "stopped", served=self._firmware.served)
        finally:
            self._manager.tell(STOPPING="1")
            if self._exporter is not None:
                await self._exporter.close()
            self._interrupts.close()
            if self._journal is not None:
                self._journal.close()
            self._manager.close()

    async def _start(self) -> None:
        chosen, config = self._settings, self._registers.config
        if self._registers.context_bytes:
            raise SettingError(
                f"The card has the rows of {config.hot_qps} QPs on chip, and needs memory for the "
                "others, which this daemon does not give"
            )
        for entry in chosen.vlans:  # before a request that was left is carried out
            self._set(entry, GuestFunction.set_vlan, "--vlan")
        if self._journal is None:
            taken_over = False
            await check_unused(self._firmware)
        else:
            taken_over = await JournalKeeper(self._firmware, self._journal, config).begin()
        for entry in chosen.pkeys:
            self._set(entry, GuestFunction.set_pkey, "--pkey")
        await self._registers.set_port(chosen.mac, lossless=chosen.lossless)
        if self._exporter is not None:
            try:
                await self._exporter.start()
            except OSError as error:
                raise SettingError(f"--metrics: {error}") from None
        log(
            "info",
            "started",
            bar=chosen.bar,
            version=VERSION,
            card_version=await self._registers.version(),
            card_commit=self._registers.commit,
            mac=chosen.mac.hex(":"),
            functions=len(self._firmware.functions),
            interrupts=self._interrupts.given,
            period=chosen.period,
            taken_over=taken_over,
            objects=self._objects(),
            metrics_port=None if self._exporter is None else self._exporter.port,
        )
        self._manager.tell(READY="1", STATUS=f"Serves {chosen.bar}")

    async def _text(self) -> str:
        """The metrics, between two steps."""
        async with self._turn:
            return await self._metrics.text()

    def _objects(self) -> dict[str, int]:
        """How many of each kind there are."""
        all_objects = [function.commands.objects for function in self._firmware.functions]
        kinds = ("pds", "cqs", "mrs", "srqs", "qps")
        return {kind: sum(len(getattr(one, kind)) for one in all_objects) for kind in kinds}

    def _set(
        self, entry: TableEntry, how: Callable[[GuestFunction, int, int], None], option: str
    ) -> None:
        functions = self._firmware.functions
        if entry.ordinal >= len(functions):
            raise SettingError(f"{option}: the card has no function {entry.ordinal}")
        try:
            how(functions[entry.ordinal], entry.index, entry.value)
        except ValueError as error:
            raise SettingError(f"{option}: {error}") from None

    async def _look_for_break(self) -> None:
        """Say once that the card stands still, and that it runs again."""
        broken = await self._registers.broken()
        if broken and not self._broken:
            _, tables, _ = await self._registers.parity_errors()
            log("error", "the card stands still: a row had a wrong bit", tables=tables)
        elif self._broken and not broken:
            log("info", "the card runs again")
        self._broken = broken

    async def _step(self) -> bool:
        """One step of the firmware; whether there was something to do."""
        firmware = self._firmware
        if self._registers.config.parity:
            await self._look_for_break()
        served, resets = firmware.served, firmware.resets
        if not await firmware.step():
            return False
        if firmware.resets != resets:
            log("info", "reset")
        if firmware.served == served:
            return True
        if firmware.refusal:
            self._metrics.refused += 1
            log("warning", "refused", why=firmware.refusal, served=firmware.served)
        else:
            log("debug", "served", served=firmware.served)
        return True


@contextlib.asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[MappedBar | SocketBar]:
    bar = await open_bar(settings.bar, offset=settings.offset, size=settings.size)
    try:
        if bar.size < SPACE:
            raise BarError(f"{settings.bar}: {bar.size:#x} bytes, the registers need {SPACE:#x}")
        yield bar
    finally:
        bar.close()


async def serve(settings: Settings) -> None:
    """Serve the card that ``settings`` name until a signal. Raises HardwareError, SettingError."""
    async with _opened(settings) as bar:
        daemon = Daemon(settings, bar, Registers(bar, await read_config(bar)))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, daemon.stop)
        await daemon.run()


async def examine(settings: Settings) -> dict[str, int | str]:
    """Version, commit and configuration of the card; nothing is changed. Raises HardwareError."""
    async with _opened(settings) as bar:
        config = await read_config(bar)
        registers = Registers(bar, config)
        facts = {"version": await registers.version(), "commit": registers.commit}
        return dataclasses.asdict(config) | facts
