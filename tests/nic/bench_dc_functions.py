"""Connections of DC of two guest functions of each card: numbers of one are nobody else's, and
what one does to its own leaves the other's alone."""

import random

import cocotb
import numpy as np
from cocotb.triggers import Timer

from hdl.abi.enums import WcStatus
from sim.bench.system import Node, System, together
from sim.guest.verbs import query_dct
from tests.nic.card import FUNCTIONS
from tests.nic.dc import Dc, all_free
from tests.nic.initiator import WITH_EVENTS
from tests.slow import QUICK


async def up(dut):
    """Of each function an initiator on the first card, and a target on the second one."""
    system = await System.start(dut, FUNCTIONS, options=WITH_EVENTS)
    second = [Node(system.testbench, node.index, beside=node) for node in system.nodes]
    await together(*(node.start(WITH_EVENTS) for node in second))
    found = []
    for nodes in (system.nodes, second):
        for node in nodes:
            node.host.set(mmio_latency_ns=0)
        p = await Dc.on(system, nodes[0], [nodes[1]])
        p.nodes = nodes
        found.append(p)
    return found


async def arrive(p, first, count=1, *, size=300):
    """Messages to the own target, each connected anew if the one before has ended."""
    (target,) = p.targets
    for n in range(first, first + count):
        await target.post(n)
        await p.qp.post_send(p.send(n, size, n))
        await p.good()
        (wc,) = await target.done()
        assert (wc.wr_id, wc.status, wc.byte_len) == (n, WcStatus.SUCCESS, size)
        at = 1024 * n % len(p.data)
        assert np.array_equal(target.mr.read(size, at), p.data[n : n + size])


@cocotb.test()
async def numbers_of_another_function(dut):
    """Both functions have initiators and targets of the same numbers and keys; messages of both go
    at once, to the own target. A target that only the other function has is nobody at the own
    address, and one of the other function's address is reached there."""
    first, second = await up(dut)
    assert first.qp.qp_num == second.qp.qp_num
    assert first.targets[0].qp.qp_num == second.targets[0].qp.qp_num
    await together(arrive(first, 0, 8), arrive(second, 10, 8))
    more = await Dc.on(second.system, second.node, [second.nodes[1]])
    (theirs,) = more.targets
    assert theirs.qp.qp_num != first.targets[0].qp.qp_num
    await theirs.post(0)
    strange = await first.way(first.targets[0], dctn=theirs.qp.qp_num, key=theirs.key)
    await first.qp.post_send(first.send(0, 64, 1, way=strange))
    (wc,) = await first.done()
    assert wc.status == WcStatus.REM_ACCESS_ERR
    assert (await query_dct(theirs.qp)).connects == 0
    first.qp = await first.initiator()
    known = await first.way(theirs)
    await first.qp.post_send(first.send(7, 64, 2, way=known))
    await first.good()
    (wc,) = await theirs.done()
    assert (wc.status, wc.byte_len) == (WcStatus.SUCCESS, 64)
    assert np.array_equal(theirs.mr.read(64), first.data[7:71])
    await together(arrive(first, 20), arrive(second, 21))
    for p in (first, second, more):
        await all_free(p)
        await p.well()


@cocotb.test(skip=QUICK)
async def a_function_is_reset(dut):
    """A function with a connection, or about to have one, is reset and comes up again, on either
    side in turn; each message of the other function arrives, and the first one's new initiator
    reaches its target."""
    first, second = await up(dut)
    busy = cocotb.start_soon(arrive(second, 0, 40))
    for turn in range(4):
        (target,) = first.targets
        await target.post(*range(4))
        await first.qp.post_send([first.send(n, 3000, n) for n in range(4)])
        await Timer(random.Random(turn).randrange(1_000, 60_000), "ns")
        nodes = first.nodes
        node = nodes[turn % 2]
        await node.context.close()
        await node.start(WITH_EVENTS)
        node.host.set(mmio_latency_ns=0)
        first = await Dc.on(first.system, nodes[0], [nodes[1]])
        first.nodes = nodes
        await arrive(first, turn)
    await busy
    await all_free(second)
    await second.well()
    for node in first.nodes:
        assert not node.host.faults, node.host.faults
