"""The card inside the simulation: ``sim.host.command`` starts it.

Its settings (``sim.endpoint.control``) are ``config`` (of each card), ``cards``, ``mac`` (of the
first card; the second has the next one), ``folder`` (of the sockets), ``wire`` (path or null),
``pcap`` (path or null), ``impair``, ``timer_scale``, ``bound_us``, ``mtu`` (of network functions).
"""

from __future__ import annotations

import select
import time
from pathlib import Path
from typing import Any

import cocotb
from cocotb.triggers import (
    Event,
    First,
    NullTrigger,
    SimTimeoutError,
    Timer,
    ValueChange,
    with_timeout,
)

from firmware.device import HardwareError
from hdl.config import FUNCTION_NET, FUNCTION_RDMA, NicConfig
from sim.bench.stall import stall_report
from sim.bench.system import FIRMWARE_POLL_NS, Node
from sim.bench.testbench import Testbench
from sim.endpoint.control import Control
from sim.endpoint.values import mac_bytes
from sim.host.door import Door
from sim.host.function import CardPins, Function
from sim.host.network import Network
from sim.host.pace import Pace
from sim.models import native
from sim.models.impairments import Impairments
from sim.models.platform import Wire

#: How far the simulation goes between two looks at the sockets, ns.
SLICE_NS = 250
#: Without activity of host and wire for this long, ns, a card that never sleeps is idle.
QUIET_NS = 4_000
#: While only timers run: how long to sleep before simulated time follows the wall clock, s, and how
#: far it goes between two looks at the sockets, ns.
NAP_S, STRIDE_NS = 0.002, 5_000_000
#: What the command may ask for: where the cards stand, and what they have counted.
STALL, COUNT = b"stall", b"count"
#: How long the registers of a card's counters may take, simulated us.
COUNTERS_US = 1000
#: A host's own memory, bytes: its guests' is theirs.
MEMORY = 64 << 20


