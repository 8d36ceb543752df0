"""One node of a measurement inside the simulation: its objects, and waiting for its card.

The driver's processor is infinitely fast: posting and polling take no simulated time, and a
completion is seen in the cycle in which it becomes visible in memory. Register writes take the
host's MMIO latency and are posted, as everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from cocotb.triggers import Event, SimTimeoutError, with_timeout

from hdl.abi.virtio_pci import RING_HEADER
from sim.bench.system import Node, System
from sim.guest.verbs import AH, CQ, MR, SRQ

__all__ = ["Side"]


@dataclass
class Side:
    """One node's objects. ``wake`` is set whenever the card has written to what is looked at."""

    node: Node
    cqs: list[CQ]
    source: MR
    sink: MR
    wake: Event
    srq: SRQ | None
    peer: AH  # the way to the other node

    def look_at(self, addr: int, size: int) -> None:
        """From now on wake when the card has written there."""
        self.node.host.watch(addr, size, lambda _time: self.wake.set())

    def look_at_completions(self) -> None:
        """The same of all completion queues."""
        for cq in self.cqs:
            self.look_at(cq.queue.used + RING_HEADER.offset("idx"), 2)

    async def sleep(self, system: System, patience_us: float) -> None:
        """Until the card has written; AssertionError with where everything stands if it does not.

        Clear ``wake`` before the last look at what is awaited.
        """
        try:
            await with_timeout(self.wake.wait(), patience_us, "us")
        except SimTimeoutError:
            report = await system.report()
            raise AssertionError(
                f"Nothing has come to node {self.node.name} for {patience_us:g} us\n{report}"
            ) from None
