"""Bandwidth inside the simulation: as many requests outstanding as the plan says, all the time.

The timed part begins when as many messages have completed as the warm-up has, and ends when as many
more have as are to be timed; all QPs go on until then. What is captured is the timed part alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cocotb.triggers import Timer, gather

from sim.bench.system import VISIBLE_NS
from sim.guest.driver.platform import Octets
from sim.measure.flow import OPEN, Flow, Shape, good
from sim.measure.perf.busy import Busy
from sim.measure.perf.traffic import Ends, filled
from sim.measure.side import Side
from sim.models.platform import Wire

__all__ = ["Gate", "Window", "bandwidth"]

#: After the last completion: ``ON_THE_WAY`` bytes at the rate of the narrowest card, 16 Gb/s, are
#: in memory by then. What was answered usually is much sooner, but an answer promises only that the
#: card has the bytes: they wait on it while others use what its host takes.
ARRIVED_NS = 20_000


class Gate:
    """The flows of a run whose timed part is still to end: all go on until none is left."""

    def __init__(self, flows: int = 1):
        self.left = flows
        self.alone = flows == 1
        self._stops: list[Callable[[], None]] = []

    def on_end(self, stop: Callable[[], None]) -> None:
        """Call ``stop`` when the last timed part has ended."""
        self._stops.append(stop)

    def arrive(self) -> None:
        """One timed part has ended."""
        self.left -= 1
        if not self.left:
            for stop in self._stops:
                stop()


class Window:
    """The timed part: capture, counters of the hosts, samples of latency in ns.

    pcap: of the timed part alone; None when the run has a capture of its own.
    """

    def __init__(self, ends: Ends, pcap: Path | None, gate: Gate | None = None):
        self.gate = gate or Gate()
        self._hosts = [side.node.host for side in ends.sides]
        self._system = ends.system
        self._wires = ends.system.testbench.wires
        self._pcap = pcap
        self._busy = Busy(self._system.testbench) if ends.plan.busy else None
        self._before: dict[str, float] = {}
        self.open = self.over = False
        self.samples: list[float] = []
        self.result: dict[str, Any] = {}

    def begin(self) -> None:
        """From here on it counts."""
        if self._pcap is not None:
            Wire.capture(str(self._pcap))
        self._before = self._now()
        if self._busy is not None:
            self._busy.begin()
        self.open = True

    def end(self, messages: int) -> None:
        """``messages`` have completed since ``begin``."""
        if self._pcap is not None:
            Wire.end_capture()
        self.open, self.over = False, True
        self.result = {name: value - self._before[name] for name, value in self._now().items()}
        self.result |= {"messages": messages, "samples": self.samples, "pcap": str(self._pcap)}
        if self._busy is not None:
            self.result["busy"] = self._busy.end()
        self.gate.arrive()

    def _now(self) -> dict[str, float]:
        return {
            "host_reads": sum(host.stats.reads for host in self._hosts),
            "host_writes": sum(host.stats.writes for host in self._hosts),
            "cycles": self._hosts[0].stats.cycles,
            "ns": self._hosts[0].now(),
            "frames": sum(wire.outward.frames for wire in self._wires),
            "gone": sum(wire.outward.gone for wire in self._wires),
            "skipped": self._system.testbench.clock.skipped,
            "seconds": time.monotonic(),
        }


class _Run:
    """All flows of one size."""

    def __init__(self, ends: Ends, shape: Shape, flows: list[list[Flow]], window: Window):
        self.ends, self.shape, self.flows, self.window = ends, shape, flows, window
        self.posted_at: dict[tuple[int, int, int], int] = {}
        both = [flow for side in flows for flow in side]
        self.warm = shape.warm * len(both)
        self.timed = shape.timed * sum(bool(side) for side in flows)
        self.completed = self._opened_at = 0
        window.gate.on_end(self._stop)
        if not self.warm:
            window.begin()
        self._of = {(1 - flow.requester, qp): flow for flow in both for qp in flow.takers}

    @property
    def _brings(self) -> tuple[int, int]:
        """Bytes of a receive, and of the segment that it takes if it takes one."""
        plan = self.ends.plan
        return self.shape.size + plan.area, self.shape.stride if plan.mp_wr else 0

    async def serve(self, number: int) -> None:
        """Everything the processor of one side does."""
        ends, side = self.ends, self.ends.sides[number]
        mine, theirs = self.flows[number], self.flows[1 - number]
        if ends.plan.verb == "send":
            for flow in theirs:
                await flow.give(min(self.shape.slots, flow.quota))
            await Timer(VISIBLE_NS, "ns")  # the peer's receives must be there before messages
        for flow in mine:
            await self._fill(number, flow)
        while not self._done(mine, theirs):
            side.wake.clear()
            if not await self._poll(number, side):
                await ends.sleep(side)

    def _done(self, mine: list[Flow], theirs: list[Flow]) -> bool:
        received = self.ends.plan.verb != "send" or all(f.received == f.quota for f in theirs)
        return received and all(flow.completed == flow.quota for flow in mine)

    async def _poll(self, number: int, side: Side) -> int:
        count, touched, taken = 0, set(), set()
        for cq in side.cqs:
            found = await cq.poll(cq.cqe)
            count += len(found)
            for index, sequence, taker in good(found, *self._brings):
                if taker is not None:
                    self._receive(number, self.flows[1 - number][index], sequence, taker)
                    taken.add(index)
                else:
                    self._complete(number, self.flows[number][index], sequence)
                    touched.add(index)
        for index in sorted(taken):
            await self._give(self.flows[1 - number][index])
        if not self.ends.plan.answered:  # they wait for receives too
            for index in sorted(taken):
                await self._fill(1 - number, self.flows[1 - number][index])
        for index in sorted(touched):
            await self._fill(number, self.flows[number][index])
        return count

    def _receive(self, number: int, giver: Flow, receive: int, taker: int) -> None:
        """The QP ``taker`` has received its next message into what ``giver`` had posted."""
        landed, flow = giver.take_back(receive), self._of[number, taker]
        flow.received += 1
        if self.ends.plan.use_srq:
            flow.check(flow.checked, landed)
        else:
            flow.check(receive, landed)

    def _complete(self, number: int, flow: Flow, sequence: int) -> None:
        """A completion stands for all requests before it as well."""
        self.completed += sequence + 1 - flow.completed
        flow.completed = sequence + 1
        flow.show()
        window = self.window
        begun = self.posted_at.pop((number, flow.number, sequence))
        if window.open:
            window.samples.append(self.ends.sides[number].node.host.now() - begun)
        if not window.open and not window.over and self.completed >= self.warm:
            self._opened_at = self.completed
            window.begin()
        elif window.open and self.completed >= self._opened_at + self.timed:
            window.end(self.completed - self._opened_at)

    def _stop(self) -> None:
        for flow in self.flows[0] + self.flows[1]:
            flow.stop()
        for side in self.ends.sides:
            side.wake.set()  # it may have nothing left to wait for

    async def _give(self, flow: Flow) -> None:
        while (count := min(self.shape.batch, flow.quota - flow.given)) > 0:
            if not flow.has_room(count):
                break
            await flow.give(count)

    async def _fill(self, number: int, flow: Flow) -> None:
        while count := flow.due:
            now = self.ends.sides[number].node.host.now()
            for sequence in range(flow.posted, flow.posted + count):
                if flow.signalled(sequence):
                    self.posted_at[number, flow.number, sequence] = now
            await flow.post(count)


def _each_once(flows: list[Flow], data: Octets) -> None:
    """Of all atomics that have counted one word up, each has found another number."""
    turns = sorted(turn for flow in flows for turn in flow.turns)
    begin = int(data[:8].view("<u8")[0])
    expected = sorted((begin + n) % (1 << 64) for n in range(len(turns)))
    if turns != expected:
        raise AssertionError(f"{len(turns)} atomics on one word: a number was found twice")


async def _arrived(flows: list[Flow], answered: bool) -> None:
    """Wait until all that is on its way is in memory, or should be."""
    if not answered:
        await Timer(ARRIVED_NS, "ns")
        return
    for _ in range(ARRIVED_NS // VISIBLE_NS):
        await Timer(VISIBLE_NS, "ns")
        if all(flow.arrived for flow in flows):
            return


async def bandwidth(
    ends: Ends, size: int, pcap: Path | None, gate: Gate | None = None
) -> dict[str, Any]:
    """Run all messages of one size, until the timed parts of all flows behind ``gate`` have ended;
    AssertionError for a stall, an error or a wrong byte."""
    plan, shape = ends.plan, ends.plan.shape(size)
    window = Window(ends, pcap, gate)
    with filled(ends, size) as data:
        flows = []
        for requester in (0, 1):
            source = 1 - requester if plan.fetches else requester
            active = range(plan.qps if requester == 0 or plan.bidirectional else 0)
            flows.append([ends.flow(shape, i, requester, data[source], OPEN) for i in active])
        run = _Run(ends, shape, flows, window)
        await gather(*(run.serve(number) for number in (0, 1)))
        await _arrived(flows[0] + flows[1], plan.answered)
        verified = 0
        for flow in flows[0] + flows[1]:
            for sequence in range(flow.checked, flow.quota):
                flow.check(sequence)
            verified += flow.verified
        if plan.one_word:
            _each_once(flows[0], data[1])
    # Who sends the data of the QPs that miss, and to which QP.
    missing = [
        (1 - flow.requester, flow.qp.qp_num) if plan.fetches else (flow.requester, flow.peer.qp_num)
        for flow in flows[0] + flows[1]
        if flow.number < plan.miss_qps
    ]
    return window.result | {"size": size, "bytes_verified": verified, "missing": missing}
