"""Two whole cards with DC: initiators on the first one, targets on the second one or on both."""

import numpy as np

from hdl.abi.enums import Access, Mtu, QpState, QpType, RdmaFeature, WcStatus, WrOpcode
from sim.bench.system import System
from sim.guest.driver.device import ALL_FEATURES, DriverOptions
from sim.guest.verbs import (
    CQ,
    MR,
    QP,
    SRQ,
    AHAttr,
    DcDestination,
    GlobalRoute,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
    SrqAttr,
)
from tests.nic.card import DC

RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
CAP = QPCap(max_send_wr=64, max_send_sge=2, max_inline_data=64)
KEY, LENGTH, DEPTH, WAIT_NS = 0x1122334455667788, 1 << 16, 64, 4_000_000
_EVENTS = RdmaFeature.EVENTS.mask | RdmaFeature.QUEUE_ERROR.mask
WITH_EVENTS = DriverOptions(features=ALL_FEATURES | _EVENTS)


class Target:
    """A target with a region, a CQ and a receive queue of its own."""

    @classmethod
    async def up(cls, node, *, key=KEY, mtu=Mtu.MTU_1024, state=QpState.RTR, access=RIGHTS):
        self = cls()
        self.node, self.key, context = node, key, node.context
        self.pd = await context.alloc_pd()
        self.cq = await CQ.create(context, 256)
        self.mr = await MR.create(self.pd, LENGTH, access, offset=8)
        self.srq = await SRQ.create(self.pd, SrqAttr(DEPTH, 1))
        init = QPInitAttr(QpType.DCT, rcq=self.cq, srq=self.srq, dc_key=key)
        self.qp = await QP.create(self.pd, init)
        self.attr = QPAttr(
            path_mtu=mtu, min_rnr_timer=1, qp_access_flags=access, ah_attr=address_of(node)
        )
        await self.to(state)
        return self

    async def to(self, state):
        """From RESET to INIT or RTR."""
        if state == QpState.INIT:
            await self.qp.to_init(self.attr)
        elif state == QpState.RTR:
            await self.qp.to_rtr(self.attr)

    async def post(self, *numbers, size=1024):
        """A receive of ``size`` bytes for each number, at that place of the region."""
        requests = [RecvWR(n, [self.mr.sge(n * size % LENGTH, size)]) for n in numbers]
        await self.srq.post_recv(requests)

    async def done(self, count=1):
        return await self.cq.wait(count, timeout_ns=WAIT_NS)


def address_of(node):
    """Where a node is."""
    return AHAttr(gr=GlobalRoute(dgid=node.address), roce_dmac=node.mac)


class Dc:
    """An initiator on the first node, and ``targets`` on the second one."""

    @classmethod
    async def up(cls, dut, *, targets=1, config=DC, **bench):
        system = await System.start(dut, config, options=WITH_EVENTS, **bench)
        for node in system.nodes:
            node.host.set(mmio_latency_ns=0)
        return await cls.on(system, system.nodes[0], [system.nodes[1]] * targets)

    @classmethod
    async def on(cls, system, node, places):
        """The same on nodes of a system that is up; ``places``: of the targets."""
        self = cls()
        self.system, self.node, context = system, node, node.context
        self.pd = await context.alloc_pd()
        self.cq = await CQ.create(context, 256)
        self.mr = await MR.create(self.pd, LENGTH, RIGHTS, offset=8)
        self.data = np.random.default_rng(3).integers(0, 256, LENGTH, np.uint8)
        self.mr.write(self.data)
        self.targets = [await Target.up(place) for place in places]
        self.ways = [await self.way(target) for target in self.targets]
        self.qp = await self.initiator()
        return self

    async def initiator(
        self, *, mtu=Mtu.MTU_1024, timeout=5, retry_cnt=7, rnr_retry=7, reads=16, streams=None
    ):
        """Another one, in RTS; 5: 131 us."""
        init = QPInitAttr(QpType.DCI, self.cq, cap=CAP, sq_sig_all=0, streams=streams)
        qp = await QP.create(self.pd, init)
        attr = QPAttr(
            path_mtu=mtu,
            timeout=timeout,
            retry_cnt=retry_cnt,
            rnr_retry=rnr_retry,
            max_rd_atomic=reads,
        )
        self.attr = attr
        await qp.to_rts(attr)
        return qp

    async def way(self, target, *, key=None, dctn=None):
        """A destination: the target, or another number or key at its address."""
        dctn = target.qp.qp_num if dctn is None else dctn
        key = target.key if key is None else key
        return await DcDestination.create(self.pd, address_of(target.node), dctn, key)

    def request(self, opcode, at, length, number=0, *, to=0, way=None, stream=0, **more):
        """One to target ``to``, and to its region if it has to."""
        theirs = self.targets[to].mr
        remote = {name: more.pop(name) for name in ("compare_add", "swap") if name in more}
        place = more.pop("place", at)
        wr = SendWR(number, opcode, [self.mr.sge(at, length)], **more)
        wr.set_remote(theirs.rkey, theirs.iova + place, **remote)
        wr.set_wr_dc((way or self.ways[to]).number, stream)
        return wr

    def send(self, at, length, number=0, *, opcode=WrOpcode.SEND, **more):
        return self.request(opcode, at, length, number, **more)

    async def done(self, count=1):
        return await self.cq.wait(count, timeout_ns=WAIT_NS)

    async def good(self, count=1):
        found = await self.done(count)
        assert all(wc.status == WcStatus.SUCCESS for wc in found), found
        return found

    async def well(self):
        """Nothing is left over, and the hosts have seen nothing that they should not."""
        for cq in (self.cq, *(one.cq for one in self.targets)):
            assert await cq.poll(1) == []
        for node in self.system.nodes:
            assert not node.host.faults, node.host.faults
