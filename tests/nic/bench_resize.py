"""Two whole cards: queues get other sizes while they are in use."""

import cocotb
import numpy as np
from cocotb.triggers import Timer

from hdl.abi.enums import QpType, SrqAttrMask, WcStatus, WrOpcode
from sim.bench.system import QpOptions, connect, join
from sim.guest.verbs import CQ, QP, SRQ, QPCap, QPInitAttr, RdmaError, RecvWR, SrqAttr
from tests.nic.bench_nic import DATA, Pair
from tests.nic.card import CONFIG


async def refused(operation):
    """The driver or the device refuses it."""
    try:
        await operation
    except RdmaError:
        return
    raise AssertionError("It should have been refused")


def writes(p, numbers):
    """WRITEs whose payload tells them apart."""
    return [
        p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(n, 600)], offset=700 * n, number=n)
        for n in numbers
    ]


def landed(p, number):
    return np.array_equal(p.mrs[1].read(600, 700 * number), DATA[number : number + 600])


@cocotb.test()
async def completion_queue(dut):
    """It grows and shrinks with completions in it, which survive, between and during traffic. Its
    depth is what it says: one completion more is lost."""
    p = await Pair.up(dut, config=CONFIG)
    cq = await CQ.create(p.nodes[0].context, 4, room=40)
    qps = await connect(p.nodes, p.pds, (cq, p.cqs[1]))
    await qps[0].post_send(writes(p, range(3)))
    await Timer(20, "us")
    await cq.resize(40)
    await qps[0].post_send(writes(p, range(3, 20)))  # while they are under way
    await cq.resize(39)
    await qps[0].post_send(writes(p, range(20, 33)))
    await Timer(40, "us")
    await refused(cq.resize(32))
    await refused(cq.resize(41))
    found = await cq.poll(20)
    await cq.resize(13)
    found += await cq.wait(13)
    assert [wc.wr_id for wc in found] == list(range(33))
    assert all(wc.status == WcStatus.SUCCESS for wc in found) and all(
        landed(p, n) for n in range(33)
    )
    await cq.resize(3)
    # The ring still holds buffers of before, which are not replaced.
    for turn in range(12):
        await qps[0].post_send(writes(p, range(3 * turn, 3 * turn + 3)))
        assert [wc.wr_id for wc in await cq.wait(3)] == [3 * turn + n for n in range(3)]
    await qps[0].post_send(writes(p, range(4)))
    await Timer(30, "us")
    assert [wc.wr_id for wc in await cq.poll(9)] == [0, 1, 2]
    assert (await p.nodes[0].counters())["cq_overflows"] >= 1


@cocotb.test()
async def queue_pair(dut):
    """Send and receive queue grow with requests in them, and shrink; all of them end in order."""
    p = await Pair.up(dut, config=CONFIG)
    cap = QPCap(max_send_wr=2, max_recv_wr=2, max_send_sge=2, max_recv_sge=2)
    qps = []
    for pd, cq in zip(p.pds, p.cqs, strict=True):
        qps.append(await QP.create(pd, QPInitAttr(QpType.RC, cq, cq, cap, room=16)))
    options = QpOptions(rnr_retry=7, min_rnr_timer=1)
    await join(p.nodes, tuple(qps), options)

    def sends(numbers):
        return [p.request(WrOpcode.SEND, [p.mrs[0].sge(n, 900)], number=n) for n in numbers]

    def sinks(numbers):
        return [RecvWR(n, [p.mrs[1].sge(1000 * n, 900)]) for n in numbers]

    await qps[1].post_recv(sinks(range(2)))
    await refused(qps[1].post_recv(sinks([2])))
    await qps[0].post_send(sends(range(2)))
    for qp in qps:
        await qp.resize(16, 15)
        cap = (await qp.query()).cap
        assert (cap.max_send_wr, cap.max_recv_wr) == (16, 15)
    # More than there are receives: the rest waits in the send queue.
    await qps[0].post_send(sends(range(2, 16)))
    await refused(qps[0].resize(3, 15))
    await refused(qps[0].resize(17, 15))
    await qps[1].post_recv(sinks(range(2, 14)))
    got = await p.good(1, 14)
    await qps[1].resize(16, 2)
    await qps[1].post_recv(sinks(range(14, 16)))
    await refused(qps[1].post_recv(sinks([16])))
    got += await p.good(1, 2)
    assert [wc.wr_id for wc in got] == list(range(16))
    assert [wc.wr_id for wc in await p.good(0, 16)] == list(range(16))
    for n in range(16):
        assert np.array_equal(p.mrs[1].read(900, 1000 * n), DATA[n : n + 900])
    await qps[0].resize(1, 1)
    for n in range(5):
        await qps[1].post_recv(sinks([n]))
        await qps[0].post_send(sends([n]))
        await p.good()
        await p.good(1)


@cocotb.test()
async def shared_receive_queue(dut):
    """It grows with requests that queue pairs hold and wait for, and shrinks again."""
    p = await Pair.up(dut, config=CONFIG)
    srq = await SRQ.create(p.pds[1], SrqAttr(2, 1), room=16)
    options = QpOptions(rnr_retry=7, min_rnr_timer=1)
    pairs = [await connect(p.nodes, p.pds, p.cqs, options, (None, srq)) for _ in range(2)]
    size = SrqAttrMask.MAX_WR

    async def post(numbers):
        await srq.post_recv([RecvWR(n, [p.mrs[1].sge(1000 * n, 900)]) for n in numbers])

    async def send(count):
        for n in range(count):
            sge = p.mrs[0].sge(n, 900)
            await pairs[n % 2][0].post_send(p.request(WrOpcode.SEND, [sge], number=n))

    await post(range(2))
    await refused(post([2]))
    await send(14)
    await srq.modify(SrqAttr(16), size)
    assert (await srq.query()).max_wr == 16
    await post(range(2, 14))
    assert sorted(wc.wr_id for wc in await p.good(1, 14)) == list(range(14))
    await p.good(0, 14)
    await post(range(3))
    await refused(srq.modify(SrqAttr(2), size))
    await refused(srq.modify(SrqAttr(17), size))
    await srq.modify(SrqAttr(3), size)
    await refused(post([3]))
    await send(3)
    await p.good(1, 3)
    await p.good(0, 3)
    await post([5])
    await send(1)
    (wc,) = await p.good(1)
    assert wc.wr_id == 5
