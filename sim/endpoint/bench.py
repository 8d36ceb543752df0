"""The endpoint inside the simulation: ``sim.endpoint.command`` starts it and talks with it.

Its settings (``sim.endpoint.control``) are ``config`` (of the card), ``mac``, ``addresses``,
``wire`` (path), ``pcap`` (path or null), ``impair`` (what becomes of frames, both ways),
``timer_scale``, ``function_addresses`` (those of further guest functions).
"""

from __future__ import annotations

import errno
import math
import select
import time
from collections.abc import Coroutine
from typing import Any

import cocotb
from cocotb.triggers import Event, First, NullTrigger, Timer

from hdl.config import NicConfig
from sim.bench.system import VISIBLE_NS, Node
from sim.bench.testbench import Testbench
from sim.endpoint import peer
from sim.endpoint.control import Control
from sim.endpoint.lines import LONGEST, Lines, LineTooLong
from sim.endpoint.neighbours import Neighbours
from sim.endpoint.peer import Peer
from sim.endpoint.session import Session, failure
from sim.endpoint.values import mac_bytes
from sim.models.impairments import Impairments
from sim.models.platform import Wire

#: Guest memory, bytes: half of it is for regions. The machine gives what is used of it.
MEMORY = 2 << 30
#: How far the simulation goes between two looks at the sockets, ns.
SLICE_NS = 1_000
#: Without activity of host and wire for this long, ns, the NIC is waiting for somebody else.
QUIET_NS = 4_000
#: Bytes from the peer that the card has not taken yet, from which on its socket is not read.
BEHIND = 1 << 18
#: While only timers run: how long to sleep before simulated time follows the wall clock, s, and how
#: far it goes between two looks at the sockets, ns.
NAP_S, STRIDE_NS = 0.002, 5_000_000
#: How long the client may take to read its last replies, s.
FAREWELL_S = 2.0


