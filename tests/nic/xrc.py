"""Two whole cards with XRC: an initiator on the first one, and on the second one a domain with a
target and receive queues of several processes."""

from dataclasses import dataclass

import numpy as np

from hdl.abi.enums import Access, Mtu, QpType, RdmaFeature, SendFlags, WcStatus, WrOpcode
from sim.bench.system import QpOptions, System, join, together
from sim.guest.driver.device import ALL_FEATURES, DriverOptions
from sim.guest.verbs import (
    CQ,
    MR,
    PD,
    QP,
    SRQ,
    XRCD,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
    SrqAttr,
)
from tests.nic.card import XRC

RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
#: RNR pauses of 10 us, without end; 32.8 us are longer than anything takes here without loss.
OPTIONS = QpOptions(
    mtu=Mtu.MTU_1024, access=RIGHTS, timeout=3, rnr_retry=7, min_rnr_timer=1, max_rd_atomic=16
)
CAP = QPCap(max_send_wr=64, max_send_sge=2, max_inline_data=64)
LENGTH, DEPTH, WAIT_NS = 1 << 16, 64, 4_000_000
_EVENTS = RdmaFeature.EVENTS.mask | RdmaFeature.QUEUE_ERROR.mask
WITH_EVENTS = DriverOptions(features=ALL_FEATURES | _EVENTS)


@dataclass
class Process:
    """A receiver: its own protection domain with a region, and a receive queue with a CQ."""

    pd: PD
    cq: CQ
    mr: MR
    srq: SRQ

    @classmethod
    async def up(cls, context, xrcd, *, depth=DEPTH):
        pd = await context.alloc_pd()
        cq = await CQ.create(context, 256)
        mr = await MR.create(pd, LENGTH, RIGHTS, offset=8)
        srq = await SRQ.create(pd, SrqAttr(depth, 1), xrcd=xrcd, cq=cq)
        return cls(pd, cq, mr, srq)

    async def post(self, *numbers, size=1024):
        """A receive of ``size`` bytes for each number, at that place of the region."""
        requests = [RecvWR(n, [self.mr.sge(n * size % LENGTH, size)]) for n in numbers]
        await self.srq.post_recv(requests)

    async def done(self, count=1):
        return await self.cq.wait(count, timeout_ns=WAIT_NS)

    async def close(self):
        await self.srq.close()
        await self.mr.close()
        await self.cq.close()
        await self.pd.close()


class Xrc:
    """``processes`` on the second node in one domain, and a connection ``ini`` to ``tgt``."""

    @classmethod
    async def up(cls, dut, *, config=XRC, **more):
        bench = {name: more.pop(name) for name in more.keys() - cls.MADE}
        system = await System.start(dut, config, options=WITH_EVENTS, **bench)
        return await cls.on(system, system.nodes, **more)

    #: What ``on`` takes, of what ``up`` does; the rest goes to the bench.
    MADE = frozenset(("processes", "options", "depth"))

    @classmethod
    async def on(cls, system, nodes, *, processes=2, options=OPTIONS, depth=DEPTH):
        """The same on two nodes of a system that is up."""
        self = cls()
        self.system, self.nodes = system, nodes
        for node in self.nodes:
            node.host.set(mmio_latency_ns=0)
        here, there = (node.context for node in self.nodes)
        self.pd = await here.alloc_pd()
        self.cq = await CQ.create(here, 256)
        self.mr = await MR.create(self.pd, LENGTH, RIGHTS, offset=8)
        octets = np.random.default_rng(3).integers(0, 256, LENGTH, np.uint8)
        self.mr.write(octets)
        self.data = octets
        self.xrcd = await XRCD.create(there)
        self.processes = [await Process.up(there, self.xrcd, depth=depth) for _ in range(processes)]
        self.there = await there.alloc_pd()  # of nothing; a target has none
        if processes:
            self.ini, self.tgt = await self.connect(options)
        return self

    async def connect(self, options=OPTIONS, xrcd=None, *, receives=None):
        """Another initiator and another target; see ``join``."""
        pd = self.there
        init = QPInitAttr(QpType.XRC_INI, self.cq, cap=CAP)
        ini, tgt = await together(
            QP.create(self.pd, init),
            QP.create(pd, QPInitAttr(QpType.XRC_TGT, xrcd=xrcd or self.xrcd)),
        )
        self.ini, self.tgt = ini, tgt
        await join(self.nodes, (ini, tgt), options, receives=receives)
        return ini, tgt

    def request(self, opcode, at, length, number=0, *, to=0, mr=None, srq_num=None, **more):
        """One that names the receive queue of process ``to``, and its region if it has to."""
        process = self.processes[to]
        theirs = mr or process.mr
        remote = {name: more.pop(name) for name in ("compare_add", "swap") if name in more}
        place = more.pop("place", at)
        wr = SendWR(number, opcode, [self.mr.sge(at, length)], **more)
        wr.set_remote(theirs.rkey, theirs.iova + place, **remote)
        wr.set_wr_xrc_srqn(process.srq.srq_num if srq_num is None else srq_num)
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
        for cq in (self.cq, *(one.cq for one in self.processes)):
            assert await cq.poll(1) == []
        for node in self.nodes:
            assert not node.host.faults, node.host.faults


QUIET = SendFlags(0)
