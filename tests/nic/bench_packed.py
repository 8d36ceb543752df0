"""Two whole cards whose drivers use packed rings."""

import random

import cocotb
import numpy as np

from hdl.abi.enums import (
    EventType,
    QpAttrMask,
    QpState,
    RdmaFeature,
    SendFlags,
    WcStatus,
    WrOpcode,
)
from hdl.abi.virtio_pci import Feature, Status
from sim.bench.system import QpOptions, connect
from sim.guest.driver.device import ALL_FEATURES, DriverOptions, PackedVirtQueue
from sim.guest.driver.virtqueue import RingPolicy
from sim.guest.verbs import AsyncEvent, QPAttr, QPCap, RecvWR
from tests.nic.bench_nic import DATA, WAIT_NS, Pair, gathered, pieces
from tests.nic.card import FUNCTIONS

PACKED = ALL_FEATURES | Feature.RING_PACKED.mask
CAP = QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=4, max_recv_sge=4)


def without(*features: Feature) -> int:
    return PACKED & ~sum(feature.mask for feature in features)


#: What is negotiated, and how lists of several pieces are made.
SHAPES = [
    (PACKED, RingPolicy()),
    (PACKED, RingPolicy(split=(1, 70, 9))),
    (without(Feature.EVENT_IDX), RingPolicy(split=(33, 41))),
    (without(Feature.NOTIFICATION_DATA, Feature.IN_ORDER), RingPolicy(shuffle=3)),
    # The control queue's lists are in the ring then.
    (Feature.VERSION_1.mask | Feature.RING_PACKED.mask, RingPolicy()),
    (ALL_FEATURES, RingPolicy()),
]


async def every_way(p: Pair, rng: random.Random, turn: int) -> None:
    """SEND, WRITE and READ of some bytes, each looked at."""
    size = rng.randrange(1, 3000)
    for opcode in (WrOpcode.SEND, WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ):
        sges = pieces(rng, p.mrs[0], size, 4)
        sink = pieces(rng, p.mrs[1], size, 3)
        p.mrs[1].write(DATA[turn : turn + 8192])
        sent, there = gathered(p.mrs[0], sges), p.mrs[1].read(size, 9)
        if opcode == WrOpcode.SEND:
            await p.qps[1].post_recv(RecvWR(turn, sink))
        await p.qps[0].post_send(p.request(opcode, sges, offset=9, number=turn))
        (wc,) = await p.good()
        assert wc.wr_id == turn
        if opcode == WrOpcode.SEND:
            (got,) = await p.good(side=1)
            assert got.wr_id == turn and got.byte_len == size
            assert np.array_equal(gathered(p.mrs[1], sink), sent)
        elif opcode == WrOpcode.RDMA_WRITE:
            assert np.array_equal(p.mrs[1].read(size, 9), sent)
        else:
            assert np.array_equal(gathered(p.mrs[0], sges), there)
            p.mrs[0].write(DATA[: p.mrs[0].length])


@cocotb.test()
async def operations(dut):
    """Each set of features, rings of four entries many times around; split ones as before."""
    p = await Pair.up(dut, config=FUNCTIONS, options=DriverOptions(features=PACKED))
    for features, policy in SHAPES:
        await p.again(DriverOptions(features=features, policy=policy), QpOptions(cap=CAP))
        packed = bool(features & Feature.RING_PACKED.mask)
        assert isinstance(p.qps[0].sq.ring, PackedVirtQueue) == packed
        rng = random.Random(features)
        for turn in range(6):
            dut._log.info("features %x, %r, turn %d", features, policy, turn)
            await every_way(p, rng, turn)


