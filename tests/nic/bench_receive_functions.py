"""Two cards with two guest functions, XRC, and receive requests that take several packets: domains
and queues of one function are nobody else's; packed rings."""

from dataclasses import replace

import cocotb
import numpy as np
import pytest

from hdl.abi.enums import QpType, RdmaFeature, WcStatus
from hdl.abi.virtio_pci import Feature
from sim.bench.system import Node, System, together
from sim.guest.driver.device import ALL_FEATURES, DriverOptions
from sim.guest.driver.errors import CommandError, RdmaError
from sim.guest.verbs import QP, SRQ, XRCD, MpWr, QPInitAttr, SrqAttr
from tests.mp_wr_source import CONSUMED
from tests.nic.bench_mp_wr import example
from tests.nic.card import FUNCTIONS
from tests.nic.initiator import WITH_EVENTS
from tests.nic.mp_wr import OPTIONS, MpWrPair
from tests.nic.xrc import Process, Xrc

PACKED = DriverOptions(features=ALL_FEATURES | Feature.RING_PACKED.mask)


async def up(dut):
    """A connection of each function, with a receive queue in a domain of its own."""
    system = await System.start(dut, FUNCTIONS, options=WITH_EVENTS)
    second = [Node(system.testbench, node.index, beside=node) for node in system.nodes]
    await together(*(node.start(WITH_EVENTS) for node in second))
    return [await Xrc.on(system, nodes, processes=1) for nodes in (system.nodes, second)]


async def arrives(p, place, length):
    """A message comes to the connection's own process."""
    (process,) = p.processes
    await process.post(0)
    await p.ini.post_send(p.send(place, length))
    await p.good()
    (wc,) = await process.done()
    assert (wc.status, wc.byte_len, wc.qp_num) == (WcStatus.SUCCESS, length, p.tgt.qp_num)
    assert np.array_equal(process.mr.read(length), p.data[place : place + length])


@cocotb.test()
async def t_x4_number_of_another_function(dut):
    """T-X4, X-6: both functions have the same numbers of queue pairs, domains and receive queues,
    and each number is that of the own function. One that only the other function has is refused."""
    first, second = await up(dut)
    ours, theirs = first.processes[0], second.processes[0]
    assert first.tgt.qp_num == second.tgt.qp_num
    assert (ours.srq.srqn, ours.srq.srq_num) == (theirs.srq.srqn, theirs.srq.srq_num)
    for n in range(3):
        await arrives(first, 100 * n, 700 + n)
        await arrives(second, 3000 + 100 * n, 1024 - n)
    more = await Process.up(second.nodes[1].context, second.xrcd)
    assert more.srq.srq_num != ours.srq.srq_num
    await more.post(0)
    before = more.mr.read(2000)
    await first.ini.post_send(first.send(0, 100, srq_num=more.srq.srq_num))
    (wc,) = await first.done()
    assert wc.status == WcStatus.REM_ACCESS_ERR
    assert await more.cq.poll(1) == [] and np.array_equal(more.mr.read(2000), before)
    await second.ini.post_send(second.send(0, 100, srq_num=more.srq.srq_num))
    await second.good()
    (wc,) = await more.done()
    assert (wc.status, wc.qp_num) == (WcStatus.SUCCESS, second.tgt.qp_num)
    await first.connect()
    await arrives(first, 0, 64)
    for p in (first, second):
        await p.well()


@cocotb.test()
async def t_x10_domain_of_another_function(dut):
    """T-X10: a function makes no queue and no target in a domain of another one, frees none, and
    destroys no receive queue of it; what the other function has goes on."""
    first, second = await up(dut)
    here, there = first.nodes[1].context, second.nodes[1].context
    more = await XRCD.create(there)
    assert more.xrcdn != first.xrcd.xrcdn
    process = await Process.up(there, more)
    strange = XRCD(here, more.xrcdn)
    ours = first.processes[0]
    with pytest.raises(CommandError):
        await SRQ.create(ours.pd, SrqAttr(8, 1), xrcd=strange, cq=ours.cq)
    with pytest.raises(CommandError):
        await QP.create(first.there, QPInitAttr(QpType.XRC_TGT, xrcd=strange))
    with pytest.raises(CommandError):
        await strange.close()
    with pytest.raises(CommandError):
        await SRQ(ours.pd, SrqAttr(8, 1), process.srq.srqn).query()
    await second.connect(xrcd=more)
    second.processes[0] = process
    await arrives(second, 5, 300)
    await arrives(first, 7, 500)
    await first.ini.close()
    await first.tgt.close()
    await ours.srq.close()
    await first.xrcd.close()  # the other function has one of this number as well
    await arrives(second, 9, 200)


@cocotb.test()
async def mp_wr_with_packed_rings(dut):
    """The requests for several packets of a receive queue that is a packed ring: each goes back
    when it has been used up, and the next one is opened. Shared queues are not offered then."""
    few = {"cap": replace(OPTIONS.cap, max_recv_wr=8)}
    p = await MpWrPair.up(dut, 65536, 512, config=FUNCTIONS, driver=PACKED, options=few)
    device = p.nodes[1].context.device
    assert device.has(RdmaFeature.MP_WR) and not device.has(RdmaFeature.SRQ)
    assert device.features & Feature.RING_PACKED.mask
    with pytest.raises(RdmaError):
        await SRQ.create(p.pds[1], SrqAttr(8, 1), mp_wr=MpWr(4096, 64))
    await p.post(2)
    await example(p, "c", [12000] * 6)
    await p.again()
    await p.post(2)
    await example(p, "e", [4096] * 15 + [3500, 1024])
    await p.again(8192, 1024)
    for n in range(12):  # 19 requests, more than twice as many as the queue holds
        await p.post(2 if n % 2 or not n else 1, cuts=(100, 5000))
        await p.send([3000, 8192, 1], at=100 * n)
        found = await p.check()
        assert any(one.flags & CONSUMED for one in found)
    await p.well()
