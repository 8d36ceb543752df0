"""MEMCPY of two guest functions of a card: each in its own memory, also while one is reset."""

import random

import cocotb
import numpy as np
from cocotb.triggers import Timer

from hdl.abi.enums import QpState, WcStatus
from sim.bench.system import Node, System
from sim.guest.verbs import CQ, MR, QP, SGE, AHAttr, GlobalRoute, QPAttr, QPCap, QPInitAttr
from tests.nic.bench_memcpy import OPTIONS, SIZE, copy, octets
from tests.nic.bench_placement import PLAIN
from tests.nic.card import FUNCTIONS

WAIT_NS = 2_000_000


class Guest:
    """A function with two regions and a queue pair whose peer is nobody."""

    @classmethod
    async def up(cls, node):
        self = cls()
        self.node, self.pd = node, await node.context.alloc_pd()
        self.cq = await CQ.create(node.context, 64)
        self.source, self.target = [await MR.create(self.pd, SIZE, PLAIN) for _ in range(2)]
        cap = QPCap(max_send_wr=16, max_recv_wr=1, max_send_sge=2, max_recv_sge=1)
        self.qp = await QP.create(self.pd, QPInitAttr(OPTIONS.type, self.cq, self.cq, cap, 0, None))
        route = GlobalRoute(dgid=node.context.query_gid(1, 0), sgid_index=0)
        attr = QPAttr(
            path_mtu=OPTIONS.mtu,
            dest_qp_num=self.qp.qp_num,
            max_rd_atomic=4,
            max_dest_rd_atomic=4,
            timeout=14,
            ah_attr=AHAttr(gr=route, roce_dmac=node.mac),
        )
        await self.qp.to_rts(attr)
        return self

    def fill(self, seed):
        self.source.write(octets(seed))
        self.target.write(octets(seed + 1))

    async def copies(self, count, seed):
        """So many copies behind each other, of which the last is compared."""
        rng = random.Random(seed)
        for turn in range(count):
            self.fill(seed + 2 * turn)
            length = rng.randrange(1, 20_000)
            source, to = (rng.randrange(SIZE - length) for _ in range(2))
            wr = copy(self.target.sge(to, length), self.source.sge(source, length), turn)
            await self.qp.post_send(wr)
            (wc,) = await self.cq.wait(1, timeout_ns=WAIT_NS)
            assert wc.status == WcStatus.SUCCESS, wc
            wanted = octets(seed + 2 * turn + 1).copy()
            wanted[to : to + length] = octets(seed + 2 * turn)[source : source + length]
            assert np.array_equal(self.target.read(SIZE), wanted), (seed, turn)


@cocotb.test()
async def two_functions(dut):
    """Both copy at once. Their keys have the same numbers, and name their own regions; a number
    that only the other one has is no key. One is reset again and again while it copies, and the
    other one's copies go on."""
    system = await System.start(dut, FUNCTIONS)
    second = Node(system.testbench, 0, beside=system.nodes[0])
    await second.start()
    for node in (*system.nodes, second):
        node.host.set(mmio_latency_ns=0)
    first, other = [await Guest.up(node) for node in (system.nodes[0], second)]
    assert first.source.lkey == other.source.lkey and first.target.lkey == other.target.lkey
    tasks = [cocotb.start_soon(one.copies(8, 100 * n)) for n, one in enumerate((first, other))]
    for task in tasks:
        await task

    more = await MR.create(other.pd, SIZE, PLAIN)
    foreign = SGE(more.iova, 100, more.lkey)
    await first.qp.post_send(copy(first.target.sge(0, 100), foreign))
    (wc,) = await first.cq.wait(1, timeout_ns=WAIT_NS)
    assert wc.status == WcStatus.LOC_PROT_ERR
    assert (await first.qp.query()).qp_state == QpState.ERR

    task = cocotb.start_soon(other.copies(40, 900))
    for turn in range(4):
        goes = await Guest.up(first.node)
        goes.fill(turn)
        whole = copy(goes.target.sge(0, SIZE), goes.source.sge(0, SIZE))
        await goes.qp.post_send([whole] * 4)
        await Timer(random.Random(turn).randrange(1_000, 40_000), "ns")
        await first.node.context.close()
        mark = octets(2000 + turn)
        goes.target.write(mark)
        await Timer(10, "us")
        assert np.array_equal(goes.target.read(SIZE), mark), "a function that is reset writes on"
        await first.node.start()
        first.node.host.set(mmio_latency_ns=0)
    await task
    for node in (*system.nodes, second):
        assert not node.host.faults