@cocotb.test()
async def many_at_once(dut):
    """Rings as full as they get: WQEs and completions in runs, signalled or not."""
    p = await Pair.up(dut, config=FUNCTIONS, options=DriverOptions(features=PACKED))
    for turn in range(4):
        count = 40 + turn
        for first in range(0, count, 20):
            some = range(first, min(first + 20, count))
            await p.qps[1].post_recv([RecvWR(n, [p.mrs[1].sge(64 * n, 64)]) for n in some])
        flags = [SendFlags.SIGNALED if n % 3 == 0 or n == count - 1 else 0 for n in range(count)]
        await p.qps[0].post_send(
            [
                p.request(
                    WrOpcode.SEND, [p.mrs[0].sge(64 * n, 64)], number=n, flags=SendFlags(flags[n])
                )
                for n in range(count)
            ]
        )
        signalled = [n for n in range(count) if flags[n]]
        assert [wc.wr_id for wc in await p.good(count=len(signalled))] == signalled
        assert [wc.wr_id for wc in await p.good(side=1, count=count)] == list(range(count))
        assert np.array_equal(p.mrs[1].read(64 * count), p.mrs[0].read(64 * count))
        p.mrs[1].write(np.zeros(64 * count, np.uint8))


@cocotb.test()
async def queues_begin_anew(dut):
    """Queues with work in them are given up and taken up again: with RING_RESET at 0, and without
    behind what had come back."""
    p = await Pair.up(dut, config=FUNCTIONS, options=DriverOptions(features=PACKED))
    for features in (PACKED, without(Feature.RING_RESET)):
        await p.again(DriverOptions(features=features), QpOptions(cap=CAP))
        rng = random.Random(7)
        for turn in range(3):
            await every_way(p, rng, turn)
            await p.qps[1].post_recv([RecvWR(turn, [p.mrs[1].sge(0, 64)]), RecvWR(99, [])])
            await p.qps[0].post_send(p.request(WrOpcode.SEND, [p.mrs[0].sge(0, 8)]))
            await p.good()
            assert [wc.wr_id for wc in await p.good(side=1)] == [turn]
            for qp in p.qps:
                if turn % 2 == 0:
                    await qp.modify(QPAttr(qp_state=QpState.RESET), QpAttrMask.STATE)
                await qp.close()
            p.qps = await connect(p.nodes, p.pds, p.cqs, QpOptions(cap=CAP))


@cocotb.test()
async def events(dut):
    """The event queue's ring: one event after the other, each with its interrupt asked for."""
    options = DriverOptions(features=PACKED | RdmaFeature.EVENTS.mask)
    p = await Pair.up(dut, config=FUNCTIONS, options=options)
    queue = p.nodes[0].context.events
    assert (await p.nodes[0].context.get_async_event()).event == EventType.GID_CHANGE
    for _ in range(3):
        qps = await connect(p.nodes, p.pds, p.cqs, QpOptions(cap=CAP))
        bad = p.request(WrOpcode.RDMA_WRITE, [p.mrs[0].sge(0, 300)])
        bad.set_wr_rdma(p.mrs[1].rkey ^ 1, p.mrs[1].iova)
        await qps[0].post_send(bad)
        (wc,) = await p.done()
        assert wc.status == WcStatus.REM_ACCESS_ERR
        assert await queue.get(WAIT_NS) == AsyncEvent(EventType.QP_FATAL, qps[0].qp_num)
        for qp in qps:
            await qp.close()


@cocotb.test()
async def not_with_shared_receive_queues(dut):
    """Packed rings and shared receive queues are refused together, and each is taken alone."""
    p = await Pair.up(dut, config=FUNCTIONS, options=DriverOptions(features=PACKED))
    device = p.nodes[0].context.device
    assert device.has(Feature.RING_PACKED) and not device.has(RdmaFeature.SRQ)
    plain, srq = Feature.VERSION_1.mask, RdmaFeature.SRQ.mask
    for features, taken in (
        (plain | Feature.RING_PACKED.mask | srq, False),
        (plain | Feature.RING_PACKED.mask, True),
        (plain | srq, True),
    ):
        await device.reset()
        for half in (0, 1):
            await device.common_write("driver_feature_select", half)
            await device.common_write("driver_feature", features >> 32 * half & 0xFFFF_FFFF)
        await device.common_write("device_status", Status.ACKNOWLEDGE | Status.DRIVER)
        wanted = Status.ACKNOWLEDGE | Status.DRIVER | Status.FEATURES_OK
        await device.common_write("device_status", wanted)
        assert bool(await device.status() & Status.FEATURES_OK) == taken
