"""Plays one machine of a capture on one card, inside a simulation.

The peers' packets go in byte for byte, each after everything that the card's machine had sent
before it in the capture, on any connection, has been sent by the card: so whatever the recorded
machine had done by then, the card has done too. Those that were lost behind the capture do not go
in. Work requests are posted when their first packet is due.
"""

from __future__ import annotations

import struct

from hdl.wire.opcodes import Transport
from sim.bench.stall import node_report, stall_report
from sim.bench.testbench import Testbench
from sim.guest.driver.errors import DeviceError, RdmaError
from sim.models.platform import now_ns
from sim.replay.capture import Packet
from sim.replay.compare import Difference, Report
from sim.replay.facts import Facts
from sim.replay.machine import AnyLane, Machine
from sim.replay.plan import Place, Run
from sim.wire.packets import dissect

__all__ = ["memory_of", "play"]

#: Simulated time without a packet after the last one, to see that nothing else comes.
QUIET_NS = 20_000
#: Bytes that may be on their way to a card that does not answer.
AHEAD = 8 << 10
#: Simulated time between two looks at them.
DRAIN_NS = 1_000
#: Packets between two looks at the CQs.
LOOK = 64


def memory_of(run: Run, facts: Facts) -> int:
    """Bytes of host memory for a run: twice its data, in whole MiB, and 64 MiB for the rest."""
    stated = sum(one.length for one in facts.regions)
    return 64 + 2 * (run.octets() + stated >> 20) + 2 << 20


def _flow(place: Place) -> tuple[bytes, bytes, int]:
    """What tells the packets of a QP from others: where they go to, of a datagram the QP itself."""
    if place.service is Transport.UD:
        return b"", place.end.gid, place.end.qpn
    return place.peer.gid, place.end.gid, place.peer.qpn


class _Player:
    """State of one replay."""

    def __init__(self, testbench: Testbench, name: str, run: Run, facts: Facts):
        self.testbench = testbench
        machine = ", ".join(dict.fromkeys(one.end.address for one in run.places))
        self.report = Report(name, run.letter, machine)
        self.report.connections = [one.connection.number for one in run.places]
        self.wire = testbench.wires[0]
        self.machine = Machine(testbench, run, facts, self.report)
        self.lanes = self.machine.lanes
        self.by_flow = {_flow(lane.place): lane for lane in self.lanes}
        self.latest = 0

    # The capture --------------------------------------------------------------------------------

    async def walk(self) -> None:
        """Walk the capture."""
        packets = [(packet, lane) for lane in self.lanes for packet in lane.place.packets]
        packets.sort(key=lambda one: one[0].number)
        for count, (packet, lane) in enumerate(packets):
            if self.report.error:
                break
            if packet.side == lane.place.side:
                await self._own(packet, lane)
            elif packet.number not in lane.place.connection.lost:
                await self._feed(packet, lane)
            if count % LOOK == 0:
                if not lane.answered:  # nothing else keeps the card's queues from overflowing
                    await self._settle()
                await self.machine.completions.look()
        await self._settle()
        if self.report.error:
            self.report.stall = await self._stalled()
            return
        await self._quiet()
        await self.machine.completions.wait(self.machine.waits.longest_ns)
        await self._quiet()
        for lane in self.lanes:
            lane.finish()
        self.machine.own_reads()
        memory = self.machine.memory
        self.report.memory = memory.verify() | {"completions": self.machine.completions.count}
        self.report.differences += memory.differences

    async def _own(self, packet: Packet, lane: AnyLane) -> None:
        """The capture has reached a packet of the card's machine."""
        connection = lane.place.connection
        for copy in connection.again.get(packet.number, ()):
            await self._feed(copy, lane)
        message = lane.reach(packet)
        if message is not None:
            await self.machine.post_sends(lane, message)
        for response in connection.late.get(packet.number, ()):
            await self._feed(response, lane)

    async def _feed(self, packet: Packet, lane: AnyLane) -> None:
        """A packet of the peer goes to the card."""
        await self._settle()
        if self.report.error:
            return
        await self.machine.post_receives(lane)
        message = lane.feed(packet, now_ns())
        if message is not None:
            await self.machine.memory.fed(message)
        self.wire.inject(packet.frame)
        self.report.fed += 1
        if not lane.answered:
            await self._drain(AHEAD)

    async def _settle(self) -> None:
        """Wait until the card has sent all that its machine had sent by now."""
        while not self.report.error:
            missing = next(filter(None, (lane.behind() for lane in self.lanes)), None)
            if missing is None:
                return
            patience = self.machine.waits.longest_ns
            try:
                frame, _ = await self.wire.receive(patience)
            except TimeoutError:
                self.report.error = (
                    f"no packet from the card within {patience // 1000} us, missing is packet "
                    f"{missing.number}: {missing.name}, PSN {missing.psn:#x}"
                )
                return
            self._take(frame)

    def _take(self, frame: bytes) -> None:
        """Compare a frame of the card with what its machine had sent."""
        try:
            self._compare(frame)
        except (ValueError, KeyError, IndexError, struct.error) as error:
            what = f"a frame that cannot be taken apart ({type(error).__name__})"
            self.report.differences.append(Difference(0, what, None, frame))

    def _compare(self, frame: bytes) -> None:
        fields, path = (parts := dissect(frame)).fields, parts.path
        key = (path["dst_gid"], fields["src_gid"], fields["dest_qp"])
        if "src_qp" in fields:
            key = (b"", fields["src_gid"], fields["src_qp"])
        lane = self.by_flow.get(key)
        if lane is None:
            what = f"packet to QP {fields['dest_qp']:#x} of nobody"
            self.report.differences.append(Difference(0, what, None, "one"))
            return
        self.latest = max(self.latest, lane.take(frame, self.latest, now_ns()))

    async def _drain(self, most: int) -> None:
        """Let at most so many bytes be on their way to the card."""
        while self.wire.under_way(to_card=True) > most:
            try:
                frame, _ = await self.wire.receive(DRAIN_NS)
            except TimeoutError:
                continue
            self._take(frame)

    async def _quiet(self) -> None:
        """Whatever else comes is taken too, once the card has all that is for it."""
        await self._drain(0)
        while True:
            try:
                frame, _ = await self.wire.receive(QUIET_NS)
            except TimeoutError:
                return
            self._take(frame)

    async def _stalled(self) -> str:
        """Where everything stands."""
        return f"{stall_report(self.testbench)}\n{await node_report(self.machine.node)}"


async def play(testbench: Testbench, name: str, run: Run, facts: Facts) -> Report:
    """Play ``run`` of the capture ``name`` on a card that has just been reset."""
    player = _Player(testbench, name, run, facts)
    try:
        await player.machine.set_up()
        await player.walk()
    except (RdmaError, DeviceError) as error:
        player.report.error = player.report.error or f"{type(error).__name__}: {error}"
    return player.report
