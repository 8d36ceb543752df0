"""Short messages beside bulk: what waits for what on a card that sends what the line takes."""

import cocotb
from cocotb.triggers import Timer

from hdl.abi.enums import Mtu, SendFlags, WcStatus, WrOpcode
from sim.bench.system import QpOptions, System, connect
from sim.guest.verbs import CQ, MR, SendWR
from sim.models.platform import now_ns
from tests.nic.card import CONFIG
from tests.nic.pair import RIGHTS, Pair

#: Of a bulk message, and how many of them each QP of bulk has posted.
BULK, DEPTH, QPS = 1 << 16, 6, 8
OPTIONS = QpOptions(mtu=Mtu.MTU_4096, max_rd_atomic=16)


class Bulk:
    """QPs with bulk in both directions, as WRITEs or READs."""

    @classmethod
    async def up(cls, system):
        self = cls()
        nodes = system.nodes
        self.pds = [await node.context.alloc_pd() for node in nodes]
        self.cqs = [await CQ.create(node.context, 256) for node in nodes]
        self.mrs = [await MR.create(pd, BULK * QPS, RIGHTS) for pd in self.pds]
        self.qps = [await connect(nodes, self.pds, self.cqs, OPTIONS) for _ in range(QPS)]
        return self

    async def post(self, side, opcode):
        """Everything at once; ``done`` waits for it."""
        here, there = self.mrs[side], self.mrs[1 - side]
        for n, pair in enumerate(self.qps):
            wrs = [
                SendWR(i, opcode, [here.sge(BULK * n, BULK)], SendFlags.SIGNALED)
                for i in range(DEPTH)
            ]
            for wr in wrs:
                wr.set_wr_rdma(there.rkey, there.iova + BULK * n)
            await pair[side].post_send(wrs)

    async def done(self, side):
        found = await self.cqs[side].wait(DEPTH * QPS, timeout_ns=1_000_000)
        assert all(wc.status == WcStatus.SUCCESS for wc in found), found


async def times(pair, opcode, count):
    """How long each of ``count`` short messages takes from post to completion, ns."""
    found = []
    for _ in range(count):
        begun = now_ns()
        await pair.post(opcode, 0, 64)
        while not (wcs := await pair.cqs[0].poll(1)):
            await Timer(20, "ns")
        assert wcs[0].status == WcStatus.SUCCESS, wcs
        found.append(now_ns() - begun)
        await Timer(700, "ns")
    return found


async def beside(dut, bulks, most):
    """Short WRITEs and READs beside ``bulks`` take at most so many ns more than alone."""
    system = await System.start(dut, CONFIG, deadline_cycles=4_000_000)
    pair = await Pair(system.nodes, 7).make(options=OPTIONS)
    bulk = await Bulk.up(system)
    for opcode, limit in most.items():
        alone = max(await times(pair, opcode, 6))
        for side, kind in bulks:
            await bulk.post(side, kind)
        await Timer(20, "us")
        more = max(await times(pair, opcode, 8)) - alone
        for side, _ in bulks:
            await bulk.done(side)
        dut._log.info("%s: %d ns alone, %d ns more beside bulk", opcode.name, alone, more)
        assert more < limit, f"{opcode.name} takes {more} ns more than the {alone} alone"


@cocotb.test()
async def answers_pass_requests(dut):
    """The answering card sends WRITEs: an ACK waits for the packet on the line, a response for
    what is ready before it."""
    most = {WrOpcode.RDMA_WRITE: 1000, WrOpcode.RDMA_READ: 6000}
    await beside(dut, [(1, WrOpcode.RDMA_WRITE)], most)


@cocotb.test()
async def answers_pass_responses(dut):
    """The answering card answers READs of 8 QPs: a response waits for a turn of each. Beside them
    nothing reads the buffer of a CQE before its completion comes (0.6 us)."""
    most = {WrOpcode.RDMA_WRITE: 2000, WrOpcode.RDMA_READ: 10_000}
    await beside(dut, [(0, WrOpcode.RDMA_READ)], most)


@cocotb.test()
async def requests_pass_requests(dut):
    """The asking card sends WRITEs of 8 QPs: a request waits for a turn of each."""
    most = {WrOpcode.RDMA_WRITE: 16_000, WrOpcode.RDMA_READ: 16_000}
    await beside(dut, [(0, WrOpcode.RDMA_WRITE)], most)
