"""Two whole cards whose drivers have negotiated that a broken ring stops its own objects alone."""

import random
from dataclasses import replace

import cocotb
from cocotb.triggers import Timer

from hdl.abi.enums import EventType, QpState, RdmaFeature, WcStatus, WrOpcode
from hdl.abi.virtio_pci import Feature, Status
from sim.bench.broken_rings import KINDS, break_ring
from sim.bench.system import QpOptions, connect, together
from sim.guest.driver.device import ALL_FEATURES, DriverOptions
from sim.guest.verbs import CQ, SRQ, AsyncEvent, RecvWR, SrqAttr
from sim.guest.verbs.event import DEPTH
from tests.nic.bench_events import about
from tests.nic.bench_nic import Pair
from tests.nic.card import CONFIG
from tests.slow import QUICK

FEATURES = RdmaFeature.EVENTS.mask | RdmaFeature.QUEUE_ERROR.mask
OPTIONS = DriverOptions(features=ALL_FEATURES | FEATURES)
#: With data in it, a doorbell that tells no news makes the card look at nothing.
PLAIN = replace(OPTIONS, features=OPTIONS.features & ~Feature.NOTIFICATION_DATA.mask)
#: What breaks a ring; others leave it as it is, and break what the element holds.
SEND_KINDS = [kind for kind in KINDS if kind != "address"]
RECEIVE_KINDS = ["avail index", "head", "loop", "length 0", "writable", "bad indirect"]
#: A CQ's buffers are writable.
CQ_KINDS = ["avail index", "head", "loop", "length 0", "4 GiB chain", "bad indirect"]


class Beside:
    """A pair of cards with a QP whose traffic never stops, and which nothing may disturb."""

    @classmethod
    async def up(cls, dut, options=OPTIONS):
        self = cls()
        self.p = p = await Pair.up(dut, config=CONFIG, options=options)
        for node in p.nodes:
            await node.context.get_async_event()  # of its GID
        self.other_cqs = await together(*(CQ.create(n.context, 64) for n in p.nodes))
        self.sent, self.running = 0, True
        self.task = cocotb.start_soon(self._traffic())
        return self

    async def _traffic(self):
        p = self.p
        while self.running:
            sges = [p.mrs[0].sge(self.sent % 999, 3000)]
            batch = [p.request(WrOpcode.RDMA_WRITE, sges, number=n) for n in range(4)]
            await p.qps[0].post_send(batch)
            await p.good(count=4)
            self.sent += 4

    async def victims(self, srqs=(None, None), cqs=None, options=None):
        """Two connected QPs that complete elsewhere than those with the traffic."""
        p = self.p
        return await connect(p.nodes, p.pds, cqs or self.other_cqs, options, srqs)

    async def event(self, side=0):
        return await self.p.nodes[side].context.get_async_event()

    async def undisturbed(self):
        """The traffic goes on; no device asks for a reset; no event is left."""
        before = self.sent
        while self.sent < before + 8:
            await Timer(1, "us")
        for node in self.p.nodes:
            assert not await node.context.device.status() & Status.DEVICE_NEEDS_RESET
            assert await node.context.events.poll() is None
            assert (await self.p.qps[0].query()).qp_state == QpState.RTS

    async def end(self):
        self.running = False
        await self.task

    async def works(self, qps, cqs=None):
        """A message from the first QP to the second."""
        p, cqs = self.p, cqs or self.other_cqs
        await qps[1].post_recv(RecvWR(5, [p.mrs[1].sge(70_000, 500)]))
        await qps[0].post_send(p.request(WrOpcode.SEND, [p.mrs[0].sge(3, 400)], number=6))
        for cq, number in zip(cqs, (6, 5), strict=True):
            (wc,) = await cq.wait(1)
            assert (wc.wr_id, wc.status) == (number, WcStatus.SUCCESS)

    async def errors(self, side):
        return (await self.p.nodes[side].counters())["queue_errors"]


@cocotb.test()
async def send_queue(dut):
    """Whatever breaks it: the QP's event, and ERR, in which the request before the broken one has
    ended; the next QP of the pair works."""
    b, rng = await Beside.up(dut), random.Random(3)
    p = b.p
    for kind in SEND_KINDS:
        bad = await b.victims()
        ring, before = bad[0].sq.ring, await b.errors(0)
        good = p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(0, 9)], number=1)
        await bad[0].post_send(good)
        (wc,) = await b.other_cqs[0].wait(1)
        assert wc.status == WcStatus.SUCCESS
        await bad[0].sq.post(good.pack(None))
        ring.publish()
        break_ring(kind, ring, p.nodes[0].host.memory, rng)
        await p.nodes[0].context.device.notify(ring)
        assert await b.event() == about(bad[0]), kind
        assert await b.errors(0) > before, kind
        assert (await bad[0].query()).qp_state == QpState.ERR
        for wc in await b.other_cqs[0].poll(9):  # of a WQE that could be read
            assert wc.status != WcStatus.SUCCESS, kind
        await b.undisturbed()
        await together(*(qp.close() for qp in bad))
        again = await b.victims()
        assert again[0].sq.ring.index == ring.index
        await b.works(again)
        await together(*(qp.close() for qp in again))
    await b.end()


