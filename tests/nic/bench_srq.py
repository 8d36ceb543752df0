"""Two whole cards: queue pairs that receive into a shared receive queue."""

import random
from collections import deque

import cocotb
import numpy as np
from cocotb.triggers import Timer

from hdl.abi.enums import Mtu, WcOpcode, WcStatus, WrOpcode
from sim.bench.system import QpOptions, connect
from sim.guest.verbs import MR, SGE, SRQ, CommandError, RecvWR, SrqAttr
from tests.nic.bench_nic import DATA, RIGHTS, Pair
from tests.nic.card import CONFIG

#: Receive requests of the shared queue, and bytes of each.
DEPTH, ROOM = 16, 41_000
#: RNR pauses of 10 us, without end.
OPTIONS = QpOptions(mtu=Mtu.MTU_1024, rnr_retry=7, min_rnr_timer=1)


class Shared:
    """``p.nodes[1]`` with a shared queue whose regions are in a protection domain of its own."""

    @classmethod
    async def up(cls, dut, *, qps=4, **options):
        self = cls()
        self.p = p = await Pair.up(dut, config=CONFIG, **options)
        self.pd = await p.nodes[1].context.alloc_pd()
        self.sink = await MR.create(self.pd, DEPTH * ROOM, RIGHTS, offset=11)
        self.srq = await SRQ.create(self.pd, SrqAttr(DEPTH, 2))
        self.pairs = [await self.connect() for _ in range(qps)]
        return self

    async def connect(self):
        p = self.p
        return await connect(p.nodes, p.pds, p.cqs, OPTIONS, (None, self.srq))

    async def post(self, *slots):
        """A receive into each slot of the region, cut in two at an odd place."""
        requests = [
            RecvWR(n, [self.sink.sge(n * ROOM, 777), self.sink.sge(n * ROOM + 777, ROOM - 777)])
            for n in slots
        ]
        await self.srq.post_recv(requests)

    async def hold(self, number=0):
        """A message of ``pairs[number]`` whose first packet takes a receive, and that goes no
        further, as its sender fails behind it."""
        mr = self.p.mrs[0]
        broken = [mr.sge(0, 1024), SGE(mr.iova, 1024, mr.lkey ^ 3)]
        await self.pairs[number][0].post_send(self.p.request(WrOpcode.SEND, broken))
        (wc,) = await self.p.done()
        assert wc.status == WcStatus.LOC_PROT_ERR
        await Timer(10, "us")  # the packet before it is on its way

    async def one_message(self, number):
        """A SEND of ``pairs[number]``: the slot that it came to."""
        await self.pairs[number][0].post_send(
            self.p.request(WrOpcode.SEND, [self.p.mrs[0].sge(3, 99)])
        )
        await self.p.good()
        (wc,) = await self.p.good(side=1)
        assert wc.qp_num == self.pairs[number][1].qp_num
        assert np.array_equal(self.sink.read(99, wc.wr_id * ROOM), DATA[3:102])
        return wc.wr_id


@cocotb.test()
async def four_queue_pairs(dut):
    """SENDs of one packet and of several and WRITEs with immediate of four QPs, mixed: each message
    whole, in a receive of its own, in the order of its QP; waits while there is none."""
    s = await Shared.up(dut)
    p, rng = s.p, random.Random(7)
    expected = {pair[1].qp_num: deque() for pair in s.pairs}
    for number, pair in enumerate(s.pairs):
        batch = []
        for n in range(15):
            opcode = rng.choice((WrOpcode.SEND, WrOpcode.SEND, WrOpcode.RDMA_WRITE_WITH_IMM))
            # The long ones are fetched one at a time of a QP, so those of several QPs mix.
            most = 40_000 if opcode == WrOpcode.SEND else 2000
            length = min(rng.choice((0, 64, 1024, 1500, 40_000)), most)
            at, imm = rng.randrange(1 << 16), number << 8 | n
            place = 2000 * (15 * number + n)  # of a WRITE
            sges = [p.mrs[0].sge(at, length)]
            batch.append(p.request(opcode, sges, offset=place, number=n, imm=imm))
            expected[pair[1].qp_num].append((opcode, length, at, imm, place))
        await pair[0].post_send(batch)
    await s.post(0, 1, 2)
    free, posted, overtaken = set(range(3, DEPTH)), [0, 1, 2], 0
    left = sum(map(len, expected.values()))
    while left:
        for wc in await p.good(side=1, count=1):
            opcode, length, at, imm, place = expected[wc.qp_num].popleft()
            assert wc.byte_len == length
            if opcode == WrOpcode.SEND:
                assert wc.opcode == WcOpcode.RECV
                got = s.sink.read(length, wc.wr_id * ROOM)
            else:
                assert (wc.opcode, wc.imm_data) == (WcOpcode.RECV_RDMA_WITH_IMM, imm)
                got = p.mrs[1].read(length, place)
            assert np.array_equal(got, DATA[at : at + length]), (wc, length)
            overtaken += posted[0] != wc.wr_id
            posted.remove(wc.wr_id)
            free.add(wc.wr_id)
            left -= 1
        if rng.random() < 0.4 or len(free) == DEPTH:  # sometimes all have been used up
            await s.post(*free)
            posted += free
            free.clear()
    assert overtaken > 5, "messages that hold a receive while others take theirs"
    sent = await p.good(count=60)
    assert len(sent) == 60
    assert (await p.nodes[1].counters())["out_of_buffer"] > 0


@cocotb.test()
async def held_by_one_that_goes(dut):
    """A QP that is destroyed, or breaks, gives back what it holds; the others and the queue go on.
    Keys are checked against the queue's protection domain. The queue goes when no QP uses it."""
    s = await Shared.up(dut)
    p = s.p
    await s.post(0, 1, 2)
    await s.hold(0)  # takes slot 0
    assert await s.one_message(1) == 1
    await s.pairs[0][1].close()
    (wc,) = await p.done(side=1)
    assert (wc.wr_id, wc.status, wc.qp_num) == (0, WcStatus.WR_FLUSH_ERR, s.pairs[0][1].qp_num)
    assert len(s.srq.queue.pending) == 1, "the ring element has not come back"
    try:
        await s.srq.close()
    except CommandError:
        pass
    else:
        raise AssertionError("A shared queue that QPs use was destroyed")
    # A region of the QPs' domain is not the queue's.
    assert await s.one_message(2) == 2
    await s.srq.post_recv(RecvWR(7, [p.mrs[1].sge(0, 200)]))
    await s.post(3)
    await s.pairs[1][0].post_send(p.request(WrOpcode.SEND, [p.mrs[0].sge(0, 50)]))
    (wc,) = await p.done()
    assert wc.status == WcStatus.REM_OP_ERR
    (wc,) = await p.done(side=1)
    assert (wc.wr_id, wc.status) == (7, WcStatus.LOC_PROT_ERR)
    assert await s.one_message(2) == 3
    for pair in s.pairs[1:]:
        await pair[1].close()
    await s.post(4)  # nobody takes it
    await s.srq.close()
    await s.sink.close()
    await s.pd.close()
    # Whoever gets the pair next begins with nothing.
    s.pd = p.pds[1]
    s.sink = await MR.create(s.pd, DEPTH * ROOM, RIGHTS)
    s.srq = await SRQ.create(s.pd, SrqAttr(DEPTH, 2))
    s.pairs = [await s.connect()]
    await s.post(5)
    assert await s.one_message(0) == 5
