"""Two whole cards with XRC: an initiator on the first one, and on the second one a domain with a
target and receive queues of several processes."""

from hdl.abi.enums import Mtu, QpType, SendFlags
from sim.bench.system import QpOptions, System, join, together
from sim.guest.verbs import QP, SRQ, XRCD, QPInitAttr, SrqAttr
from tests.nic.card import ALL
from tests.nic.initiator import CAP, DEPTH, RIGHTS, WITH_EVENTS, Receiver, Sender

#: RNR pauses of 10 us, without end; 32.8 us are longer than anything takes here without loss.
OPTIONS = QpOptions(
    mtu=Mtu.MTU_1024, access=RIGHTS, timeout=3, rnr_retry=7, min_rnr_timer=1, max_rd_atomic=16
)


class Process(Receiver):
    """A receiver: its own protection domain with a region, and a receive queue with a CQ."""

    @classmethod
    async def up(cls, context, xrcd, *, depth=DEPTH):
        self = cls()
        await self.allocate(context)
        self.srq = await SRQ.create(self.pd, SrqAttr(depth, 1), xrcd=xrcd, cq=self.cq)
        return self

    async def close(self):
        await self.srq.close()
        await self.mr.close()
        await self.cq.close()
        await self.pd.close()


class Xrc(Sender):
    """``processes`` on the second node in one domain, and a connection ``ini`` to ``tgt``."""

    @classmethod
    async def up(cls, dut, *, config=ALL, **more):
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
        await self.allocate(here)
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
        wr = self.plain(opcode, at, length, number, mr or process.mr, **more)
        wr.set_wr_xrc_srqn(process.srq.srq_num if srq_num is None else srq_num)
        return wr

    @property
    def receivers(self):
        return self.processes


QUIET = SendFlags(0)
