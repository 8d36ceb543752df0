"""SEND, WRITE and READ of a few sizes between two QPs of one card, every byte compared."""

import numpy as np

from hdl.abi.enums import Access, WcStatus, WrOpcode
from sim.bench.system import connect
from sim.guest.verbs import CQ, MR, RecvWR, SendWR

__all__ = ["SmallTraffic"]

RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
SIZES = (1, 64, 300, 4096, 9000)
TOTAL = sum(SIZES)
PATIENCE_NS = 2_000_000
#: Cycles after which a WRITE whose completion has come is visible.
VISIBLE = 400


def _places(start):
    """Number, place and size of each message."""
    for n, size in enumerate(SIZES):
        yield n, start, size
        start += size


async def _completions(cq, count):
    done = []
    while len(done) < count:
        done += await cq.wait(1, timeout_ns=PATIENCE_NS)
    assert {wc.status for wc in done} == {WcStatus.SUCCESS}
    return done


class SmallTraffic:
    """Two connected QPs with a region each, of three parts: for SEND, WRITE and READ."""

    @classmethod
    async def start(cls, node, testbench):
        self, nodes = cls(), (node, node)
        self._testbench = testbench
        pds = [await node.context.alloc_pd() for _ in nodes]
        self.cqs = [await CQ.create(node.context, 64) for _ in nodes]
        self.qps = await connect(nodes, pds, self.cqs)
        self.mrs = [await MR.create(pd, 3 * TOTAL, RIGHTS) for pd in pds]
        return self

    async def post(self):
        """Post all requests; returns how many."""
        ours, theirs = self.mrs
        receives = [RecvWR(n, [theirs.sge(at, size)]) for n, at, size in _places(0)]
        await self.qps[1].post_recv(receives)
        requests = [SendWR(n, WrOpcode.SEND, [ours.sge(at, size)]) for n, at, size in _places(0)]
        for kind, opcode in ((1, WrOpcode.RDMA_WRITE), (2, WrOpcode.RDMA_READ)):
            for n, at, size in _places(kind * TOTAL):
                request = SendWR(10 * kind + n, opcode, [ours.sge(at, size)])
                request.set_wr_rdma(theirs.rkey, theirs.iova + at)
                requests.append(request)
        await self.qps[0].post_send(requests)
        return len(requests)

    async def run(self, seed=1):
        """All of it with random bytes; returns how many requests there were."""
        rng, mrs = np.random.default_rng(seed), self.mrs
        ours, theirs = (rng.integers(0, 256, 3 * TOTAL, np.uint8) for _ in range(2))
        mrs[0].write(ours)
        mrs[1].write(theirs)
        count = await self.post()
        await _completions(self.cqs[0], count)
        received = await _completions(self.cqs[1], len(SIZES))
        assert [wc.byte_len for wc in received] == list(SIZES)
        await self._testbench.cycles(VISIBLE)
        ours[2 * TOTAL :] = theirs[2 * TOTAL :]
        theirs[: 2 * TOTAL] = ours[: 2 * TOTAL]
        assert (mrs[0].read(3 * TOTAL) == ours).all() and (mrs[1].read(3 * TOTAL) == theirs).all()
        return count
