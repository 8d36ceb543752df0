"""Latency inside the simulation: one message at a time, seen in the cycle in which it is visible.

WRITE: each side waits for the last byte of the other's message in its memory, and answers. SEND:
each waits for the completion of its receive. Both give half a round trip. All others: until their
completion. The clock starts when the request is posted, before its doorbell goes out.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

from cocotb.triggers import Timer

from hdl.abi.enums import WrOpcode
from hdl.abi.virtio_rdma import PAGE_SIZE
from sim.bench.system import VISIBLE_NS
from sim.measure.flow import OPEN, Flow, good
from sim.measure.perf.bandwidth import Gate, Window
from sim.measure.perf.traffic import Ends, filled

__all__ = ["latency"]


class _Pair:
    """A flow in each direction of one QP, or one that fetches; and what has completed."""

    def __init__(self, ends: Ends, flows: list[Flow]):
        self.ends, self.flows = ends, flows
        self.stages: list[list[float]] = []  # of each message: see ``_stage_times``
        self.size = flows[0].shape.size
        for flow, side in zip(flows, reversed(ends.sides), strict=False):
            if flow.traffic.opcode == WrOpcode.RDMA_WRITE:
                for i in range(flow.shape.slots):
                    # The last byte's own page: pages are anywhere.
                    buffer, last = flow.sink.buffer, flow.place(i) + flow.shape.size - 1
                    page, offset = divmod(buffer.offset + last, PAGE_SIZE)
                    addr = int(buffer.pages[page]) + offset
                    side.look_at(addr, 1)

    def now(self) -> int:
        """Simulated time in ns."""
        return self.ends.sides[0].node.host.now()

    async def poll(self, number: int) -> None:
        """Take what is in the CQ of one side."""
        for cq in self.ends.sides[number].cqs:
            for _, sequence, taker in good(await cq.poll(cq.cqe), self.size + self.ends.plan.area):
                if taker is not None:
                    self.flows[1 - number].take_back(sequence)
                    self.flows[1 - number].received = sequence + 1
                else:
                    self.flows[number].completed = sequence + 1

    def _arrived(self, flow: Flow, sequence: int) -> bool:
        if flow.traffic.sends:
            return flow.received > sequence
        if self.ends.plan.kind.told:
            return flow.completed > sequence
        last = flow.place(sequence) + self.size - 1
        return bool(flow.sink.read(1, last)[0] == flow.data[last])

    async def there(self, flow: Flow, number: int, sequence: int) -> None:
        """Wait on side ``number`` until a message is there, then compare it."""
        side = self.ends.sides[number]
        while True:
            side.wake.clear()
            await self.poll(number)
            if self._arrived(flow, sequence):
                break
            await self.ends.sleep(side)
        if flow.traffic.shows or not self.ends.plan.kind.told:
            flow.check(sequence)  # else before its place is used again

    async def once(self, sequence: int) -> float:
        """One message, or two and half their time; ns."""
        begun = self.now()
        for number, flow in enumerate(self.flows):
            posted = self.now()
            await flow.post(1)
            await self.there(flow, number if self.ends.plan.kind.told else 1 - number, sequence)
            self.stages.append(self._stage_times(number, posted))
        took = (self.now() - begun) / len(self.flows)
        for flow in self.flows:
            if flow.traffic.sends and flow.given < flow.quota:
                await flow.give(1)
        return took

    def _stage_times(self, number: int, posted: float) -> list[float]:
        """Sender, when the doorbell reached its card, and when the message left the other's; ns.

        The message is visible in memory a while after the card wrote it."""
        sender, receiver = (self.ends.sides[n].node.host.settings for n in (number, 1 - number))
        return [
            number,
            posted + sender.mmio_latency_ps / 1000,
            self.now() - receiver.write_delay_ps / 1000,
        ]

    async def settle(self) -> None:
        """Wait for the completions of all requests."""
        for number, flow in enumerate(self.flows):
            side = self.ends.sides[number]
            while flow.completed < flow.quota:
                side.wake.clear()
                await self.poll(number)
                if flow.completed < flow.quota:
                    await self.ends.sleep(side)


async def latency(
    ends: Ends, size: int, pcap: Path | None, gate: Gate | None = None
) -> dict[str, Any]:
    """Messages of one size, one after the other; AssertionError as with ``bandwidth``."""
    plan, shape = ends.plan, ends.plan.shape(size)
    window = Window(ends, pcap, gate)
    last = shape.warm + shape.timed - 1
    quota = last + 1 if window.gate.alone else OPEN
    with filled(ends, size) as data:
        sides = (0,) if plan.kind.told else (0, 1)
        sources = (1,) if plan.fetches else sides
        flows = [
            ends.flow(shape, 0, side, data[source], quota)
            for side, source in zip(sides, sources, strict=True)
        ]
        pair = _Pair(ends, flows)
        for flow in flows:
            if plan.verb == "send":
                await flow.give(min(shape.slots, quota))
        for sequence in count():
            if sequence == shape.warm:
                window.begin()
                pair.stages.clear()
            took = await pair.once(sequence)
            if window.open:
                window.samples.append(took)
            if sequence == last:
                window.end(shape.timed * len(flows))
            if not window.gate.left:
                break
        for flow in flows:
            flow.quota = flow.posted
        await pair.settle()
        await Timer(VISIBLE_NS, "ns")
        for flow in flows:
            for sequence in range(flow.checked, flow.quota):
                flow.check(sequence)
    verified = sum(flow.verified for flow in flows)
    stages = pair.stages if plan.verb == "write" and not plan.impair else []
    delay = ends.system.testbench.wires[0].settings.delay_ps / 1000
    facts = {"size": size, "bytes_verified": verified, "stages": stages, "line_delay_ns": delay}
    return window.result | facts
