"""Plays one machine of a capture on one card, inside a simulation.

The peers' packets go in byte for byte, each after everything that the card's machine had sent
before it in the capture, on any connection, has been sent by the card: so whatever the recorded
machine had done by then, the card has done too. Work requests are posted when their first packet
is due. Hints give the card the recorded QPN, keys and addresses.
"""

from __future__ import annotations

import struct
from functools import partial

from hdl.abi.enums import Access, Mtu, QpType, SendFlags, WcOpcode, WcStatus
from hdl.abi.operations import WORK_REQUESTS
from sim.bench.stall import node_report, stall_report
from sim.bench.system import Node
from sim.bench.testbench import Testbench
from sim.guest.driver.errors import DeviceError, DriverTimeout, RdmaError
from sim.guest.verbs import (
    CQ,
    PD,
    QP,
    WC,
    AHAttr,
    GlobalRoute,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
)
from sim.tools.replay.capture import Packet
from sim.tools.replay.compare import Difference, Report
from sim.tools.replay.facts import Facts
from sim.tools.replay.lane import Lane
from sim.tools.replay.memory import MachineMemory
from sim.tools.replay.messages import Message
from sim.tools.replay.plan import Place, Run
from sim.wire.packets import dissect

__all__ = ["memory_of", "play"]

#: Simulated time the card has for each packet, ns.
PATIENCE_NS = 200_000
#: Simulated time for the last completions, ns.
COMPLETION_NS = 300_000
#: Simulated time without a packet after the last one, to see that nothing else comes.
QUIET_NS = 20_000
#: Work requests of one queue at a time; packets between two looks at the CQs.
QUEUE, LOOK = 512, 64
#: wr_id of receives begin here.
RECEIVE = 1 << 32


def memory_of(run: Run, facts: Facts) -> int:
    """Bytes of host memory for a run: twice its data, in whole MiB, and 64 MiB for the rest."""
    stated = sum(one.length for one in facts.regions)
    return 64 + 2 * (run.octets() + stated >> 20) + 2 << 20


class _Completions:
    """What the completion queues say, against what the capture shows."""

    def __init__(self, cqs: list[CQ], report: Report):
        self._cqs, self._report = cqs, report
        self._wanted: dict[tuple[int, int], Message] = {}
        self.count = 0

    def expect(self, qpn: int, wr_id: int, message: Message) -> None:
        """A work request whose completion must come."""
        self._wanted[qpn, wr_id] = message

    async def look(self) -> None:
        """Take what is there."""
        for cq in self._cqs:
            while found := await cq.poll(cq.cqe):
                for wc in found:
                    self._check(wc)

    async def wait(self) -> None:
        """Take the rest."""
        for cq in self._cqs:
            await self.look()
            while self._wanted:
                try:
                    self._check(*await cq.wait(1, timeout_ns=COMPLETION_NS))
                except DriverTimeout:
                    break
        for (qpn, wr_id), message in self._wanted.items():
            packet = message.packets[0].number
            self._differs(packet, f"completion {wr_id:#x} of QP {qpn:#x}", "SUCCESS", None)

    def _check(self, wc: WC) -> None:
        message = self._wanted.pop((wc.qp_num, wc.wr_id), None)
        what = f"completion {wc.wr_id:#x} of QP {wc.qp_num:#x}"
        if message is None:
            self._differs(0, what, None, wc.status.name)
            return
        self.count += 1
        number = message.packets[0].number
        if wc.status != WcStatus.SUCCESS:
            self._differs(number, what, "SUCCESS", wc.status.name)
            return
        wanted: dict[str, int] = {"opcode": WORK_REQUESTS[message.opcode].completion}
        if wc.wr_id >= RECEIVE:
            imm = WORK_REQUESTS[message.opcode].immediate
            wanted = {"opcode": WcOpcode.RECV, "byte_len": message.length}
            if message.writes:
                wanted["opcode"] = WcOpcode.RECV_RDMA_WITH_IMM
            if imm:
                wanted["imm_data"] = int.from_bytes(message.imm, "big")
        elif message.read:
            wanted["byte_len"] = message.length
        for name, value in wanted.items():
            if getattr(wc, name) != value:
                self._differs(number, f"{name} of {what}", value, getattr(wc, name))

    def _differs(self, packet: int, what: str, recorded: object, sent: object) -> None:
        self._report.differences.append(Difference(packet, what, recorded, sent))