class ServedCard:
    """One card with its firmware, which looks for work when it is told to."""

    def __init__(self, testbench: Testbench, index: int, mac: bytes, timer_scale: float):
        self.node = Node(testbench, index, mac=mac)
        self.node.timer_scale = timer_scale
        self.pins = CardPins(testbench.dut, index)
        self._host = native.structure(native.HostStats, "host_stats", index)
        self._wire = native.structure(native.LinkStats, "link_stats", index)
        self._asked = Event()
        self.looks = False

    async def start(self, mtu: int) -> None:
        """Set the card up. mtu: what its network function tells a driver."""
        host = self.node.host
        host.set(mmio_latency_ns=0)
        await self.node.prepare()
        if self.node.registers.network is not None:
            await self.node.registers.network.set_mtu(mtu)
        host.set()
        cocotb.start_soon(self._firmware())

    async def counted(self) -> str:
        """The counters that are not 0. They begin anew with a device reset of an only function."""
        registers = self.node.registers
        try:
            counters = await with_timeout(registers.counters(), COUNTERS_US, "us")
            if registers.network is not None:
                counters |= await with_timeout(registers.network.counters(), COUNTERS_US, "us")
        except (SimTimeoutError, HardwareError) as error:
            return f"its registers do not answer {error}".rstrip()
        return (
            ", ".join(f"{name} {value}" for name, value in counters.items() if value) or "nothing"
        )

    def look(self) -> None:
        """Have the firmware look for work."""
        self.looks = True
        self._asked.set()

    async def _firmware(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            while await self.node.firmware.step():
                pass
            self.looks = self._asked.is_set()

    @property
    def activity(self) -> tuple[int, ...]:
        """What grows whenever the card does something."""
        host, wire = self._host, self._wire
        return host.read_beats, host.writes, wire.tx_frames, wire.rx_frames

    @property
    def under_way(self) -> int:
        """Reads, writes and bytes of frames that are on their way."""
        frames = native.library().link_under_way
        index = self.node.index
        wire = int(frames(index, False) + frames(index, True))
        return int(self._host.reads_outstanding + self._host.writes_pending) + wire


class Serving:
    """Cards, their functions' sockets, and when simulated time goes on.

    It goes on while a card, its host or the wire has something to do, or a client's access is under
    way. When only a timer of a card runs, it goes on with the wall clock. Otherwise it stands still
    until a socket has something.
    """

    def __init__(self, control: Control):
        self._control, self._spec = control, control.spec
        self._doors: list[Door] = []
        self._stirred = 0
        self._asked: list[bytes] = []
        self._seen: tuple[Any, ...] = ()
        self._looked_ns = 0
        self._since: tuple[float, int] | None = None
        self._followed: tuple[Any, ...] = ()
        self._activity: tuple[Any, ...] = ()
        self._active_ns = 0

    async def start(self, dut: Any) -> None:
        """Bring the cards up and open the sockets."""
        spec = self._spec
        config = NicConfig(**spec["config"])
        count = spec["cards"]
        self._testbench = testbench = Testbench(
            dut, config=config, memory=MEMORY, jump="rest", cards=count, connect=count > 1
        )
        await testbench.start()
        self._now = testbench.hosts[0].now
        self._pace = Pace(self._now, round(1000 * spec["bound_us"]))
        first = int.from_bytes(mac_bytes(spec["mac"]), "big")
        self._cards = [
            ServedCard(testbench, i, (first + i).to_bytes(6, "big"), spec["timer_scale"])
            for i in range(count)
        ]
        for card, wire in zip(self._cards, testbench.wires, strict=True):
            await card.start(spec["mtu"])
            wire.impair(*[Impairments.parse(spec["impair"])] * 2)
        self._network: Network | None = None
        if count == 1:
            peer = None if spec["wire"] is None else self._control.wire
            self._network = Network(testbench.wires[0], peer, self._cards[0].node)
        for index, card in enumerate(self._cards):
            numbers = [FUNCTION_RDMA + ordinal for ordinal in range(config.functions)]
            numbers += [FUNCTION_NET] * (config.network > 0)  # behind the others, as its pins are
            for ordinal, number in enumerate(numbers):
                function = Function(card.node.host, card.pins, number, ordinal, self.stir)
                await function.discover()
                path = Path(spec["folder"], f"card{index}-function{number}")
                door = Door(str(path), function, self._pace, self._control.say)
                self._doors.append(door)
                self._control.say(f"{path}: {function.identity}")
            cocotb.start_soon(self._watch_intx(index))
        self._control.say("the card is served")

    def stir(self) -> None:
        """Somebody has done what the firmware may have to see to."""
        self._stirred += 1

    async def _watch_intx(self, index: int) -> None:
        host = self._cards[index].node.host
        while True:
            await ValueChange(self._cards[index].pins.intx)
            for door in self._doors:
                if door.function.host is host:
                    door.intx_changed()

    # The loop -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until the command has gone."""
        while not self._control.lines.gone:
            if self._asked:
                await self._answer()
            quiet = self._quiet()
            if self._pace.look(quiet):
                await NullTrigger()
                self._exchange(0)
            elif not quiet or any(door.busy for door in self._doors):
                await Timer(SLICE_NS, "ns")
                self._exchange(0)
            elif self._testbench.timers_run:
                await self._follow_wall_clock()
            else:
                self._since = None
                self._exchange(None)
            await NullTrigger()  # who got a message takes it up

    def _quiet(self) -> bool:
        """Whether no card has anything to do, and its firmware has found nothing either."""
        now = self._now()
        idle = self._idle(now)
        seen = (
            self._stirred,
            *(card.activity for card in self._cards),
        )
        if any(card.looks for card in self._cards):
            return False
        if not idle:
            if seen != self._seen and now - self._looked_ns >= FIRMWARE_POLL_NS:
                self._look(now)
            return False
        if seen != self._seen:
            self._seen = seen
            self._look(now)
            return False
        return True

    def _idle(self, now: int) -> bool:
        """Whether no card has anything to do.

        The clock knows it, but not of cards in which something changes all the time, as with
        ``trace_frames``. These are idle when nothing has crossed host and wire for a while.
        """
        if native.library().clock_idle():
            return True
        activity = (self._stirred, *(card.activity for card in self._cards))
        asked = sum(door.asked for door in self._doors)
        if activity != self._activity or sum(card.under_way for card in self._cards) > asked:
            self._activity, self._active_ns = activity, now
        return now - self._active_ns >= QUIET_NS

    def _look(self, now: int) -> None:
        self._looked_ns = now
        for card in self._cards:
            card.look()

    async def _follow_wall_clock(self) -> None:
        """Simulate what has passed of the wall clock since nothing else was to do, never more."""
        now = self._now()
        # Asking for the timers wakes the cards for a moment: that is no reason to begin anew.
        if self._since is None or self._seen != self._followed:
            self._since, self._followed = (time.monotonic(), now), self._seen
        wall, simulated = self._since
        behind = int(1e9 * (time.monotonic() - wall)) - (now - simulated)
        if behind < 1e9 * NAP_S:
            self._exchange(NAP_S)
        else:
            wires = (wire.arrival() for wire in self._testbench.wires)
            await First(Timer(min(behind, STRIDE_NS), "ns"), *wires)
            self._exchange(0)

    def _exchange(self, patience: float | None) -> None:
        """Pass on what there is in every direction; waits for something, ``patience`` s at most."""
        poll = select.poll()
        self._control.lines.register(poll, reading=True)
        due = patience
        for door in self._doors:
            door.register(poll)
        if self._network is not None:
            soon = self._network.register(poll)
            if soon is not None:
                due = soon if due is None else min(due, soon)
        found = dict(poll.poll(None if due is None else max(0, 1000 * due)))
        self._control.lines.service(found.get(self._control.lines.fileno(), 0))
        while (line := self._control.lines.next()) is not None:
            self._asked.append(line)
        for door in self._doors:
            door.service(found)
        if self._network is not None:
            self._network.service()

    async def _answer(self) -> None:
        """Tell the command what it has asked for."""
        asked, self._asked = self._asked, []
        for what in asked:
            if what == STALL:
                self._control.say(stall_report(self._testbench))
            for index, card in enumerate(self._cards):
                self._control.say(f"card {index}: {await card.counted()}")
            self._control.say(f"{self._now()} ns of simulated time so far")

    def close(self) -> None:
        """Serve nobody any more."""
        for door in self._doors:
            door.close()
        self._control.say(f"{self._now()} ns of simulated time")


@cocotb.test()
async def card(dut: Any) -> None:
    """Serve clients until the command ends."""
    control = Control()
    serving = Serving(control)
    if pcap := control.spec["pcap"]:
        Wire.capture(pcap)
    await serving.start(dut)
    await serving.run()
    serving.close()
    Wire.end_capture()
    control.close()
