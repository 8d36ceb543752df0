"""The board inside the simulation: ``sim.board.command`` starts it.

Its settings (``sim.endpoint.control``) are ``wire`` (path), ``pcap`` (path or null), ``mac``
and ``addresses`` (whose ARP and echo requests software answers in the card's place).
"""

from __future__ import annotations

import json
import os
import pty
import select
import tty
from typing import Any

import cocotb
from cocotb.queue import Queue
from cocotb.simtime import get_sim_time
from cocotb.triggers import Timer

from sim.board.pins import Board
from sim.endpoint.control import Control
from sim.endpoint.neighbours import Neighbours
from sim.endpoint.values import mac_bytes
from sim.wire.pcap import write_pcap

#: How far the simulation goes between two looks at terminal and sockets, ns.
SLICE_NS = 2_000
#: Simulated time in which nothing has happened, ns, from which on the board waits for somebody, and
#: how long this process then sleeps, ms.
QUIET_NS, NAP_MS = 200_000, 20
_CHUNK = 4096


class SimulatedBoard:
    """A board on a pseudo terminal and a unix socket, until the client goes.

    Simulated time stands still when nothing has happened on UART and wire for a while.
    """

    def __init__(self, control: Control):
        self._lines, self._peer = control.lines, control.wire
        self._neighbours = Neighbours(mac_bytes(control.spec["mac"]), control.spec["addresses"])
        #: (time in ns, frame) of all that passed at the card's MAC.
        self.frames: list[tuple[int, bytes]] = []
        self._requests, self._sending = Queue[bytes](), False
        self._active_ns = 0
        self._terminal, self._far = pty.openpty()
        tty.setraw(self._far)
        os.set_blocking(self._terminal, False)

    async def start(self, dut: Any) -> None:
        """Bring the board out of reset; the client is told the terminal's name."""
        self._board = Board(dut, self._sent)
        await self._board.start()
        self._uart = self._board.uart(self._answered)
        cocotb.start_soon(self._ask())
        self._lines.send(json.dumps({"uart": os.ttyname(self._far)}).encode() + b"\n")

    async def run(self) -> None:
        """Serve until the client has gone or has closed its input."""
        while not (self._lines.gone or self._lines.ended):
            await Timer(SLICE_NS, "ns")
            idle = self._now() - self._active_ns > QUIET_NS
            self._exchange(NAP_MS if idle else 0)

    @staticmethod
    def _now() -> int:
        return int(get_sim_time("ns"))

    def _sent(self, frame: bytes) -> None:
        self._active_ns = self._now()
        self.frames.append((self._active_ns, frame))
        self._peer.send(frame)

    def _answered(self, octet: int) -> None:
        self._active_ns = self._now()
        os.write(self._terminal, bytes((octet,)))

    async def _ask(self) -> None:
        """Send what has come from the terminal; a request goes without a pause."""
        while True:
            octets = await self._requests.get()
            await self._uart.send(octets)
            self._active_ns = self._now()

    def _exchange(self, patience_ms: int) -> None:
        """Take what has come from terminal and wire; waits ``patience_ms`` at most."""
        poll = select.poll()
        poll.register(self._terminal, select.POLLIN)
        self._lines.register(poll, reading=True)
        self._peer.register(poll, reading=True)
        found = dict(poll.poll(patience_ms))
        self._lines.service(found.get(self._lines.fileno(), 0))
        if found.get(self._terminal, 0) & select.POLLIN:
            self._requests.put_nowait(os.read(self._terminal, _CHUNK))
            self._active_ns = self._now()
        for frame in self._peer.service(reading=True):
            if not self._neighbours.takes(frame):
                self._active_ns = self._now()
                self.frames.append((self._active_ns, frame))
                self._board.phy.inject(frame)
            elif (answer := self._neighbours.answer(frame)) is not None:
                self._peer.send(answer)


@cocotb.test()
async def board(dut: Any) -> None:
    """Serve one PC and one peer."""
    control = Control()
    served = SimulatedBoard(control)
    await served.start(dut)
    await served.run()
    if pcap := control.spec["pcap"]:
        write_pcap(pcap, served.frames)
    control.close()
