"""A card whose firmware is a process of its own: ``rocinante firmware`` on a socket.

Used inside a simulation, as ``sim.bench.system`` is.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cocotb
from cocotb.triggers import Timer

from firmware.daemon.bars import ANSWER, REQUEST, SOCKET_PREFIX, WRITE
from sim.bench.system import Node
from sim.guest.driver.management import Management

__all__ = ["BarServer", "ProcessNode"]

#: How far the simulation goes between two looks at the socket, ns, and how long each look waits for
#: a firmware that is connected, s: what the firmware takes to think is hardly simulated.
SLICE_NS, PATIENCE_S = 1_000, 0.0002
#: How often the process looks for work, s: each look takes the simulation's time as well.
PERIOD_S = "0.05"
#: How long the start of a process may take, s; simulated time stands still meanwhile.
START_S = 120.0
_CHUNK = 1 << 16


class BarServer:
    """Serves the registers of a card on the unix socket ``path``, to one process at a time.

    ``accesses`` counts them. ``leave_after``: how many more are carried out, after which the
    connection breaks; None: as many as there are.
    """

    def __init__(self, registers: Management, path: Path):
        self._registers = registers
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._door.bind(str(path))
        self._door.listen(1)
        self._line: socket.socket | None = None
        self._pending = b""
        self.accesses = 0
        self.leave_after: int | None = None
        self._task = cocotb.start_soon(self._serve())

    @property
    def connected(self) -> bool:
        """Whether a firmware is there."""
        return self._line is not None

    def accept(self, seconds: float) -> None:
        """Take the next firmware's connection; TimeoutError when none comes in time."""
        if not select.select([self._door], [], [], seconds)[0]:
            raise TimeoutError(f"No firmware within {seconds} s")
        self._line, _ = self._door.accept()
        self._pending = b""

    def close(self) -> None:
        """Serve no more."""
        self._task.cancel()
        self._leave()
        self._door.close()

    def _leave(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line = None

    def _receive(self) -> bytes | None:
        """What has come; nothing when the firmware is quiet, None when it has gone."""
        if self._line is None:
            return b""
        if not select.select([self._line], [], [], PATIENCE_S)[0]:
            return b""
        try:
            return self._line.recv(_CHUNK) or None
        except ConnectionError:
            return None

    async def _serve(self) -> None:
        while True:
            octets = self._receive()
            if octets is None:
                self._leave()
            elif octets:
                await self._carry_out(octets)
            else:
                await Timer(SLICE_NS, "ns")

    async def _carry_out(self, octets: bytes) -> None:
        self._pending += octets
        while self._line is not None and len(self._pending) >= REQUEST.size:
            if self.leave_after is not None:
                if self.leave_after == 0:
                    self._leave()
                    return
                self.leave_after -= 1
            request, self._pending = self._pending[: REQUEST.size], self._pending[REQUEST.size :]
            what, addr, value = REQUEST.unpack(request)
            self.accesses += 1
            if what == WRITE:
                await self._registers.write(addr, value)
            else:
                self._answer(ANSWER.pack(await self._registers.read(addr)))

    def _answer(self, octets: bytes) -> None:
        if self._line is None:
            return
        try:
            self._line.sendall(octets)
        except ConnectionError:
            self._leave()  # the firmware has ended before its answer


class ProcessNode(Node):
    """A node whose firmware is the process that ``launch`` starts, with ``options`` more.

    folder: for the socket and the log. ``firmware`` of this process stands idle. ``server`` serves
    the registers, which nobody else uses meanwhile.
    """

    server: BarServer

    def __init__(self, *where: Any, folder: Path, options: Sequence[str] = (), **more: Any):
        super().__init__(*where, **more)
        self._socket = folder / f"bar{self.index}"
        self.log = folder / f"firmware{self.index}.log"
        self.options = list(options)
        self._process: subprocess.Popen[bytes] | None = None

    async def bring_up(self) -> None:
        """Serve the registers, and start the process."""
        self.server = BarServer(self.testbench.management[self.index], self._socket)
        self.launch()

    @property
    def firmware_runs(self) -> bool:
        """Whether the process has been started."""
        return self._process is not None

    def launch(self) -> None:
        """Start the process; returns when it has opened the BAR."""
        command = [sys.executable, "-P", "-m", "sim.tools.cli", "firmware"]
        command += ["--bar", f"{SOCKET_PREFIX}{self._socket}"]
        command += ["--mac", self.mac.hex(":"), "--lossless", "--period", PERIOD_S, *self.options]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stderr=log, stdin=subprocess.DEVNULL)
        self.server.accept(START_S)

    def signal(self, number: int) -> None:
        """Send the process a signal."""
        assert self._process is not None
        os.kill(self._process.pid, number)

    async def ended(self, *, most_ns: int = 10_000_000) -> int:
        """Wait for the end of the process, which goes on being served; its exit status."""
        assert self._process is not None
        for _ in range(most_ns // SLICE_NS):
            status = self._process.poll()
            if status is not None:
                self._process = None
                return status
            await Timer(SLICE_NS, "ns")
        raise TimeoutError("The firmware does not end")

    def stop_firmware(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
