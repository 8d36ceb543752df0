"""Two cards on which the rows of 16 QPs are on chip, and those of all others in host memory."""

import random

import cocotb
import numpy as np

from hdl.abi.enums import Access, SendFlags, WcStatus, WrOpcode
from sim.bench.system import QpOptions, System, connect
from sim.guest.verbs import CQ, MR, QPCap, RecvWR, SendWR
from tests.nic.card import CONFIG

RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE
QPS, LENGTH, WAIT_NS = 48, 3000, 3_000_000


class Many:
    """Connected QPs, each with a part of one region on each side."""

    @classmethod
    async def up(cls, dut, count=QPS, **options):
        self = cls()
        self.system = await System.start(dut, CONFIG, deadline_cycles=8_000_000)
        self.nodes = self.system.nodes
        for node in self.nodes:
            node.host.set(mmio_latency_ns=0)
        self.pds = [await n.context.alloc_pd() for n in self.nodes]
        self.cqs = [await CQ.create(n.context, 1024) for n in self.nodes]
        self.mrs = [await MR.create(pd, count * LENGTH, RIGHTS) for pd in self.pds]
        chosen = QpOptions(cap=QPCap(16, 16, 2, 2, 64), **options)
        self.pairs = [await connect(self.nodes, self.pds, self.cqs, chosen) for _ in range(count)]
        rng = np.random.default_rng(1)
        for mr in self.mrs:
            mr.write(rng.integers(0, 256, count * LENGTH, np.uint8))
        for node in self.nodes:
            node.host.set()
        return self

    async def post(self, number, opcode, side, length, *, recv=True):
        """A message of a QP, from its part of the region to the same part of the peer's."""
        here, there = self.mrs[side], self.mrs[1 - side]
        at = number * LENGTH
        if opcode == WrOpcode.SEND and recv:
            await self.pairs[number][1 - side].post_recv(RecvWR(number, [there.sge(at, length)]))
        wr = SendWR(number, opcode, [here.sge(at, length)], SendFlags.SIGNALED)
        if opcode != WrOpcode.SEND:
            wr.set_wr_rdma(there.rkey, there.iova + at)
        await self.pairs[number][side].post_send(wr)

    async def good(self, side, count):
        left = count
        while left:
            found = await self.cqs[side].wait(min(left, 64), timeout_ns=WAIT_NS)
            assert all(wc.status == WcStatus.SUCCESS for wc in found), found
            left -= len(found)

    async def counts(self):
        return [await node.registers.context_counts() for node in self.nodes]


@cocotb.test()
async def many_qps_take_turns(dut):
    """More QPs than places, all at once, in both directions, with each kind of operation: every
    byte arrives, and rows come and go meanwhile."""
    many, rng = await Many.up(dut), random.Random(7)
    before = await many.counts()
    for opcode in (WrOpcode.RDMA_WRITE, WrOpcode.SEND, WrOpcode.RDMA_READ):
        for _ in range(2):
            plan, expected = [], []
            for number in range(QPS):
                plan.append((number, rng.randrange(2), rng.randrange(1, LENGTH)))
            rng.shuffle(plan)
            for number, side, length in plan:
                at = number * LENGTH
                reads = opcode == WrOpcode.RDMA_READ
                source = many.mrs[1 - side if reads else side]
                expected.append((side if reads else 1 - side, at, source.read(length, at)))
                await many.post(number, opcode, side, length)
            for side in (0, 1):
                await many.good(side, sum(one[1] == side for one in plan))
                if opcode == WrOpcode.SEND:
                    await many.good(side, sum(one[1] != side for one in plan))
            await many.system.testbench.cycles(600)
            for side, at, found in expected:
                assert np.array_equal(many.mrs[side].read(len(found), at), found)
    for (old, lost_before), (new, lost) in zip(before, await many.counts(), strict=True):
        assert new - old > 2 * QPS and lost == lost_before == 0
    dut._log.info("misses %s", [(b[0], a[0]) for b, a in zip(before, await many.counts())])
    for node in many.nodes:
        assert not node.host.faults


@cocotb.test()
async def the_host_is_slow(dut):
    """Rows that take 5 us to come: packets wait, and nothing is lost."""
    many = await Many.up(dut, 24)
    for node in many.nodes:
        node.host.set(read_latency_ns=5000)
    for _ in range(3):
        for number in range(24):
            await many.post(number, WrOpcode.RDMA_WRITE, number & 1, 500)
        for side in (0, 1):
            await many.good(side, 12)


@cocotb.test()
async def reset_in_the_middle(dut):
    """A device reset while rows come and go: afterwards all QPs are new."""
    many = await Many.up(dut, 24)
    for number in range(24):
        await many.post(number, WrOpcode.RDMA_WRITE, number & 1, 500)
    await many.nodes[0].context.close()
    await many.nodes[1].context.close()
    for node in many.nodes:
        node.stop_firmware()
        assert not node.host.faults
        await node.start()


@cocotb.test()
async def figures(dut):
    """What a miss costs: WRITEs of 64 bytes, one at a time, from post to completion; always of the
    same QP, and of each of 24 in turn, so that rows are brought on both cards, and others leave."""
    many = await Many.up(dut, 24)
    now, times = many.nodes[0].host.now, {}
    for name, order in (("hot", [0] * 24), ("cold", list(range(24)) * 2)):
        before, times[name] = await many.counts(), []
        for number in order:
            begun = now()
            await many.post(number, WrOpcode.RDMA_WRITE, 0, 64)
            await many.good(0, 1)
            times[name].append(now() - begun)
        misses = [new[0] - old[0] for old, new in zip(before, await many.counts(), strict=True)]
        mean = sum(times[name][1:]) / len(order[1:])
        dut._log.info("%s: %.0f ns, misses %s of %d", name, mean, misses, len(order))
        times[name] = mean
    assert times["hot"] < times["cold"] < times["hot"] + 8000
