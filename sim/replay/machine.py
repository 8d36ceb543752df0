"""The card as one machine of a capture: its addresses, QPs, memory and work requests.

Hints give the card the recorded QPN, keys and addresses.
"""

from __future__ import annotations

import errno
from dataclasses import replace
from functools import partial

from hdl.abi.enums import Mtu, QpType, SendFlags, WcStatus, WrOpcode
from hdl.wire.opcodes import QP_TRANSPORT, Transport
from sim.bench.system import Node
from sim.bench.testbench import Testbench
from sim.guest.cm.gsi import GSI_QPN
from sim.guest.driver.errors import RdmaError
from sim.guest.verbs import (
    AH,
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
from sim.replay.capture import Packet
from sim.replay.compare import Report
from sim.replay.completions import COMPLETION_NS, RECEIVE, Completions
from sim.replay.exchange import CE
from sim.replay.facts import Facts
from sim.replay.lane import Lane
from sim.replay.memory import MachineMemory
from sim.replay.messages import Message
from sim.replay.plan import Place, Run
from sim.replay.unanswered_lane import UnansweredLane
from sim.replay.waits import Waits

__all__ = ["AnyLane", "Machine"]

#: The peer's QP when the card sends nothing to it, and so nobody knows its number.
_UNKNOWN_QPN = 2
#: ECN-capable transport: the low bits of a traffic class that no router has marked yet.
_ECN_CAPABLE = 2
#: Work requests of one queue at a time.
QUEUE = 512


#: A lane of a service with answers, or without.
AnyLane = Lane | UnansweredLane


def _type(place: Place) -> QpType:
    """What kind of QP the card has in the place of an end."""
    general = place.service is Transport.UD and place.end.qpn == GSI_QPN
    kinds = (kind for kind, service in QP_TRANSPORT.items() if service is place.service)
    return next(kind for kind in kinds if (kind is QpType.GSI) == general)


class _Posted:
    """How far the work requests of a lane have been posted."""

    def __init__(self, place: Place):
        self.sends = 0
        self.receives = 0
        #: The peers' messages that take a receive, in their order.
        self.takes = place.connection.receives(place.side)


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
        # Both machines may have one MAC address: what the card sends goes to the wire in any case.
        self.node.loopback = False
        # The answer to a register read comes behind all that the card has written before.
        flush = partial(testbench.management[0].read, 0)
        self.memory = MachineMemory(run, facts.regions, flush)
        self.lanes = [self._lane(place) for place in run.places]
        self._posted = {id(lane): _Posted(lane.place) for lane in self.lanes}
        self._pd: PD
        self.completions: Completions

    def _lane(self, place: Place) -> AnyLane:
        if place.service is Transport.RC:
            return Lane(place, self._report, self.memory.landed, self.waits)
        return UnansweredLane(place, self._report)

    # Setting up ---------------------------------------------------------------------------------

    async def set_up(self) -> None:
        """Driver up, QPs connected, memory as it was before the first packet."""
        await self.node.start()
        self.node.host.set(mmio_latency_ns=0)
        for index, (gid, vlan) in enumerate(self._gids[1:], 1):
            await self.node.add_address(index, gid, vlan)
        self._pd = await self.node.context.alloc_pd()
        await self.memory.set_up(self._pd, self.node.function.hints)
        config = self._testbench.config
        cqs = []
        for number in range(min(len(self.lanes), config.cqs)):
            wanted = sum(self._wanted(lane.place) for lane in self.lanes[number :: config.cqs])
            cqs.append(await CQ.create(self.node.context, min(config.queue_size, wanted + 16)))
        self.completions = Completions(cqs, self._report)
        numbered = sorted(enumerate(self.lanes), key=lambda one: not one[1].place.end.stated)
        for number, lane in numbered:  # a QP without a number of its own takes what is left
            cq = cqs[number % len(cqs)]
            await self._connect(lane, cq)
            if lane.place.service is Transport.RC:
                await self._register(lane, cq)
            await self.post_receives(lane)
        self.node.stop_firmware()
        await self.node.registers.set_timer_scale(self.waits.scale)

    def _wanted(self, place: Place) -> int:
        return len(place.end.messages) + sum(m.takes_receive for m in place.incoming)

    async def _connect(self, lane: AnyLane, cq: CQ) -> None:
        place, hints = lane.place, self.node.function.hints
        end = place.end
        if end.stated:
            hints.qpn(end.qpn)
        hints.start(qp_rx={"msn": end.first_msn})
        cap = QPCap(
            max_send_wr=min(QUEUE, max(1, len(end.messages))),
            max_recv_wr=min(QUEUE, max(1, len(self._posted[id(lane)].takes))),
            max_send_sge=1,
            max_recv_sge=1,
        )
        lane.qp = await QP.create(self._pd, QPInitAttr(_type(place), cq, cq, cap, 1))
        attr = QPAttr(sq_psn=end.first_psn, qkey=end.qkey)
        await lane.qp.to_rts(attr if place.service is Transport.UD else self._joined(place, attr))

    def _joined(self, place: Place, attr: QPAttr) -> QPAttr:
        """Attributes of a QP that has one peer."""
        end, peer = place.end, place.peer
        route = GlobalRoute(
            dgid=peer.gid,
            sgid_index=self._gid_index(place),
            traffic_class=end.traffic_class,
            flow_label=end.flow_label,
            hop_limit=end.hop_limit,
        )
        return replace(
            attr,
            path_mtu=next(mtu for mtu in Mtu if mtu.octets == place.connection.mtu),
            dest_qp_num=peer.qpn or _UNKNOWN_QPN,
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

    def _gid_index(self, place: Place) -> int:
        return self._gids.index((place.end.gid, place.end.vlan))

    async def _register(self, lane: AnyLane, cq: CQ) -> None:
        """Register the regions whose keys peers invalidate: that takes work requests, of any QP."""
        while self.memory.registrations:
            await lane.qp.post_send(self.memory.registrations.pop())
            (wc,) = await cq.wait(1, timeout_ns=COMPLETION_NS)
            if wc.status != WcStatus.SUCCESS:
                raise RdmaError(errno.EIO, f"A region cannot be registered: {wc.status.name}")

    # Work requests ------------------------------------------------------------------------------

    async def post_receives(self, lane: AnyLane) -> None:
        """Keep half a queue of receives ahead of the messages that take them.

        There is none for a message as long as it must meet an RNR NAK.
        """
        posted, place = self._posted[id(lane)], lane.place
        ahead = lane.receives_taken + QUEUE // 2
        for number in range(posted.receives, min(len(posted.takes), ahead)):
            message = posted.takes[number]
            if lane.refused(message) < message.refusals:
                break
            size = message.receive_size
            if not message.whole and not message.refused:
                size = self.memory.room(message)
            wr_id = RECEIVE + number
            self.completions.received(lane.qp.qp_num, wr_id, message, place.broken())
            await lane.qp.post_recv(RecvWR(wr_id, self.memory.sge(message, size)))
            posted.receives = number + 1

    async def post_sends(self, lane: AnyLane, message: Message) -> None:
        """Post the work requests of a lane up to that of a message."""
        posted, place = self._posted[id(lane)], lane.place
        messages = place.end.messages
        while posted.sends < len(messages) and messages[posted.sends].psn <= message.psn:
            number, posted.sends = posted.sends, posted.sends + 1
            self.completions.sent(lane.qp.qp_num, number, messages[number], place.broken())
            await lane.qp.post_send(self._request(place, messages[number], number))

    def _request(self, place: Place, message: Message, number: int) -> SendWR:
        flags = SendFlags.SIGNALED
        if message.solicited:
            flags |= SendFlags.SOLICITED
        sges = self.memory.sge(message, message.length)
        request = SendWR(number, message.opcode, sges, flags)
        request.imm_data = int.from_bytes(message.imm, "big")
        request.invalidate_rkey = message.invalidates
        if message.route is None:
            swaps = message.opcode == WrOpcode.ATOMIC_CMP_AND_SWP
            operands = (message.compare, message.swap_add) if swaps else (message.swap_add,)
            request.set_remote(message.rkey, message.va, *operands)
        else:
            fields = message.route.parts.fields
            handle = AH(self._pd, self._way(place, message.route))
            request.set_wr_ud(handle, fields["dest_qp"], fields["qkey"])
        return request

    def _way(self, place: Place, packet: Packet) -> AHAttr:
        """The way that a datagram goes."""
        fields, path = packet.parts.fields, packet.parts.path
        mark = fields["traffic_class"]
        route = GlobalRoute(
            dgid=path["dst_gid"],
            sgid_index=self._gid_index(place),
            traffic_class=mark & ~CE | _ECN_CAPABLE if mark & CE == CE else mark,
            flow_label=path["flow_label"],
            hop_limit=fields["hop_limit"],
        )
        return AHAttr(gr=route, sl=path["priority"], roce_dmac=path["dst_mac"])

    def own_reads(self) -> None:
        """What the READs of this machine have brought is in its memory."""
        for place in self._run.places:
            for message in place.end.messages:
                if message.read:
                    self.memory.read_done(message, place.connection.mtu)
