"""Two whole cards with DC: initiators on the first one, targets on the second one or on both."""

from hdl.abi.enums import Mtu, QpState, QpType
from sim.bench.system import System
from sim.guest.verbs import (
    QP,
    SRQ,
    AHAttr,
    DcDestination,
    GlobalRoute,
    QPAttr,
    QPInitAttr,
    SrqAttr,
)
from tests.nic.card import DC
from tests.nic.initiator import CAP, DEPTH, RIGHTS, WITH_EVENTS, Receiver, Sender

KEY = 0x1122334455667788


class Target(Receiver):
    """A target with a region, a CQ and a receive queue of its own."""

    @classmethod
    async def up(cls, node, *, key=KEY, mtu=Mtu.MTU_1024, state=QpState.RTR, access=RIGHTS):
        self = cls()
        self.node, self.key = node, key
        await self.allocate(node.context, access)
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


def address_of(node):
    """Where a node is."""
    return AHAttr(gr=GlobalRoute(dgid=node.address), roce_dmac=node.mac)


class Dc(Sender):
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
        self.system, self.nodes, self.node = system, system.nodes, node
        await self.allocate(node.context)
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
        wr = self.plain(opcode, at, length, number, self.targets[to].mr, **more)
        wr.set_wr_dc((way or self.ways[to]).number, stream)
        return wr

    @property
    def receivers(self):
        return self.targets