class Endpoint:
    """A card and its driver, on two sockets; implements ``sim.endpoint.world.World``.

    Simulated time goes on while there is work: a request is being answered, a frame is on its way,
    or host or wire were busy a moment ago. When the card only waits for an answer, with a timer, it
    goes on with the wall clock. Otherwise it stands still and this process sleeps until a socket
    has something, or until a poll has waited for its time.
    """

    max_inline_data = 256

    def __init__(self, spec: dict[str, Any], lines: Lines, wire: Peer):
        self._spec, self._lines, self._peer = spec, lines, wire
        mac = mac_bytes(spec["mac"])
        self._neighbours = Neighbours(mac, [*spec["addresses"], *spec["function_addresses"]])
        self._task: Any = None
        self._finished, self._turn = Event(), Event()
        #: When a request that waits wants to look again; None: none waits.
        self._wake_at: float | None = None
        self._held = False
        #: Wall clock (s) and simulated time (ns) when the card had nothing left but its timers.
        self._since: tuple[float, int] | None = None
        self._activity: tuple[int, ...] = ()
        self._active_ns = 0
        self._mac = mac

    async def start(self, dut: Any) -> None:
        """Bring the card up."""
        others = self._spec["function_addresses"]
        config = NicConfig(**self._spec["config"])
        testbench = Testbench(dut, config=config, memory=MEMORY, jump="rest", cards=1)
        await testbench.start()
        self._testbench = testbench
        addresses = self._spec["addresses"]
        self._node = Node(testbench, 0, address=addresses[0], mac=self._mac)
        self._node.timer_scale = self._spec["timer_scale"]
        self._host, self._wire = testbench.hosts[0], testbench.wires[0]
        await self._node.start()
        for index, address in enumerate(addresses[1:], 1):
            await self._node.context.add_gid(index, address)
        self.impair(Impairments.parse(self._spec["impair"]))
        self._node.rest_firmware(True)
        self._session = Session(self._node.context, self, mac=self._mac, addresses=addresses)
        beside = self._node
        for address in others:
            beside = Node(testbench, 0, address=address, mac=self._mac, beside=beside)
            self._node.rest_firmware(False)
            await beside.start()
            self._node.rest_firmware(True)
            more = Session(beside.context, self, mac=self._mac, addresses=[address])
            self._session.functions.append(more)

    async def run(self) -> None:
        """Serve until the client has quit or gone."""
        while not (self._lines.gone or self._session.over):
            if self._task is None:
                self._begin()
            if self._task is None and self._lines.ended:
                return
            if not self._may_sleep():
                self._work()
                await self._go_on(SLICE_NS)
            elif await self._timer_runs():
                await self._follow_wall_clock()
            else:
                self._work()
                self._exchange(None)

    async def _go_on(self, ns: int, *until: Any) -> None:
        """Simulate for a time, or until a request has been answered, and look at the sockets."""
        await First(Timer(ns, "ns"), self._finished.wait(), *until)
        self._finished.clear()
        self._exchange(0)
        self._turn.set()
        self._turn.clear()
        await NullTrigger()  # a poll takes what has completed before anybody sleeps

    async def _timer_runs(self) -> bool:
        """Whether nothing but time lacks for the card to go on; not while the peer holds it."""
        if self._held:
            return False
        if self._node.firmware_busy:
            return True
        timers = self._testbench.timers_run and await self._session.waits_for_answers()
        return timers or self._session.waits_for_peers

    def _work(self) -> None:
        """Follow the wall clock no more: who looks at the card looks often again."""
        if self._since is not None:
            self._since = None
            self._host.doze(0)

    async def _follow_wall_clock(self) -> None:
        """Simulate what has passed of the wall clock since nothing else was to do, never more."""
        now = self._host.now()
        if self._since is None:
            self._since = time.monotonic(), now
            self._host.doze(STRIDE_NS)
        wall, simulated = self._since
        behind = int(1e9 * (time.monotonic() - wall)) - (now - simulated)
        if behind < 1e9 * NAP_S:
            self._exchange(NAP_S)
        else:
            await self._go_on(min(behind, STRIDE_NS), self._wire.arrival())

    def flush(self, seconds: float) -> None:
        """Let the client have its last replies."""
        until = time.monotonic() + seconds
        while self._lines.unsent and not self._lines.gone and time.monotonic() < until:
            self._exchange(0.05)

    # World, for the session ---------------------------------------------------------------------

    async def wait(self, until: float) -> None:
        """Until a slice has passed, or a socket had something, or the time has come."""
        self._wake_at = until
        self._node.rest_firmware(True)
        await self._turn.wait()
        self._node.rest_firmware(False)
        self._wake_at = None

    def beside(self, work: Coroutine[Any, Any, Any]) -> Any:
        """A task of the simulation."""
        return cocotb.start_soon(work)

    async def shown(self) -> None:
        """An acknowledgement is on the wire before the host shows the last of the data."""
        if not self._quiet():
            await Timer(VISIBLE_NS, "ns")

    def facts(self) -> dict[str, Any]:
        """Width in bits, state of the wire, simulated time in ns."""
        return {
            "width": self._spec["config"]["width"],
            "wire": "connected" if self._peer.connected else "down",
            "time_ns": self._host.now(),
        }

    def counters(self) -> dict[str, int]:
        """Those of the socket, and of what impairments have done to frames from and to the card."""
        done = {
            f"wire_{name}_{way}": int(getattr(stats, name))
            for way, stats in (("out", self._wire.outward), ("in", self._wire.inward))
            for name in ("gone", "duplicated", "corrupted", "overtaken")
        }
        return self._peer.counters | done

    def impair(self, what: Impairments) -> None:
        """The same network both ways, with chances of their own."""
        self._wire.impair(what, what)

    def refusal(self) -> str:
        """The firmware's reason."""
        return self._node.firmware.refusal

    # Requests -----------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Take up the next line, if there is one."""
        while self._task is None and not self._lines.blocked:
            try:
                line = self._lines.next()
            except LineTooLong:
                self._lines.send(failure(errno.EMSGSIZE, f"A line has at most {LONGEST} bytes"))
                continue
            if line is None:
                return
            self._task = cocotb.start_soon(self._serve(line))

    async def _serve(self, line: bytes) -> None:
        self._node.rest_firmware(False)
        self._lines.send(await self._session.handle(line))
        self._node.rest_firmware(True)
        self._task = None
        if self._session.acted:
            self._active_ns = self._host.now()
        self._finished.set()

    # Sockets ------------------------------------------------------------------------------------

    def _exchange(self, patience: float | None) -> None:
        """Pass on what there is in every direction; waits for something, ``patience`` s at most."""
        while (taken := self._wire.take()) is not None:
            self._peer.send(taken[0])
        self._hold(self._peer.backlog >= peer.HIGH)
        behind = self._wire.under_way(to_card=True)
        # While the peer does not read, this side goes on reading: both might be waiting.
        reading = behind < (peer.MOST if self._held else BEHIND)
        poll = select.poll()
        self._lines.register(poll, reading=self._task is None and not self._lines.blocked)
        due = [patience, self._peer.register(poll, reading=reading)]
        if self._wake_at is not None:
            due.append(max(0.0, self._wake_at - time.monotonic()))
        waits = [seconds for seconds in due if seconds is not None]
        found = dict(poll.poll(math.ceil(1000 * min(waits)) if waits else None))
        self._lines.service(found.get(self._lines.fileno(), 0))
        for frame in self._peer.service(reading=reading):
            if not self._neighbours.takes(frame):
                self._inject(frame)
            elif (answer := self._neighbours.answer(frame)) is not None:
                self._peer.send(answer)

    def _inject(self, frame: bytes) -> None:
        self._wire.inject(frame)
        self._node.poke_firmware()  # it may be for it
        self._active_ns = self._host.now()

    def _may_sleep(self) -> bool:
        """Whether nothing happens before a socket has something, or a poll's time has come."""
        if self._task is not None and (self._wake_at is None or self._wake_at <= time.monotonic()):
            return False
        return self._quiet()

    def _hold(self, held: bool) -> None:
        """Let the card send no more until the peer has read, as a link with flow control does."""
        if held != self._held:
            self._held = held
            self._wire.hold(held)
            self._active_ns = self._host.now()

    def _quiet(self) -> bool:
        """Whether the card waits for a frame or a request, as far as host and wire can tell."""
        host, wire, now = self._host.stats, self._wire.stats, self._host.now()
        activity = (host.reads, host.writes, wire.tx_frames, wire.rx_frames)
        under_way = host.reads_outstanding or host.writes_pending
        # What the card does not take while it cannot send waits for the peer as well.
        if not self._held:
            under_way |= self._wire.under_way(to_card=True) | self._wire.under_way(to_card=False)
        if activity != self._activity or under_way:
            self._activity, self._active_ns = activity, now
        return bool(now - self._active_ns >= QUIET_NS)


@cocotb.test()
async def endpoint(dut: Any) -> None:
    """Serve one client."""
    control = Control()
    served = Endpoint(control.spec, control.lines, control.wire)
    if pcap := control.spec["pcap"]:
        Wire.capture(pcap)
    await served.start(dut)
    await served.run()
    served.flush(FAREWELL_S)
    Wire.end_capture()
    control.close()
