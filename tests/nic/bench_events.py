"""Two whole cards whose drivers have negotiated asynchronous events."""

from dataclasses import replace

import cocotb
from cocotb.triggers import Timer

from hdl.abi.enums import (
    EventType,
    QpAttrMask,
    QpState,
    RdmaFeature,
    SrqAttrMask,
    WcStatus,
    WrOpcode,
)
from sim.bench.system import QpOptions, connect
from sim.guest.driver.device import ALL_FEATURES, DriverOptions
from sim.guest.verbs import CQ, SRQ, AsyncEvent, QPAttr, RdmaError, RecvWR, SrqAttr
from sim.guest.verbs.event import DEPTH
from tests.nic.bench_nic import Pair
from tests.nic.card import CONFIG

OPTIONS = DriverOptions(features=ALL_FEATURES | RdmaFeature.EVENTS.mask)
SQD = QpAttrMask.STATE | QpAttrMask.EN_SQD_ASYNC_NOTIFY


async def up(dut, options=OPTIONS, **more):
    """Two cards; the events of bringing them up have been taken."""
    p = await Pair.up(dut, config=CONFIG, options=options, **more)
    for node in p.nodes:
        assert await node.context.get_async_event() == AsyncEvent(EventType.GID_CHANGE, port_num=1)
        assert await node.context.events.poll() is None
    return p


def about(qp, event=EventType.QP_FATAL):
    return AsyncEvent(event, qp.qp_num)


@cocotb.test()
@cocotb.parametrize(more=[0, 1 << 29])
async def errors_of_queue_pairs(dut, more):
    """Both ends of a request that is refused: each QP once, with an interrupt, beside traffic of
    other queue pairs; and a QP that the driver itself puts into ERR is none. With EVENT_IDX and
    without."""
    p = await up(dut, replace(OPTIONS, features=OPTIONS.features & ~more))
    others = await connect(p.nodes, p.pds, p.cqs)
    seen = [node.context.device.interrupts[1] for node in p.nodes]
    bad = p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(0, 300)])
    bad.set_wr_rdma(p.mrs[1].rkey ^ 1, p.mrs[1].iova)
    await p.qps[0].post_send(bad)
    good = [p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(0, 3000)], number=n) for n in range(9)]
    await others[0].post_send(good)
    await Timer(50, "us")  # who looks before the interrupt comes may get none
    for node, qp, before in zip(p.nodes, p.qps, seen, strict=True):
        assert await node.context.get_async_event() == about(qp)
        assert node.context.device.interrupts[1] > before
        assert (await qp.query()).qp_state == QpState.ERR
    found = await p.done(count=10)
    assert sorted(wc.status for wc in found) == [WcStatus.SUCCESS] * 9 + [WcStatus.REM_ACCESS_ERR]
    await others[1].modify(QPAttr(qp_state=QpState.ERR), QpAttrMask.STATE)
    await Timer(20, "us")
    assert [await node.context.events.poll() for node in p.nodes] == [None, None]


@cocotb.test()
async def overflow_of_a_completion_queue(dut):
    """The CQ's event, then that of the QP whose completion was lost."""
    p = await up(dut)
    small = await CQ.create(p.nodes[0].context, 2)
    qps = await connect(p.nodes, p.pds, (small, p.cqs[1]))
    sge = p.mrs[0].sge(0, 9)
    await qps[0].post_send([p.request(WrOpcode.RDMA_WRITE, [sge], number=n) for n in range(4)])
    context = p.nodes[0].context
    assert await context.get_async_event() == AsyncEvent(EventType.CQ_ERR, small.cqn)
    assert await context.get_async_event() == about(qps[0])


@cocotb.test()
async def drained_send_queue(dut):
    """SQD with notification: the event comes when all that had begun has been acknowledged, and
    WQEs that are posted then wait until the QP is in RTS again."""
    p = await up(dut)
    sge = p.mrs[0].sge(0, 30_000)
    for turn in range(2):
        batch = [p.request(WrOpcode.RDMA_WRITE, [sge], number=n) for n in range(4)]
        await p.qps[0].post_send(batch)
        attr = QPAttr(qp_state=QpState.SQD, en_sqd_async_notify=1)
        await p.qps[0].modify(attr, SQD)
        assert await p.nodes[0].context.get_async_event() == about(p.qps[0], EventType.SQ_DRAINED)
        assert not (await p.qps[0].query()).sq_draining
        ended = await p.cqs[0].poll(9)
        await p.qps[0].post_send(p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(0, 9)], number=9))
        await Timer(20, "us")
        assert not await p.cqs[0].poll(9), turn
        await p.qps[0].modify(QPAttr(qp_state=QpState.RTS), QpAttrMask.STATE)
        ended += await p.good(count=5 - len(ended))
        assert [wc.wr_id for wc in ended] == [0, 1, 2, 3, 9]
    assert await p.nodes[0].context.events.poll() is None