@cocotb.test(skip=QUICK)
async def receive_queue(dut):
    """The QP with the broken ring, and its peer, whose request is refused; nobody else."""
    b, rng = await Beside.up(dut), random.Random(4)
    p = b.p
    for kind in RECEIVE_KINDS:
        bad = await b.victims()
        ring = bad[1].rq.ring
        await bad[1].rq.post(RecvWR(1, [p.mrs[1].sge(70_000, 500)]).pack())
        ring.publish()
        break_ring(kind, ring, p.nodes[1].host.memory, rng)
        await p.nodes[1].context.device.notify(ring)
        await bad[0].post_send(p.request(WrOpcode.SEND, [p.mrs[0].sge(3, 400)], number=6))
        (wc,) = await b.other_cqs[0].wait(1)
        assert wc.status == WcStatus.REM_OP_ERR, kind
        for side in (0, 1):
            assert await b.event(side) == about(bad[side]), kind
        await b.undisturbed()
        await together(*(qp.close() for qp in bad))
        again = await b.victims()
        assert again[1].rq.ring.index == ring.index
        await b.works(again)
        await together(*(qp.close() for qp in again))
    await b.end()


@cocotb.test()
async def shared_receive_queue(dut):
    """The event of the SRQ, then of each QP that takes from it; the others do not notice. An SRQ of
    the same number works."""
    b, rng = await Beside.up(dut), random.Random(5)
    p = b.p
    for kind in ("head", "avail index"):
        srq = await SRQ.create(p.pds[1], SrqAttr(16, 1))
        pairs = [await b.victims((None, srq)) for _ in range(2)]
        ring = srq.queue.ring
        await srq.queue.post(RecvWR(1, [p.mrs[1].sge(70_000, 500)]).pack())
        ring.publish()
        break_ring(kind, ring, p.nodes[1].host.memory, rng)
        await pairs[0][0].post_send(p.request(WrOpcode.SEND, [p.mrs[0].sge(3, 400)]))
        found = [await b.event(1) for _ in range(5)]
        # That of a QP which the card has stopped itself may come before.
        wanted = {AsyncEvent(EventType.SRQ_ERR, srq.srqn)}
        for qp in (pairs[0][1], pairs[1][1]):
            wanted |= {about(qp), about(qp, EventType.QP_LAST_WQE_REACHED)}
        assert set(found) == wanted, found
        assert await b.event(0) == about(pairs[0][0])
        for one in pairs:
            assert (await one[1].query()).qp_state == QpState.ERR
        await b.other_cqs[0].wait(1)
        await b.undisturbed()
        for one in pairs:
            await together(*(qp.close() for qp in one))
        await srq.close()
        again = await SRQ.create(p.pds[1], SrqAttr(16, 1))
        assert again.srqn == srq.srqn
        qps = await b.victims((None, again))
        await again.post_recv(RecvWR(5, [p.mrs[1].sge(70_000, 500)]))
        await qps[0].post_send(p.request(WrOpcode.SEND, [p.mrs[0].sge(3, 400)], number=6))
        for cq in b.other_cqs:
            (wc,) = await cq.wait(1)
            assert wc.status == WcStatus.SUCCESS, kind
        await together(*(qp.close() for qp in qps))
        await again.close()
    await b.end()


@cocotb.test(skip=QUICK)
async def completion_queue(dut):
    """The event of the CQ, then of all QPs that use it, also of one that does nothing; a CQ of the
    same number works."""
    b, rng = await Beside.up(dut), random.Random(6)
    p = b.p
    context = p.nodes[0].context
    for kind in CQ_KINDS:
        small = await CQ.create(context, 1)
        cqs = (small, b.other_cqs[1])
        bad, idle = await b.victims(cqs=cqs), await b.victims(cqs=cqs)
        break_ring(kind, small.queue, p.nodes[0].host.memory, rng)
        await bad[0].post_send(p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(0, 9)]))
        assert await b.event() == AsyncEvent(EventType.CQ_ERR, small.cqn), kind
        assert {await b.event(), await b.event()} == {about(bad[0]), about(idle[0])}, kind
        for qps in (bad, idle):
            assert (await qps[0].query()).qp_state == QpState.ERR
        await b.undisturbed()
        for qps in (bad, idle):
            await together(*(qp.close() for qp in qps))
        await small.close()
        again = await CQ.create(context, 1)
        assert again.cqn == small.cqn
        qps = await b.victims(cqs=(again, b.other_cqs[1]))
        await b.works(qps, (again, b.other_cqs[1]))
        await together(*(qp.close() for qp in qps))
        await again.close()
    await b.end()


