"""Many QPs of the demonstration at once: both directions, mixed operations, odd offsets."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from cocotb.triggers import Timer

from hdl.abi.enums import Access, WrOpcode
from sim.bench.system import VISIBLE_NS, System, connect
from sim.guest.verbs import CQ, MR, QP, RecvWR, SendWR
from sim.measure.demo.rows import OPERATIONS
from sim.measure.demo.scope import Crowd, Scope, patience_ns, setting_up
from sim.measure.flow import compare, finished

__all__ = ["AREA", "CQS", "MESSAGES", "QPS", "play"]

RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE
#: SENDs of a few bytes are left out here: Wireshark takes some of them for RPC and errs.
QPS, CQS, MESSAGES, SHORTEST, LONGEST = 64, 16, 6, 64, 12_000
#: Bytes of one side of one of these QPs.
AREA = MESSAGES * (LONGEST + 64)


@dataclass(frozen=True)
class _Message:
    """What is where: ``size`` bytes of ``source`` that come to ``sink``, at the same offset."""

    name: str
    source: MR
    sink: MR
    offset: int
    size: int


@dataclass
class _Crowd:
    """Many QPs on few CQs; ``wanted`` counts the completions of each CQ of each side."""

    size: Crowd
    sges: int
    qps: list[tuple[QP, QP]]
    cqs: list[list[CQ]]
    mrs: list[MR]
    wanted: list[list[int]] = field(default_factory=list)

    @classmethod
    async def create(
        cls, system: System, timeout: int, scope: Scope, say: Callable[[str], None]
    ) -> _Crowd:
        """Set all up."""
        nodes = system.nodes
        size = scope.crowd(QPS, CQS, MESSAGES, AREA)
        say(f"{size.qps} QPs on {size.cqs} CQs: setting up")
        entries, vectors = scope.completions, range(size.cqs)
        async with setting_up(system):
            pds = [await n.context.alloc_pd() for n in nodes]
            cqs = [
                [await CQ.create(n.context, entries, comp_vector=i) for i in vectors] for n in nodes
            ]
            mrs = [await MR.create(pd, 2 * size.qps * AREA, RIGHTS, offset=1) for pd in pds]
            options = scope.options(timeout, mtu=1024, qps=size.qps)
            qps = [
                await connect(nodes, pds, [cqs[n][i % size.cqs] for n in (0, 1)], options)
                for i in range(size.qps)
            ]
        crowd = cls(size, scope.sges, qps, cqs, mrs)
        crowd._none_wanted()
        return crowd

    def _none_wanted(self) -> None:
        self.wanted = [[0] * self.size.cqs for _ in self.cqs]

    async def post(
        self, rng: random.Random, number: int, side: int, first: int, count: int
    ) -> list[_Message]:
        """Post ``count`` messages of one side of QP ``number``, receives before sends."""
        me, peer, cq = self.mrs[side], self.mrs[1 - side], number % self.size.cqs
        requests, receives, messages = [], [], []
        for k in range(first, first + count):
            size = rng.randint(SHORTEST, LONGEST)
            at = (2 * number + side) * AREA + k * (LONGEST + 64) + rng.randrange(1, 32, 2)
            opcode = rng.choice(list(OPERATIONS.values()))
            cut = rng.randrange(0, size)
            sges = [me.sge(at, cut), me.sge(at + cut, size - cut)]
            if self.sges < len(sges):
                sges = [me.sge(at, size)]
            request = SendWR(number << 8 | k, opcode, sges)
            # What one side sends lies at the same offset of the other's region.
            if opcode == WrOpcode.SEND:
                receives.append(RecvWR(1 << 32 | number << 8 | k, [peer.sge(at, size)]))
                self.wanted[1 - side][cq] += 1
            request.set_remote(peer.rkey, peer.iova + at)
            requests.append(request)
            self.wanted[side][cq] += 1
            source, sink = (peer, me) if opcode == WrOpcode.RDMA_READ else (me, peer)
            name = f"QP {number} side {side} message {k}"
            messages.append(_Message(name, source, sink, at, size))
        if receives:
            await self.qps[number][1 - side].post_recv(receives)
        await self.qps[number][side].post_send(requests)
        return messages

    async def completions(self) -> None:
        """Wait for all that are wanted; AssertionError when one is in error."""
        patience = patience_ns(self.mrs[0].length)
        for cqs, counts in zip(self.cqs, self.wanted, strict=True):
            for cq, count in zip(cqs, counts, strict=True):
                if count:
                    finished(await cq.wait(count, timeout_ns=patience))
        self._none_wanted()


async def play(
    system: System, timeout: int, scope: Scope, say: Callable[[str], None]
) -> dict[str, Any]:
    """Many QPs on few CQs at once, host completions out of order; what is shown of it."""
    nodes = system.nodes
    rng = random.Random(2)
    crowd = await _Crowd.create(system, timeout, scope, say)
    qps, cqs, at_once = crowd.size.qps, crowd.size.cqs, crowd.size.at_once
    for node in nodes:
        node.host.set(read_jitter_ns=400, chunk_bytes=64, reorder=True, seed=5)
    say(f"{qps} QPs on {cqs} CQs: traffic in both directions")

    begin = nodes[0].host.now()
    for mr in crowd.mrs:
        mr.write(np.random.default_rng(mr.lkey).integers(0, 256, mr.length, np.uint8))
    befores = [mr.read(mr.length) for mr in crowd.mrs]  # no two messages share a byte
    order = [(i, side) for i in range(qps) for side in (0, 1)]
    rng.shuffle(order)
    messages: list[_Message] = []
    for first in range(0, MESSAGES, at_once):
        count = min(at_once, MESSAGES - first)
        for i, side in order:
            messages += await crowd.post(rng, i, side, first, count)
        await crowd.completions()
    end = nodes[0].host.now()
    await Timer(VISIBLE_NS, "ns")
    for one in messages:
        sent = befores[crowd.mrs.index(one.source)][one.offset : one.offset + one.size]
        compare(one.name, "it", one.sink.read(one.size, one.offset), sent)
    return {
        "qps": qps,
        "cqs": cqs,
        "messages": len(messages),
        "bytes_verified": sum(one.size for one in messages),
        "begin_ns": begin,
        "end_ns": end,
    }
