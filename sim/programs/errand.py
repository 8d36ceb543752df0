"""Errands: what a program's threads have the simulation do, and when simulated time goes on.

A program runs in threads of its own beside the simulation's. It hands a coroutine over and waits
for its result. While nobody waits, the simulation stands still.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from typing import Any

import cocotb
from cocotb.triggers import Event, First, NullTrigger, Timer

from sim.bench.system import Node
from sim.bench.testbench import Testbench

__all__ = ["Errands"]

#: How far the simulation goes between two looks of those who wait, ns.
SLICE_NS = 500
#: Without activity of hosts and wires for this long, ns, the cards have nothing to do.
QUIET_NS = 4_000
#: While only timers run: how long to sleep before simulated time follows the wall clock, s, and how
#: far it goes between two looks, ns.
NAP_S, STRIDE_NS = 0.0005, 5_000_000
#: How many looks a poll that finds nothing takes while a card works.
PATIENCE = 8


class _Errand:
    """A coroutine of a program's thread, and the place of its result."""

    def __init__(self, work: Coroutine[Any, Any, Any]):
        self.thread = threading.get_ident()
        self.work = work
        self.result: Future[Any] = Future()


class Errands:
    """Errands of a running simulation. ``do`` may be called by any thread, all else by its own.

    Simulated time goes on while an errand is done. While all of them only wait and the cards have
    nothing to do but to run timers, simulated time follows the wall clock: a card's time-out then
    takes as long as a program thinks that it takes.
    """

    def __init__(self, testbench: Testbench, nodes: list[Node]):
        self._testbench, self._nodes = testbench, nodes
        self._thread = threading.get_ident()
        self._asked: queue.SimpleQueue[_Errand | None] = queue.SimpleQueue()
        self._running: list[_Errand] = []
        self._waiting = 0  # of those, who only look now and then
        self._finished, self._turn = Event(), Event()
        self._over = False
        #: What the simulation does after each piece of time.
        self.looks: list[Callable[[], Awaitable[None]]] = []
        self._activity: tuple[int, ...] = ()
        self._active_ns = 0
        #: Wall clock (s) and simulated time (ns) when the cards had nothing left but timers.
        self._since: tuple[float, int] | None = None

    # Any thread ---------------------------------------------------------------------------------

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Have the simulation run ``work``; its result, or what it raises.

        In the simulation's own thread, where a destructor may run at any time, nobody waits: the
        work is done later. RuntimeError when the simulation has ended.
        """
        errand = _Errand(work)
        if self._over:
            work.close()
            raise RuntimeError("the simulation has ended")
        self._asked.put(errand)
        if threading.get_ident() == self._thread:
            return None
        return errand.result.result()

    def end(self) -> None:
        """No more errands will come."""
        self._asked.put(None)

    def fail(self, error: BaseException, thread: int | None = None) -> bool:
        """Give up what is under way: each thread that waits, or that one, gets ``error``.

        Whether there was one.
        """
        failed = False
        for errand in list(self._running):
            if thread in (None, errand.thread):
                with contextlib.suppress(InvalidStateError):
                    errand.result.set_exception(error)
                    failed = True
        return failed

    # The simulation's thread --------------------------------------------------------------------

    async def run(self) -> None:
        """Do errands until the program has ended."""
        while not self._over:
            self._begin(None if not self._running else 0)
            await NullTrigger()  # it begins
            if self._running:
                await self._go_on()

    async def until(self, found: Callable[[], bool], most: int | None = None) -> bool:
        """For errands: whether ``found()``, looked at again and again while time goes on.

        most: looks, at most. A bounded wait for cards that have nothing to do ends after one.
        """
        while not (there := found()) and most != 0:
            self._waiting += 1
            try:
                await self._turn.wait()
            finally:
                self._waiting -= 1
            if most is not None:
                most = 0 if self._since is not None else most - 1
        return there

    async def moment(self) -> None:
        """For errands: what a call into a kernel takes, in which the cards go on."""
        await self.until(lambda: False, most=2 * PATIENCE)

    def _begin(self, patience: float | None) -> None:
        """Take up what has been asked for; without anything, wait so many seconds for it."""
        try:
            while True:
                errand = self._asked.get(block=patience != 0, timeout=patience or None)
                if errand is None:
                    self._over = True
                    return
                self._running.append(errand)
                cocotb.start_soon(self._serve(errand))
                patience = 0
        except queue.Empty:
            pass

    async def _serve(self, errand: _Errand) -> None:
        with contextlib.suppress(InvalidStateError):  # of one that was given up
            try:
                result = await errand.work
            except Exception as error:  # not the end of the simulation
                errand.result.set_exception(error)
            else:
                errand.result.set_result(result)
        self._running.remove(errand)
        self._finished.set()

    async def _go_on(self) -> None:
        """Let time go on a little."""
        if len(self._running) > self._waiting or not self._quiet():
            self._rest(False)
            await First(Timer(SLICE_NS, "ns"), self._finished.wait())
            self._finished.clear()
        else:
            self._rest(True)
            if any(node.firmware_busy for node in self._nodes):
                await First(Timer(SLICE_NS, "ns"), self._finished.wait())
                self._finished.clear()
            else:
                await self._follow_wall_clock()
        for look in self.looks:
            await look()
        self._turn.set()
        self._turn.clear()
        await NullTrigger()  # who waits looks before anybody sleeps

    def _rest(self, rests: bool) -> None:
        for node in self._nodes:
            node.rest_firmware(rests)
        if not rests:
            self._since = None

    async def _follow_wall_clock(self) -> None:
        """Simulate what has passed of the wall clock since nothing else was to do, never more."""
        now = self._nodes[0].host.now()
        if self._since is None:
            self._since = time.monotonic(), now
        wall, simulated = self._since
        behind = int(1e9 * (time.monotonic() - wall)) - (now - simulated)
        if behind < 1e9 * NAP_S or not self._testbench.timers_run:
            self._begin(NAP_S)
        else:
            await Timer(min(behind, STRIDE_NS), "ns")

    def _quiet(self) -> bool:
        """Whether no card has anything to do, as far as hosts and wires can tell."""
        now = self._nodes[0].host.now()
        activity: list[int] = []
        under_way = 0
        for node in self._nodes:
            host, wire = node.host.stats, self._testbench.wires[node.index]
            activity += (host.reads, host.writes, wire.stats.tx_frames, wire.stats.rx_frames)
            under_way += host.reads_outstanding + host.writes_pending
            under_way += wire.under_way(to_card=True) + wire.under_way(to_card=False)
        if tuple(activity) != self._activity or under_way:
            self._activity, self._active_ns = tuple(activity), now
        return now - self._active_ns >= QUIET_NS
