"""The objects of a run of ``perf`` inside the simulation, and its flows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import numpy as np
from cocotb.triggers import Event

from hdl.abi.enums import Access, Mtu, QpType
from sim.bench.bulk.loader import bulk
from sim.bench.system import QpOptions, System, connect, connect_dynamic, join
from sim.guest.driver.platform import Octets
from sim.guest.verbs import (
    AH,
    CQ,
    MR,
    PD,
    QP,
    SRQ,
    XRCD,
    AHAttr,
    GlobalRoute,
    Mkey,
    MpWr,
    QPInitAttr,
    SrqAttr,
)
from sim.measure.flow import (
    PIECES,
    QKEY,
    Flow,
    Lane,
    PieceFlow,
    Shape,
    Traffic,
    finished,
    pieces,
)
from sim.measure.perf.plan import TLP_PAYLOAD, TLP_READ, USUAL_QPS, XRC_QUEUES, Plan
from sim.measure.side import Side
from sim.models.impairments import Impairments

__all__ = ["Ends", "filled"]

RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC


class Ends:
    """Two nodes with their regions, CQs and ``plan.qps`` connected QPs.

    ``reverse``: the second node is the one that requests. ``number``: of a flow among others, whose
    data differ.
    """

    def __init__(self, system: System, plan: Plan, *, reverse: bool = False, number: int = 0):
        self.system, self.plan, self.number = system, plan, number
        #: How long nothing may happen before a run counts as stalled.
        self.patience_us = plan.patience_us
        self.nodes = system.nodes[::-1] if reverse else system.nodes
        self.sides: list[Side] = []
        self.qps: list[tuple[QP, QP]] = []
        #: Of XRC and DC, for each of them the receive queue that its messages go to.
        self.queues: list[SRQ] = []
        #: Of DC, for each of them its targets and the destinations that these are.
        self._targets: list[tuple[list[QP], list[int]]] = []
        #: Of XRC the domain of the queues.
        self._xrcd: XRCD | None = None
        #: Of each side's QPs, by their number and a place, the indirect key of a message there.
        self._layouts: tuple[dict[int, dict[int, Mkey]], ...] = ({}, {})

    async def set_up(self, say: Callable[[str], None]) -> None:
        """Make all objects, then stop the firmware, unless connections need it: the hardware is
        alone from here on."""
        await self.make(say)
        if not self.plan.dynamic:
            self.system.stop_firmware()
        self.begin()

    async def make(self, say: Callable[[str], None]) -> None:
        """Make all objects; register accesses take no time meanwhile.

        More QPs than a card usually has are loaded in bulk.
        """
        plan, nodes = self.plan, self.nodes
        for node in nodes:
            node.host.set(mmio_latency_ns=0)
        with ExitStack() as loading:
            for node in nodes if plan.qps > USUAL_QPS else ():
                loading.enter_context(bulk(node))
            await self._objects(say)

    def begin(self) -> None:
        """Give the hosts and the line the times and rates of the plan."""
        plan = self.plan
        for side in self.sides:
            side.look_at_completions()
            side.node.host.set(
                read_latency_ns=plan.host_latency_ns,
                read_gbps=plan.host_gbps,
                write_gbps=plan.host_gbps,
                seed=plan.seed,
                tlp_payload=TLP_PAYLOAD if plan.tlp_headers else 0,
                tlp_read=TLP_READ if plan.tlp_headers else 0,
            )
        for wire in self.system.testbench.wires:
            wire.set(gbps=plan.line_gbps)
            wire.impair(Impairments.parse(plan.impair))

    async def _objects(self, say: Callable[[str], None]) -> None:
        """CQs, regions and connected QPs."""
        plan, nodes = self.plan, self.nodes
        shapes = [plan.shape(size) for size in plan.sizes]
        region = max(plan.region(size) for size in plan.sizes)
        most = plan.config.queue_size
        pds = [await node.context.alloc_pd() for node in nodes]
        rights = RIGHTS | Access.FLUSH_GLOBAL if plan.kind.placement else RIGHTS
        for node, pd in zip(nodes, pds, strict=True):
            shows = {"with_mp_wr": plan.mp_wr}
            cqs = [await CQ.create(node.context, plan.cq_entries, **shows) for _ in range(plan.cqs)]
            mrs = [await MR.create(pd, region, rights) for _ in range(2)]
            shared = plan.use_srq and plan.connection != "XRC"
            srq = await SRQ.create(pd, SrqAttr(most)) if shared else None
            peer = nodes[1 - len(self.sides)]
            route = GlobalRoute(dgid=peer.context.query_gid(1, 0), sgid_index=0)
            way = AH(pd, AHAttr(gr=route, roce_dmac=peer.mac))
            self.sides.append(Side(node, cqs, mrs[0], mrs[1], Event(), srq, way))
        options = QpOptions(
            mtu=Mtu[f"MTU_{plan.mtu}"],
            max_rd_atomic=plan.max_rd_atomic,
            timeout=plan.qp_timeout,
            access=rights,
            type=QpType.__members__.get(plan.connection, QpType.RC),  # XRC and DC have two
            qkey=QKEY,
        )
        options.cap.max_send_wr = min(most, 2 * plan.kind.requests * max(s.depth for s in shapes))
        options.cap.max_recv_wr = min(most, 2 * max(s.slots for s in shapes))
        options.cap.max_send_sge = options.cap.max_recv_sge = plan.sges
        options.cap.max_inline_data = plan.inline
        if plan.mp_wr:
            (stride,) = {shape.stride for shape in shapes}
            options.mp_wr = MpWr(PIECES * stride, stride)
        for i in range(plan.qps):
            if i % max(16, plan.qps // 64) == 0:
                say(f"connecting QP {i + 1} of {plan.qps}")
            number = i * plan.cqs // plan.qps
            if plan.connection == "XRC":
                await self._extended(pds, number, options)
                continue
            if plan.dynamic:
                await self._dynamic(pds, number, options)
                continue
            used, srqs = zip(*((side.cqs[number], side.srq) for side in self.sides), strict=True)
            self.qps.append(await connect(nodes, pds, used, options, srqs))
            if plan.mkey:
                for side in (0, 1) if plan.bidirectional else (0,):
                    await self._lay_out(pds[side], side, i)

    async def _lay_out(self, pd: PD, side: int, number: int) -> None:
        """An indirect key for each place of a QP's source, of so many pieces as are wanted."""
        plan, (size,) = self.plan, self.plan.sizes
        source, found = self.sides[side].source, dict[int, Mkey]()
        for at in plan.places_of(number, size):
            found[at] = await Mkey.create(pd, plan.mkey)
            entries = pieces(source, at, size, plan.mkey)
            wr = found[at].list_wr(entries, Access.LOCAL_WRITE | Access.REMOTE_READ)
            await self.qps[number][side].post_send(wr)
            finished(await self.sides[side].cqs[number * plan.cqs // plan.qps].wait())
        self._layouts[side][number] = found

    async def _extended(self, pds: Sequence[PD], number: int, options: QpOptions) -> None:
        """An XRC connection, with a receive queue of its own in the domain of the second side, or
        one of ``XRC_QUEUES`` in turn."""
        plan, cqs = self.plan, [side.cqs[number] for side in self.sides]
        self._xrcd = self._xrcd or await XRCD.create(self.sides[1].node.context)
        receives = plan.config.queue_size if plan.use_srq else options.cap.max_recv_wr
        if plan.use_srq and len(self.queues) >= XRC_QUEUES:
            self.queues.append(self.queues[-XRC_QUEUES])
        else:
            attr = SrqAttr(receives, options.cap.max_recv_sge)
            self.queues.append(await SRQ.create(pds[1], attr, xrcd=self._xrcd, cq=cqs[1]))
        init = QPInitAttr(QpType.XRC_INI, cqs[0], cap=replace(options.cap), sq_sig_all=0)
        target = QPInitAttr(QpType.XRC_TGT, xrcd=self._xrcd)
        pair = await QP.create(pds[0], init), await QP.create(pds[1], target)
        await join(self.nodes, pair, options)
        self.qps.append(pair)

    async def _dynamic(self, pds: Sequence[PD], number: int, options: QpOptions) -> None:
        """An initiator of DC, and its targets, which have one receive queue."""
        cqs, cap = [side.cqs[number] for side in self.sides], options.cap
        queue = await SRQ.create(pds[1], SrqAttr(cap.max_recv_wr, cap.max_recv_sge))
        qp, targets, ways = await connect_dynamic(
            self.nodes[1], pds, cqs, queue, options, self.plan.targets
        )
        self.queues.append(queue)
        self._targets.append((targets, [way.number for way in ways]))
        self.qps.append((qp, targets[0]))

    def flow(self, shape: Shape, number: int, requester: int, data: Octets, quota: int) -> Flow:
        """The flow of one QP from one side, ``requester``; ``data`` is what its source holds."""
        plan, qps = self.plan, self.qps[number]
        me, other = self.sides[requester], self.sides[1 - requester]
        qp, peer = qps[requester], qps[1 - requester]
        named = self.queues[number] if self.queues else None
        targets, ways = self._targets[number] if self._targets else ([], [])
        lane = Lane(
            number,
            requester,
            qp,
            peer,
            source=other.source if plan.fetches else me.source,
            sink=me.sink if plan.fetches or plan.local else other.sink,
            receives=named or other.srq or peer,
            way=me.peer if plan.connection == "UD" else None,
            srq_num=None if named is None else named.srq_num,
            destinations=ways,
            takers=[target.qp_num for target in targets],
            layouts=self._layouts[requester].get(number, {}),
        )
        traffic = Traffic(
            plan.op,
            plan.opcode,
            plan.places_of(number, shape.size),
            area=plan.area,
            inline=shape.size <= plan.inline,
            answered=plan.answered,
            sges=plan.sges,
            one_word=plan.one_word,
        )
        kind = PieceFlow if plan.mp_wr else Flow
        return kind(lane, traffic, shape, data, quota)

    async def sleep(self, side: Side) -> None:
        """Until the card of ``side`` has written; see ``Side.sleep``."""
        await side.sleep(self.system, self.patience_us)


@contextmanager
def filled(ends: Ends, size: int) -> Iterator[list[Octets]]:
    """Random bytes in both sources and their inverse in both sinks; yields the bytes of each."""
    region = ends.plan.region(size)
    found = []
    for i, side in enumerate(ends.sides):
        seeds = [ends.plan.seed, size, i, ends.number]
        data = np.random.default_rng(seeds).integers(0, 256, region, np.uint8)
        side.source.write(data)
        found.append(data)
    for side, data in zip(ends.sides, reversed(found), strict=True):
        side.sink.write(~data)
    yield found
