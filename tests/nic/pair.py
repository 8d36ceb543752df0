"""A connection whose every message is verified."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from hdl.abi.enums import Access, SendFlags, WcStatus, WrOpcode
from sim.bench.system import Node, QpOptions, connect, together
from sim.guest.verbs import CQ, MR, RecvWR, SendWR

__all__ = ["LENGTH", "RIGHTS", "WAIT_NS", "Pair"]

RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE
WAIT_NS = 400_000
LENGTH = 1 << 14


class Pair:
    """A connection of two nodes, or of one with itself, with a region and a CQ on each side."""

    def __init__(self, nodes: Sequence[Node], seed: int):
        self.nodes, self.rng = nodes, np.random.default_rng(seed)

    async def make(self, size: int = 64, options: QpOptions | None = None) -> Pair:
        self.pds = await together(*(n.context.alloc_pd() for n in self.nodes))
        self.cqs = await together(*(CQ.create(n.context, size) for n in self.nodes))
        self.mrs = await together(*(MR.create(pd, LENGTH, RIGHTS) for pd in self.pds))
        self.qps = await connect(self.nodes, self.pds, self.cqs, options)
        for mr in self.mrs:
            mr.write(self.rng.integers(0, 256, LENGTH, np.uint8))
        return self

    def numbers(self):
        """What the nodes call their objects."""
        return [
            (pd.pdn, cq.cqn, mr.lkey, qp.qp_num)
            for pd, cq, mr, qp in zip(self.pds, self.cqs, self.mrs, self.qps, strict=True)
        ]

    async def post(self, opcode, at: int, length: int, *, side: int = 0, rkey: int | None = None):
        here, there = self.mrs[side], self.mrs[1 - side]
        wr = SendWR(1, opcode, [here.sge(at, length)], SendFlags.SIGNALED)
        if opcode != WrOpcode.SEND:
            wr.set_wr_rdma(there.rkey if rkey is None else rkey, there.iova + at)
        await self.qps[side].post_send(wr)

    async def good(self, side: int = 0, count: int = 1, *, wait_ns: int = WAIT_NS):
        found = await self.cqs[side].wait(count, timeout_ns=wait_ns)
        assert all(wc.status == WcStatus.SUCCESS for wc in found), found
        assert {wc.qp_num for wc in found} == {self.qps[side].qp_num}
        return found

    async def exchange(self, rng: random.Random) -> None:
        """A WRITE, a READ and a SEND, each verified; what lies around them stays as it is."""
        for opcode in (WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ, WrOpcode.SEND):
            side = rng.randrange(2)
            at = rng.randrange(LENGTH // 2)
            length = rng.randrange(1, LENGTH - at)
            source, sink = self.mrs[side], self.mrs[1 - side]
            if opcode == WrOpcode.SEND:
                await self.qps[1 - side].post_recv(RecvWR(2, [sink.sge(at, length)]))
            if opcode == WrOpcode.RDMA_READ:
                source, sink = sink, source
            expected = sink.read(LENGTH)
            expected[at : at + length] = source.read(length, at)
            await self.post(opcode, at, length, side=side)
            await self.good(side)
            if opcode == WrOpcode.SEND:
                await self.good(1 - side)
            await self.nodes[0].testbench.cycles(300)  # a WRITE is acknowledged before it lands
            assert np.array_equal(sink.read(LENGTH), expected), opcode