@cocotb.test()
async def limit_of_a_shared_receive_queue(dut):
    """The limit's event comes once, when fewer requests than that are left; then the limit is 0
    until it is armed again. A QP that fails tells when it has given back what it held."""
    p = await up(dut)
    context = p.nodes[1].context
    srq = await SRQ.create(p.pds[1], SrqAttr(16, 1))
    qps = await connect(p.nodes, p.pds, p.cqs, QpOptions(), (None, srq))
    limit = SrqAttrMask.LIMIT

    async def post(count):
        await srq.post_recv([RecvWR(n, [p.mrs[1].sge(99 * n, 99)]) for n in range(count)])

    async def take(count):
        for _ in range(count):
            await qps[0].post_send(p.request(WrOpcode.SEND, [p.mrs[0].sge(0, 99)]))
            await p.good()
            await p.good(1)

    await post(10)
    await srq.modify(SrqAttr(srq_limit=5), limit)
    await take(5)
    await Timer(10, "us")
    assert await context.events.poll() is None and (await srq.query()).srq_limit == 5
    await take(1)
    reached = AsyncEvent(EventType.SRQ_LIMIT_REACHED, srq.srqn)
    assert await context.get_async_event() == reached
    assert (await srq.query()).srq_limit == 0
    await take(1)
    await post(3)
    await Timer(10, "us")
    assert await context.events.poll() is None
    await srq.modify(SrqAttr(srq_limit=7), limit)
    assert await context.get_async_event() == reached, "fewer than that were left"
    bad = p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(0, 9)])
    bad.set_wr_rdma(p.mrs[1].rkey ^ 1, p.mrs[1].iova)
    await qps[0].post_send(bad)
    assert await context.get_async_event() == about(qps[1])
    assert await context.get_async_event() == about(qps[1], EventType.QP_LAST_WQE_REACHED)


@cocotb.test()
async def lost_events(dut):
    """More events than buffers: those that find none are counted in the next one. Without the
    virtqueue all are lost, and it begins anew when it is set up again."""
    p = await up(dut)
    node = p.nodes[0]
    queue = node.context.events
    for index in range(1, 15):
        node.function.set_pkey(index, 0x8000 + index)
    for index in (3, 4, 5, 6, 7):
        await node.context.add_gid(index, f"10.0.9.{index}")
    await Timer(150, "us")
    found = [await queue.get() for _ in range(DEPTH)]
    assert [one.index for one in found] == [*range(1, 15), 3, 4] and not any(
        one.lost for one in found
    )
    assert await queue.poll() is None
    node.function.set_pkey(1, 0x8123)
    assert await queue.get() == AsyncEvent(EventType.PKEY_CHANGE, 0, 1, 1, lost=3)
    await queue.close()
    await node.context.del_gid(3)
    await Timer(20, "us")
    node.context.events = queue = await type(queue).create(node.context.device, 4)
    await node.context.del_gid(4)
    assert await queue.get() == AsyncEvent(EventType.GID_CHANGE, 0, 4, 1, lost=1)
    # The device is reset, and all is as at the beginning.
    await p.again(OPTIONS)
    assert await p.nodes[0].context.get_async_event() == AsyncEvent(
        EventType.GID_CHANGE, port_num=1
    )


@cocotb.test()
async def without_the_feature(dut):
    """A driver that has not negotiated them cannot ask for any, and gets none."""
    p = await Pair.up(dut, config=CONFIG)
    assert p.nodes[0].context.events is None
    attr = QPAttr(qp_state=QpState.SQD, en_sqd_async_notify=1)
    for refused in (p.qps[0].modify(attr, SQD), SRQ.create(p.pds[0], SrqAttr(4, 1, 2))):
        try:
            await refused
        except RdmaError:
            continue
        raise AssertionError("There are no events")
    p.nodes[0].function.set_pkey(1, 0x8001)
    await Timer(20, "us")
    assert not p.nodes[0].function.commands.events.wanted
    await p.qps[0].post_send(p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(0, 9)]))
    await p.good()