class _Player:
    """State of one replay."""

    def __init__(self, testbench: Testbench, name: str, run: Run, facts: Facts):
        self.testbench, self.run = testbench, run
        first = run.places[0].end
        addresses = dict.fromkeys((one.end.gid, one.end.vlan) for one in run.places)
        self.gids = list(addresses)
        machine = ", ".join(dict.fromkeys(one.end.address for one in run.places))
        self.report = Report(name, run.letter, machine)
        self.report.connections = [one.connection.number for one in run.places]
        self.wire = testbench.wires[0]
        self.node = Node(testbench, 0, address=first.address, mac=first.mac, vlan=first.vlan)
        # The answer to a register read comes behind all that the card has written before.
        flush = partial(testbench.management[0].read, 0)
        self.memory = MachineMemory(run, facts.regions, flush)
        self.lanes = [Lane(place, self.report, self.memory.landed) for place in run.places]
        self.by_flow = {
            (one.peer.gid, one.end.gid, one.peer.qpn): lane
            for one, lane in zip(run.places, self.lanes, strict=True)
        }
        self.completions: _Completions
        #: First packet of a message -> the message, and the lane that it is on.
        self.begins: dict[int, tuple[Lane, Message, int]] = {}
        self.receives: dict[int, list[Message]] = {}
        self.posted: dict[int, int] = {}
        self.latest = 0

    # Setting up ---------------------------------------------------------------------------------

    async def set_up(self) -> None:
        """Driver up, QPs connected, memory as it was before the first packet."""
        await self.node.start()
        self.node.host.set(mmio_latency_ns=0)
        for index, (gid, vlan) in enumerate(self.gids[1:], 1):
            await self.node.add_address(index, gid, vlan)
        pd = await self.node.context.alloc_pd()
        await self.memory.set_up(pd, self.node.function.hints)
        config = self.testbench.config
        cqs = []
        for number in range(min(len(self.lanes), config.cqs)):
            wanted = sum(self._wanted(lane.place) for lane in self.lanes[number :: config.cqs])
            cqs.append(await CQ.create(self.node.context, min(config.queue_size, wanted + 16)))
        self.completions = _Completions(cqs, self.report)
        for number, lane in enumerate(self.lanes):
            await self._connect(lane, pd, cqs[number % len(cqs)])
        self.node.stop_firmware()

    def _wanted(self, place: Place) -> int:
        return len(place.end.messages) + sum(m.takes_receive for m in place.peer.messages)

    async def _connect(self, lane: Lane, pd: PD, cq: CQ) -> None:
        place, hints = lane.place, self.node.function.hints
        end, peer = place.end, place.peer
        takes = [m for m in peer.messages if m.takes_receive]
        hints.qpn(end.qpn)
        hints.start(qp_rx={"msn": end.first_msn})
        cap = QPCap(
            max_send_wr=min(QUEUE, max(1, len(end.messages))),
            max_recv_wr=min(QUEUE, max(1, len(takes))),
            max_send_sge=1,
            max_recv_sge=1,
        )
        lane.qp = await QP.create(pd, QPInitAttr(QpType.RC, cq, cq, cap, 1))
        route = GlobalRoute(
            dgid=peer.gid,
            sgid_index=self.gids.index((end.gid, end.vlan)),
            traffic_class=end.traffic_class,
            flow_label=end.flow_label,
            hop_limit=end.hop_limit,
        )
        await lane.qp.to_rts(
            QPAttr(
                path_mtu=next(mtu for mtu in Mtu if mtu.octets == place.connection.mtu),
                dest_qp_num=peer.qpn,
                sq_psn=end.first_psn,
                rq_psn=peer.first_psn,
                max_rd_atomic=self.testbench.config.max_rd_atomic,
                max_dest_rd_atomic=place.resources(),
                qp_access_flags=Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE,
                ah_attr=AHAttr(gr=route, sl=end.priority, roce_dmac=end.next_hop),
            )
        )
        self.receives[lane.qp.qp_num] = takes
        self.posted[lane.qp.qp_num] = 0
        await self._post_receives(lane, 0)
        for number, message in enumerate(end.messages):
            self.begins[message.packets[0].number] = (lane, message, number)
            if message.acknowledged:
                self.completions.expect(end.qpn, number, message)
        received = 0
        for message in peer.messages:
            self.begins[message.packets[0].number] = (lane, message, received)
            if message.takes_receive:
                if message.whole:
                    self.completions.expect(end.qpn, RECEIVE + received, message)
                received += 1

    async def _post_receives(self, lane: Lane, consumed: int) -> None:
        """Keep half a queue of receives ahead of the messages that take them."""
        takes, posted = self.receives[lane.qp.qp_num], self.posted[lane.qp.qp_num]
        for number in range(posted, min(len(takes), consumed + QUEUE // 2)):
            message = takes[number]
            size = 0 if message.writes else self.memory.room(message)
            await lane.qp.post_recv(RecvWR(RECEIVE + number, self.memory.sge(message, size)))
            self.posted[lane.qp.qp_num] = number + 1

    # The capture --------------------------------------------------------------------------------

    async def walk(self) -> None:
        """Walk the capture."""
        packets = [
            (packet, lane) for lane in self.lanes for packet in lane.place.connection.packets
        ]
        packets.sort(key=lambda one: one[0].number)
        for count, (packet, lane) in enumerate(packets):
            if self.report.error:
                break
            if packet.side == lane.place.side:
                await self._own(packet, lane)
            else:
                await self._feed(packet, lane)
            if count % LOOK == 0:
                await self.completions.look()
        await self._settle()
        if self.report.error:
            self.report.stall = await self._stalled()
            return
        await self._quiet()
        for lane in self.lanes:
            lane.finish()
        await self.completions.wait()
        self._own_reads()
        self.report.memory = self.memory.verify() | {"completions": self.completions.count}
        self.report.differences += self.memory.differences

    async def _own(self, packet: Packet, lane: Lane) -> None:
        lane.reach(packet)
        if packet.number in self.begins:
            _, message, number = self.begins[packet.number]
            await lane.qp.post_send(self._request(message, number))

    async def _feed(self, packet: Packet, lane: Lane) -> None:
        await self._settle()
        if self.report.error:
            return
        message = None
        if packet.number in self.begins:
            _, message, received = self.begins[packet.number]
            await self.memory.fed(message)
            if message.takes_receive:
                await self._post_receives(lane, received)
        lane.feed(packet, message)
        self.wire.inject(packet.frame)
        self.report.fed += 1

    def _request(self, message: Message, number: int) -> SendWR:
        flags = SendFlags.SIGNALED
        if message.solicited:
            flags |= SendFlags.SOLICITED
        sges = self.memory.sge(message, message.length)
        request = SendWR(number, message.opcode, sges, flags)
        request.imm_data = int.from_bytes(message.imm, "big")
        if message.read or message.writes:
            request.set_wr_rdma(message.rkey, message.va)
        return request

    async def _settle(self) -> None:
        """Wait until the card has sent all that its machine had sent by now."""
        while not self.report.error:
            missing = next(filter(None, (lane.behind() for lane in self.lanes)), None)
            if missing is None:
                return
            try:
                frame, _ = await self.wire.receive(PATIENCE_NS)
            except TimeoutError:
                self.report.error = (
                    f"no packet from the card within {PATIENCE_NS // 1000} us, missing is packet "
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
        parts = dissect(frame)
        key = (parts.path["dst_gid"], parts.fields["src_gid"], parts.fields["dest_qp"])
        lane = self.by_flow.get(key)
        if lane is None:
            what = f"packet to QP {parts.fields['dest_qp']:#x} of nobody"
            self.report.differences.append(Difference(0, what, None, "one"))
            return
        self.latest = max(self.latest, lane.take(frame, self.latest))

    async def _quiet(self) -> None:
        """Whatever else comes is taken too."""
        while True:
            try:
                frame, _ = await self.wire.receive(QUIET_NS)
            except TimeoutError:
                return
            self._take(frame)

    def _own_reads(self) -> None:
        for place in self.run.places:
            for message in place.end.messages:
                if message.read:
                    self.memory.read_done(message)

    async def _stalled(self) -> str:
        """Where everything stands."""
        return f"{stall_report(self.testbench)}\n{await node_report(self.node)}"


async def play(testbench: Testbench, name: str, run: Run, facts: Facts) -> Report:
    """Play ``run`` of the capture ``name`` on a card that has just been reset."""
    player = _Player(testbench, name, run, facts)
    try:
        await player.set_up()
        await player.walk()
    except (RdmaError, DeviceError) as error:
        player.report.error = player.report.error or f"{type(error).__name__}: {error}"
    return player.report
