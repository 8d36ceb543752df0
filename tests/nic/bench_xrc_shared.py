"""XRC between two whole cards, both of which have initiators, targets and a domain; and what a
receive queue of a domain has as any shared one."""

import cocotb
import numpy as np
from cocotb.triggers import Timer

from hdl.abi.enums import EventType, QpType, SrqAttrMask, WcOpcode, WcStatus, WrOpcode
from sim.bench.system import System, join, together
from sim.guest.verbs import CQ, MR, QP, SRQ, XRCD, QPInitAttr, RdmaError, RecvWR, SendWR, SrqAttr
from tests.nic.card import ALL
from tests.nic.initiator import CAP, RIGHTS, WITH_EVENTS
from tests.nic.xrc import OPTIONS, Xrc

SIZE, DEPTH = 600, 64
#: Of each initiator, and how many are posted at a time.
MESSAGES, BATCH = 192, 16


class End:
    """A card with a domain, two receive queues in it with a CQ each, and two initiators."""

    @classmethod
    async def up(cls, node, seed):
        self, context = cls(), node.context
        self.node = node
        self.pd, self.xrcd = await context.alloc_pd(), await XRCD.create(context)
        self.cqs = [await CQ.create(context, 256) for _ in range(2)]
        attr = SrqAttr(DEPTH, 1)
        self.queues = [await SRQ.create(self.pd, attr, xrcd=self.xrcd, cq=cq) for cq in self.cqs]
        self.mr, self.sink = [await MR.create(self.pd, 1 << 17, RIGHTS, offset=7) for _ in range(2)]
        self.data = np.random.default_rng(seed).integers(0, 256, 1 << 17, np.uint8)
        self.mr.write(self.data)
        self.posted, self.taken = [0, 0], [0, 0]
        self.targets: set[int] = set()
        return self

    async def post(self, queue, count):
        """So many requests more; each queue has its half of the sink."""
        numbers = range(self.posted[queue], self.posted[queue] + count)
        self.posted[queue] += count
        requests = [RecvWR(n, [self.sink.sge(self.place(queue, n), SIZE)]) for n in numbers]
        await self.queues[queue].post_recv(requests)

    @staticmethod
    def place(queue, number):
        return (queue << 16) + number % DEPTH * SIZE


@cocotb.test()
async def t_x2_both_directions(dut):
    """T-X2: two initiators of each card send to two queues of the other one at the same time. Each
    queue gets what names it, of each initiator in order, in its own CQ, and each byte is right."""
    system = await System.start(dut, ALL, options=WITH_EVENTS)
    for node in system.nodes:
        node.host.set(mmio_latency_ns=0)
    ends = [await End.up(node, seed) for seed, node in enumerate(system.nodes)]
    senders = {}
    for side, end in enumerate(ends):
        other = ends[1 - side]
        for number in range(2):
            cq = await CQ.create(end.node.context, 256)
            ini, tgt = await together(
                QP.create(end.pd, QPInitAttr(QpType.XRC_INI, cq, cap=CAP)),
                QP.create(other.pd, QPInitAttr(QpType.XRC_TGT, xrcd=other.xrcd)),
            )
            pair = (ini, tgt) if side == 0 else (tgt, ini)
            await join(system.nodes, pair, OPTIONS)
            senders[side, number] = ini, cq
            other.targets.add(tgt.qp_num)
        for queue in range(2):
            await end.post(queue, DEPTH)

    async def send(side, number):
        """Messages in turn to both queues: the number in the immediate, other data each."""
        (qp, cq), other = senders[side, number], ends[1 - side]
        for first in range(0, MESSAGES, BATCH):
            batch = []
            for n in range(first, first + BATCH):
                sges = [ends[side].mr.sge(n * 13 + number, SIZE - n % 7)]
                wr = SendWR(n, WrOpcode.SEND_WITH_IMM, sges, imm_data=number << 16 | n)
                wr.set_wr_xrc_srqn(other.queues[n % 2].srq_num)
                batch.append(wr)
            await qp.post_send(batch)
            if first:  # two batches are outstanding
                await ended(cq)
        await ended(cq)
        assert await cq.poll(1) == []

    async def ended(cq):
        done = await cq.wait(BATCH, timeout_ns=4_000_000)
        assert all(wc.status == WcStatus.SUCCESS for wc in done), done

    async def receive(side, queue):
        """Each message of both initiators that names the queue, and nothing else."""
        end, theirs = ends[side], ends[1 - side]
        following = [queue, queue]
        while min(following) < MESSAGES:
            found = await end.cqs[queue].wait(1, timeout_ns=4_000_000)
            for wc in found:
                assert (wc.status, wc.opcode) == (WcStatus.SUCCESS, WcOpcode.RECV), wc
                assert wc.qp_num in end.targets
                number, n = wc.imm_data >> 16, wc.imm_data & 0xFFFF
                assert n == following[number], (number, n, following)
                assert wc.wr_id == end.taken[queue] and wc.byte_len == SIZE - n % 7
                got = end.sink.read(wc.byte_len, end.place(queue, wc.wr_id))
                at = n * 13 + number
                assert np.array_equal(got, theirs.data[at : at + wc.byte_len])
                following[number] += 2
                end.taken[queue] += 1
            await end.post(queue, len(found))

    work = [one(*key) for one in (send, receive) for key in senders]
    for task in [cocotb.start_soon(one) for one in work]:
        await task
    for end in ends:
        assert not end.node.host.faults
        for cq in end.cqs:
            assert await cq.poll(1) == []


@cocotb.test()
async def t_x15_limit_and_size(dut):
    """T-X15: a receive queue of a domain tells of its limit, once, and grows and shrinks with what
    is in it, as any shared one."""
    p = await Xrc.up(dut, processes=1)
    (process,) = p.processes
    context, srq = p.nodes[1].context, process.srq
    await process.post(*range(10))
    await srq.modify(SrqAttr(srq_limit=5), SrqAttrMask.LIMIT)

    async def take(count):
        await p.ini.post_send([p.send(64 * n, 64, n) for n in range(count)])
        await p.good(count)
        return [wc.wr_id for wc in await process.done(count)]

    async def limits():
        found = []
        while event := await context.events.poll():
            found.append((event.event, event.number))
        return found.count((EventType.SRQ_LIMIT_REACHED, srq.srqn))

    assert await take(5) == list(range(5))
    await Timer(10, "us")
    assert await limits() == 0
    assert await take(1) == [5]
    await Timer(10, "us")
    assert await limits() == 1 and (await srq.query()).srq_limit == 0
    assert await take(1) == [6]
    await Timer(10, "us")
    assert await limits() == 0
    for size in (2, 1 << 14):
        try:
            await srq.modify(SrqAttr(size), SrqAttrMask.MAX_WR)
            raise AssertionError("refused: fewer than are posted, and more than there is room for")
        except RdmaError:
            pass
    await srq.modify(SrqAttr(4), SrqAttrMask.MAX_WR)
    assert (await srq.query()).max_wr == 4
    await process.post(10)
    assert await take(4) == [7, 8, 9, 10]
    await p.well()
