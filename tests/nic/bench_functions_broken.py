"""Two cards with two guest functions: a broken ring of one, with and without QUEUE_ERROR."""

from __future__ import annotations

import random

import cocotb

from hdl.abi.enums import EventType, RdmaFeature
from hdl.abi.virtio_pci import Feature, Status
from sim.bench.broken_rings import break_ring
from sim.bench.system import together
from sim.guest.driver.device import ALL_FEATURES, DriverOptions
from tests.nic.bench_functions import up
from tests.nic.pair import Pair

#: With data in it, a doorbell that tells no news makes the card look at nothing.
FEATURES = ALL_FEATURES & ~Feature.NOTIFICATION_DATA.mask
ISOLATES = DriverOptions(features=FEATURES | RdmaFeature.EVENTS.mask | RdmaFeature.QUEUE_ERROR.mask)


async def break_send_queue(pair, rng):
    """The available index of its first QP's send queue is too far ahead."""
    node, ring = pair.nodes[0], pair.qps[0].sq.ring
    break_ring("avail index", ring, node.host.memory, rng)
    await node.context.device.notify(ring)


async def needs_reset(node) -> bool:
    return bool(await node.context.device.status() & Status.DEVICE_NEEDS_RESET)


@cocotb.test()
async def each_as_it_has_negotiated(dut):
    """The first function has the event of its QP, in each of its lives: a reset of the function
    makes its virtqueues as new. The second one needs a reset. Neither costs the other anything."""
    _, functions = await up(dut, (ISOLATES, DriverOptions(features=FEATURES)))
    first, second = [await Pair(nodes, seed).make() for seed, nodes in enumerate(functions)]
    rng = random.Random(1)
    for _ in range(2):
        await break_send_queue(first, rng)
        event = await first.nodes[0].context.get_async_event()
        while event.event == EventType.GID_CHANGE:
            event = await first.nodes[0].context.get_async_event()
        assert (event.event, event.number) == (EventType.QP_FATAL, first.qps[0].qp_num)
        await second.exchange(rng)
        assert not await needs_reset(first.nodes[0]) and not await needs_reset(second.nodes[0])
        await together(*(node.context.close() for node in first.nodes))
        await together(*(node.start(ISOLATES) for node in first.nodes))
        first = await Pair(functions[0], 5).make()
    await break_send_queue(second, rng)
    await second.nodes[0].testbench.cycles(10_000)
    assert await needs_reset(second.nodes[0]) and not await needs_reset(first.nodes[0])
    await first.exchange(rng)
