"""Two whole cards with DC: initiators on the first one, targets on the second one or on both."""

import numpy as np
from cocotb.triggers import Timer

from hdl.abi.enums import Mtu, QpState, QpType
from sim.bench.system import QpOptions, System, address_of
from sim.guest.verbs import (
    QP,
    SRQ,
    DcDestination,
    QPAttr,
    QPInitAttr,
    SrqAttr,
    query_dct,
)
from tests.nic.card import ALL
from tests.nic.initiator import CAP, DEPTH, LENGTH, RIGHTS, WITH_EVENTS, Receiver, Sender

KEY = 0x1122334455667788
#: Requests that are under way at a time.
ROUND = 48
#: Time that rows rest, ns, where a test would wait for them else.
QUARANTINE = 50_000


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
            path_mtu=mtu,
            min_rnr_timer=1,
            qp_access_flags=access,
            ah_attr=address_of(node, QpOptions()),
        )
        await self.to(state)
        return self

    async def to(self, state):
        """From RESET to INIT or RTR."""
        if state == QpState.INIT:
            await self.qp.to_init(self.attr)
        elif state == QpState.RTR:
            await self.qp.to_rtr(self.attr)


async def three_targets_in_turn(dut, count):
    """One initiator and three targets on two cards, each of ``count`` requests to the next one: all
    arrive in order, each over a connection of its own, and none is left."""
    p = await Dc.up(dut, targets=2, deadline_cycles=10_000_000)
    p.targets.append(await Target.up(p.node))
    p.ways.append(await p.way(p.targets[2]))
    for node in p.nodes:
        node.function.commands.dc.targets.quarantine = QUARANTINE
    for first in range(0, count, ROUND):
        numbers = range(first, min(first + ROUND, count))
        for place, target in enumerate(p.targets):
            await target.post(*(n for n in numbers if n % 3 == place), size=256)
        await p.qp.post_send([p.send(n, 200, n, to=n % 3) for n in numbers])
        assert [wc.wr_id for wc in await p.good(len(numbers))] == list(numbers)
        for place, target in enumerate(p.targets):
            theirs = [n for n in numbers if n % 3 == place]
            for n, wc in zip(theirs, await target.done(len(theirs)), strict=True):
                assert (wc.wr_id, wc.qp_num, wc.byte_len) == (n, target.qp.qp_num, 200)
                at = 256 * n % LENGTH
                assert np.array_equal(target.mr.read(200, at), p.data[n : n + 200])
    await all_free(p)
    for place, target in enumerate(p.targets):
        assert (await query_dct(target.qp)).connects == len(range(place, count, 3))
    await p.well()


async def more_initiators_than_contexts(dut, initiators, contexts):
    """A target for which so many rows are left: each initiator sends a message to it, and all
    arrive, though some are told to come again."""
    p = await Dc.up(dut)
    (target,) = p.targets
    rows = target.node.function.commands.objects.qps
    init = QPInitAttr(QpType.DCT, rcq=target.cq, srq=target.srq, dc_key=1)
    others = []
    while not rows.scarce:
        others.append(await QP.create(target.pd, init))
    for other in others[-contexts:]:
        await other.close()
    target.node.function.commands.dc.targets.quarantine = QUARANTINE
    qps = [await p.initiator() for _ in range(initiators)]
    await target.post(*range(initiators))
    for n, qp in enumerate(qps):
        await qp.post_send(p.send(100 * n, 100 + n, n))
    sent = await p.cq.wait(initiators, timeout_ns=200_000_000)
    assert sorted((wc.wr_id, wc.status) for wc in sent) == [(n, 0) for n in range(initiators)]
    lengths = sorted(wc.byte_len for wc in await target.done(initiators))
    assert lengths == [100 + n for n in range(initiators)]
    asked = await query_dct(target.qp)
    assert asked.connects == initiators and asked.refused_busy > 0
    await all_free(p)
    await p.well()


async def all_free(p):
    """All connections end by themselves, when nothing is sent any more."""
    for target in p.targets:
        for _ in range(100):
            if not (asked := await query_dct(target.qp)).contexts:
                break
            await Timer(20, "us")
        assert (asked.contexts, asked.state) == (0, 1)


class Dc(Sender):
    """An initiator on the first node, and ``targets`` on the second one."""

    @classmethod
    async def up(cls, dut, *, targets=1, config=ALL, **bench):
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
        return await DcDestination.create(self.pd, address_of(target.node, QpOptions()), dctn, key)

    def request(self, opcode, at, length, number=0, *, to=0, way=None, stream=0, **more):
        """One to target ``to``, and to its region if it has to."""
        wr = self.plain(opcode, at, length, number, self.targets[to].mr, **more)
        wr.set_wr_dc((way or self.ways[to]).number, stream)
        return wr

    @property
    def receivers(self):
        return self.targets