@cocotb.test()
async def control_and_event_queue(dut):
    """Their errors still need a reset of the function."""
    p = await Pair.up(dut, config=CONFIG, options=OPTIONS)
    context = p.nodes[0].context
    ring = context.events._ring
    break_ring("avail index", ring, p.nodes[0].host.memory, random.Random(7))
    # Buffers that the card knows of are used before it looks at the index again.
    for index in range(1, 30):
        p.nodes[0].function.set_pkey(index % 8 + 1, 0x8000 + index)
        await Timer(20, "us")
        if await context.device.status() & Status.DEVICE_NEEDS_RESET:
            break
    state = await p.nodes[0].registers.needs_reset()
    assert state["active"] and state["queue"] == ring.index
    await p.again(OPTIONS)
    await p.qps[0].post_send(p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(1, 99)]))
    await p.good()


@cocotb.test()
async def without_the_feature(dut):
    """A driver that has negotiated events alone has to reset the function."""
    only = replace(OPTIONS, features=ALL_FEATURES | RdmaFeature.EVENTS.mask)
    p = await Pair.up(dut, config=CONFIG, options=only)
    ring = p.qps[0].sq.ring
    break_ring("avail index", ring, p.nodes[0].host.memory, random.Random(8))
    await p.nodes[0].context.device.notify(ring)
    await Timer(50, "us")
    state = await p.nodes[0].registers.needs_reset()
    assert state["active"] and state["queue"] == ring.index
    await p.again(only)
    await p.qps[0].post_send(p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(1, 99)]))
    await p.good()


@cocotb.test()
async def who_breaks_as_fast_as_it_can(dut):
    """One process rings the doorbells of its broken queues without end. The others have the same
    share of the card as beside one that rings sound queues, and the event of another queue that
    breaks is not lost."""
    b, rng = await Beside.up(dut, PLAIN), random.Random(9)
    p = b.p
    device = p.nodes[0].context.device
    bad = [await b.victims() for _ in range(3)]
    last = await b.victims()
    rings = [qp.ring for pair in bad for qp in (pair[0].sq, pair[0].rq)]

    async def share():
        """Messages of the traffic while all doorbells are rung for 300 us, as fast as the card
        takes them: those that wait in front of it would keep back everybody's."""
        before, end = b.sent, device.platform.now() + 300_000
        while device.platform.now() < end:
            for ring in rings:
                await device.notify(ring)
                await Timer(80, "ns")
        return b.sent - before

    sound = await share()
    for ring in rings:
        break_ring("avail index", ring, p.nodes[0].host.memory, rng)
    broken = await share()
    assert {await b.event() for _ in bad} == {about(pair[0]) for pair in bad}
    assert broken > 0.9 * sound, (broken, sound)
    dut._log.info("messages beside doorbells of sound queues %d, of broken ones %d", sound, broken)
    break_ring("avail index", last[0].sq.ring, p.nodes[0].host.memory, rng)
    await device.notify(last[0].sq.ring)
    await share()
    assert await b.event() == about(last[0])
    await b.undisturbed()
    await b.end()


@cocotb.test(skip=QUICK)
async def more_events_than_buffers(dut):
    """A CQ with more QPs than the event queue has buffers: each event comes, and that of another
    process behind them."""
    b, rng = await Beside.up(dut, PLAIN), random.Random(11)
    p = b.p
    small = await CQ.create(p.nodes[0].context, 1)
    many = [(await b.victims(cqs=(small, b.other_cqs[1])))[0] for _ in range(DEPTH + 4)]
    other = await b.victims()
    break_ring("avail index", small.queue, p.nodes[0].host.memory, rng)
    await many[0].post_send(p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(0, 9)]))
    await Timer(300, "us")
    break_ring("avail index", other[0].sq.ring, p.nodes[0].host.memory, rng)
    await p.nodes[0].context.device.notify(other[0].sq.ring)
    await Timer(50, "us")
    found = [await b.event() for _ in range(len(many) + 2)]
    assert found[0] == AsyncEvent(EventType.CQ_ERR, small.cqn), found
    assert {one.number for one in found[1:]} == {qp.qp_num for qp in (*many, other[0])}
    assert not any(one.lost for one in found)
    await b.undisturbed()
    await b.end()


@cocotb.test()
async def nobody_else_in_error(dut):
    """With peers that retry: what a broken QP leaves unanswered ends with retries exceeded."""
    b, rng = await Beside.up(dut), random.Random(10)
    p = b.p
    bad = await b.victims(options=QpOptions(timeout=1, retry_cnt=1))
    ring = bad[1].sq.ring
    break_ring("avail index", ring, p.nodes[1].host.memory, rng)
    await p.nodes[1].context.device.notify(ring)
    assert await b.event(1) == about(bad[1])
    await bad[0].post_send(p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(0, 9)], number=3))
    (wc,) = await b.other_cqs[0].wait(1)
    assert (wc.wr_id, wc.status) == (3, WcStatus.RETRY_EXC_ERR)
    assert await b.event(0) == about(bad[0])
    await b.undisturbed()
    await b.end()
