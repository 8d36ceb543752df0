"""The card as one machine of a capture: its addresses, QPs, memory and work requests.

Hints give the card the recorded QPN, keys and addresses.
"""

from __future__ import annotations

from functools import partial

from hdl.abi.enums import Mtu, QpType, SendFlags, WrOpcode
from sim.bench.system import Node
from sim.bench.testbench import Testbench
from sim.guest.verbs import (
    CQ,
    PD,
    QP,
    AHAttr,
    GlobalRoute,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
)
from sim.tools.replay.compare import Report
from sim.tools.replay.completions import RECEIVE, Completions
from sim.tools.replay.facts import Facts
from sim.tools.replay.lane import Lane
from sim.tools.replay.memory import MachineMemory
from sim.tools.replay.messages import Message
from sim.tools.replay.plan import Place, Run
from sim.tools.replay.waits import Waits

__all__ = ["Machine"]

#: Work requests of one queue at a time.
QUEUE = 512


class _Posted:
    """How far the work requests of a lane have been posted."""

    def __init__(self, place: Place):
        self.sends = 0
        self.receives = 0
        #: The peer's messages that take a receive, in their order.
        self.takes = [m for m in place.peer.messages if m.takes_receive and (m.kept or m.refused)]


class Machine:
    """One machine of a run on a card that has just been reset."""

    def __init__(self, testbench: Testbench, run: Run, facts: Facts, report: Report):
        self._testbench, self._run = testbench, run
        first = run.places[0].end
        addresses = dict.fromkeys((one.end.gid, one.end.vlan) for one in run.places)
        self._gids = list(addresses)
        self._report = report
        self.waits = Waits(run, testbench.config)
        self.node = Node(testbench, 0, address=first.address, mac=first.mac, vlan=first.vlan)
        # The answer to a register read comes behind all that the card has written before.
        flush = partial(testbench.management[0].read, 0)
        self.memory = MachineMemory(run, facts.regions, flush)
        self.lanes = [Lane(place, report, self.memory.landed, self.waits) for place in run.places]
        self._posted = {id(lane): _Posted(lane.place) for lane in self.lanes}
        self.completions: Completions

    # Setting up ---------------------------------------------------------------------------------

    async def set_up(self) -> None:
        """Driver up, QPs connected, memory as it was before the first packet."""
        await self.node.start()
        self.node.host.set(mmio_latency_ns=0)
        for index, (gid, vlan) in enumerate(self._gids[1:], 1):
            await self.node.add_address(index, gid, vlan)
        pd = await self.node.context.alloc_pd()
        await self.memory.set_up(pd, self.node.function.hints)
        config = self._testbench.config
        cqs = []
        for number in range(min(len(self.lanes), config.cqs)):
            wanted = sum(self._wanted(lane.place) for lane in self.lanes[number :: config.cqs])
            cqs.append(await CQ.create(self.node.context, min(config.queue_size, wanted + 16)))
        self.completions = Completions(cqs, self._report)
        for number, lane in enumerate(self.lanes):
            await self._connect(lane, pd, cqs[number % len(cqs)])
            await self.post_receives(lane)
        self.node.stop_firmware()
        await self.node.registers.set_timer_scale(self.waits.scale)

    def _wanted(self, place: Place) -> int:
        return len(place.end.messages) + sum(m.takes_receive for m in place.peer.messages)

    async def _connect(self, lane: Lane, pd: PD, cq: CQ) -> None:
        place, hints = lane.place, self.node.function.hints
        end, peer = place.end, place.peer
        hints.qpn(end.qpn)
        hints.start(qp_rx={"msn": end.first_msn})
        cap = QPCap(
            max_send_wr=min(QUEUE, max(1, len(end.messages))),
            max_recv_wr=min(QUEUE, max(1, len(self._posted[id(lane)].takes))),
            max_send_sge=1,
            max_recv_sge=1,
        )
        lane.qp = await QP.create(pd, QPInitAttr(QpType.RC, cq, cq, cap, 1))
        route = GlobalRoute(
            dgid=peer.gid,
            sgid_index=self._gids.index((end.gid, end.vlan)),
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
                max_rd_atomic=self._testbench.config.max_rd_atomic,
                max_dest_rd_atomic=place.resources(),
                qp_access_flags=place.access(),
                min_rnr_timer=end.rnr_timer,
                timeout=self.waits.timeout(place),
                retry_cnt=end.retry_cnt,
                rnr_retry=end.rnr_retry,
                ah_attr=AHAttr(gr=route, sl=end.priority, roce_dmac=end.next_hop),
            )
        )

    # Work requests ------------------------------------------------------------------------------

    async def post_receives(self, lane: Lane) -> None:
        """Keep half a queue of receives ahead of the messages that take them.

        There is none for a message as long as it must meet an RNR NAK.
        """
        posted, place = self._posted[id(lane)], lane.place
        ahead = lane.receives_taken + QUEUE // 2
        for number in range(posted.receives, min(len(posted.takes), ahead)):
            message = posted.takes[number]
            if lane.refused(message) < message.refusals:
                break
            size = 0 if message.writes else message.receive_size
            if not message.whole and not message.refused:
                size = self.memory.room(message)
            wr_id = RECEIVE + number
            self.completions.received(place.end.qpn, wr_id, message, place.broken())
            await lane.qp.post_recv(RecvWR(wr_id, self.memory.sge(message, size)))
            posted.receives = number + 1

    async def post_sends(self, lane: Lane, message: Message) -> None:
        """Post the work requests of a lane up to that of a message."""
        posted, place = self._posted[id(lane)], lane.place
        messages = place.end.messages
        while posted.sends < len(messages) and messages[posted.sends].psn <= message.psn:
            number, posted.sends = posted.sends, posted.sends + 1
            self.completions.sent(place.end.qpn, number, messages[number], place.broken())
            await lane.qp.post_send(self._request(messages[number], number))

    def _request(self, message: Message, number: int) -> SendWR:
        flags = SendFlags.SIGNALED
        if message.solicited:
            flags |= SendFlags.SOLICITED
        sges = self.memory.sge(message, message.length)
        request = SendWR(number, message.opcode, sges, flags)
        request.imm_data = int.from_bytes(message.imm, "big")
        if message.opcode == WrOpcode.ATOMIC_CMP_AND_SWP:
            operands = message.compare, message.swap_add
            request.set_wr_atomic(message.rkey, message.va, *operands)
        elif message.atomic:
            request.set_wr_atomic(message.rkey, message.va, message.swap_add)
        elif message.read or message.writes:
            request.set_wr_rdma(message.rkey, message.va)
        return request

    def own_reads(self) -> None:
        """What the READs of this machine have brought is in its memory."""
        for place in self._run.places:
            for message in place.end.messages:
                if message.read:
                    self.memory.read_done(message, place.connection.mtu)
