"""Two cards whose WQEs may come with their doorbells: what is pushed arrives byte by byte, with
what is read from rings beside it; torn, late and hostile pushes harm nobody."""

from __future__ import annotations

import random

import cocotb
import numpy as np
from cocotb.triggers import Timer

from hdl.abi.enums import QpAttrMask, QpState, RdmaFeature, SendFlags, WcStatus, WrOpcode
from hdl.abi.push import PUSH_MOST_BYTES, PUSH_SLOT_BYTES, push_pieces
from hdl.abi.virtio_pci import Feature, Status
from hdl.abi.virtio_rdma import POST_SEND, qp_index
from sim.bench.system import Node, QpOptions, System, connect, together
from sim.guest.driver.device import ALL_FEATURES, DriverOptions
from sim.guest.verbs import QPAttr, SendWR
from sim.models.impairments import Impairments
from tests.nic.card import PUSH
from tests.nic.pair import LENGTH, RIGHTS, WAIT_NS, Pair

#: Bytes inline of the longest element that can be pushed.
MOST = PUSH_MOST_BYTES - POST_SEND.size
SEED = 5


class Pushing(Pair):
    """A connection whose first side WRITEs inline; ``sent`` is what the other side must hold."""

    @classmethod
    async def up(cls, dut, **options) -> Pushing:
        system = await System.start(dut, PUSH, **options)
        return await cls.on(system.nodes)

    @classmethod
    async def on(cls, nodes, seed: int = SEED) -> Pushing:
        self = cls(nodes, seed)
        for node in nodes:
            node.host.set(mmio_latency_ns=0)
        await self.make(512, options=QpOptions(access=RIGHTS, timeout=3))
        self.random = random.Random(seed)
        self.held = self.mrs[1].read(LENGTH)
        self.device = nodes[0].context.device
        return self

    @property
    def slot(self) -> int:
        """Where the slot of the first side's QP begins."""
        pair = qp_index(self.qps[0].qp_num, self.device.config.max_qp)
        return self.device.push_window.offset + PUSH_SLOT_BYTES * pair

    def wr(self, length: int, at: int | None = None) -> SendWR:
        """A WRITE of random bytes, inline."""
        at = self.random.randrange(LENGTH - length) if at is None else at
        octets = self.random.randbytes(length)
        self.held[at : at + length] = np.frombuffer(octets, np.uint8)
        flags = SendFlags.SIGNALED | SendFlags.INLINE
        wr = SendWR(at, WrOpcode.RDMA_WRITE, (), flags, inline_data=octets)
        wr.set_wr_rdma(self.mrs[1].rkey, self.mrs[1].iova + at)
        return wr

    async def write(self, length: int) -> None:
        """One message, which the driver pushes."""
        await self.qps[0].post_send(self.wr(length))
        await self.good()

    async def published(self, wr: SendWR) -> tuple[int, int, bytes]:
        """Put a request into the ring without a doorbell: its position, head and element."""
        queue = self.qps[0].sq
        await queue.post(self.qps[0]._send_element(wr))
        head, element = queue._alone
        queue.ring.publish()
        queue.ring.kick_due()
        return queue.ring.next_avail - 1 & 0xFFFF, head, element

    async def raw(self, at: int, octets: bytes) -> None:
        """Write to the window of the function, from the begin of the slot on."""
        device = self.device
        await device.platform.mmio.write_combined(
            device.function, device.push_window.bar, self.slot + at, octets
        )

    async def same(self) -> None:
        """The other side holds what was sent, and nothing else."""
        await Timer(3, "us")
        assert np.array_equal(self.mrs[1].read(LENGTH), self.held)

    async def pushes(self) -> dict[str, int]:
        """What the sender's card has counted."""
        return await self.nodes[0].registers.pushes()


@cocotb.test()
async def each_length(dut):
    """Inline WRITEs of all lengths that fit are taken from the window, others from the ring."""
    p = await Pushing.up(dut)
    lengths = [*range(0, 5), 36, 37, 38, 47, 48, 92, 93, 94, MOST - 1, MOST]
    for length in lengths:
        await p.write(length)
    counts = await p.pushes()
    assert counts == dict.fromkeys(counts, 0) | {"taken": len(lengths)}, counts
    await p.write(MOST + 1)
    await p.same()
    assert await p.pushes() == counts


@cocotb.test()
async def without_reads(dut):
    """A push that is taken has the host read neither ring nor element."""
    p = await Pushing.up(dut)
    await p.write(64)
    await Timer(5, "us")
    host = p.nodes[0].host
    p.nodes[0].rest_firmware(True)
    host.set(read_latency_ns=20_000, mmio_latency_ns=0)
    begun = host.now()
    await p.qps[0].post_send(p.wr(48))
    await Timer(3, "us")
    assert np.array_equal(p.mrs[1].read(LENGTH), p.held), host.now() - begun
    host.set(mmio_latency_ns=0)
    p.nodes[0].rest_firmware(False)
    await p.good()


@cocotb.test()
async def beside_rings(dut):
    """Pushed and other requests of many QPs at a time, then pushes alone: each request arrives, in
    the order of its queue."""
    p = await Pushing.up(dut)
    more = [await connect(p.nodes, p.pds, p.cqs, QpOptions(access=RIGHTS)) for _ in range(5)]
    qps = [p.qps[0], *(pair[0] for pair in more)]
    share = LENGTH // len(qps)
    asked = 0

    async def talk(n: int) -> None:
        nonlocal asked
        rng = random.Random(SEED + n)
        for _ in range(12):
            # The last one to a place wins: two requests of a list go to the same one.
            count = rng.choice((1, 1, 1, 2, 3))
            at = n * share + rng.randrange(share - 300)
            wrs = [p.wr(rng.choice((1, 20, 48, MOST, 256)), at) for _ in range(count)]
            await qps[n].post_send(wrs if count > 1 else wrs[0])
            asked += count
            while qps[n].sq.outstanding and rng.random() < 0.9:
                await Timer(300, "ns")
                qps[n].sq._reap()
            await Timer(rng.choice((1, 1000, 8000)), "ns")

    async def once(n: int) -> None:
        """All push at a time."""
        nonlocal asked
        await qps[n].post_send(p.wr(48, n * share))
        asked += 1

    tasks = [cocotb.start_soon(talk(n)) for n in range(len(qps))]
    for task in tasks:
        await task
    before = await p.pushes()
    assert before["taken"] >= 5 and before["behind"] >= 1, before
    for _ in range(4):
        await Timer(20, "us")
        for qp in qps:
            qp.sq._reap()
        await together(*(once(n) for n in range(len(qps))))
    found = []
    while len(found) < asked:
        found += await p.cqs[0].wait(1, timeout_ns=WAIT_NS)
    assert {wc.status for wc in found} == {WcStatus.SUCCESS} and len(found) == asked
    await p.same()
    after = await p.pushes()
    # There is room for four at a time.
    assert after["taken"] - before["taken"] >= 8, (before, after)


@cocotb.test()
async def bad_network(dut):
    """Packets of pushed requests are lost: they are sent again, read from the ring then."""
    p = await Pushing.up(dut)
    for n, wire in enumerate(p.nodes[0].testbench.wires):
        wire.impair(Impairments.parse(f"loss=15%,seed={SEED + n}"))
    for _ in range(25):
        await p.write(p.random.randrange(1, MOST))
    for wire in p.nodes[0].testbench.wires:
        wire.impair()
    await p.same()
    counters = await p.nodes[0].counters()
    assert counters["local_ack_timeout_err"] or counters["packet_seq_err"], counters
    assert (await p.pushes())["taken"] >= 20


async def _pieces_reversed(p, position, head, element):
    for n, piece in reversed([*enumerate(push_pieces(position, head, element))]):
        await p.raw(64 * n, piece)


async def _torn(p, position, head, element):
    for n, piece in enumerate(push_pieces(position, head, element)):
        await p.raw(64 * n, piece[:20])
        await p.raw(64 * n + 20, piece[20:])


async def _stops(p, position, head, element):
    await p.raw(0, push_pieces(position, head, element)[0])


async def _late(p, position, head, element):
    await p.raw(0, b"".join(push_pieces(position - 1 & 0xFFFF, head, element)))
    await Timer(2, "us")
    await p.raw(0, bytes(4))


async def _garbage(p, position, head, element):
    await p.raw(0, random.Random(position).randbytes(256))


async def _no_head(p, position, head, element):
    for n, piece in enumerate(push_pieces(position, 0xFFFF, element)):
        await p.raw(64 * n, piece)


async def _no_wqe(p, position, head, element):
    """An element that contradicts itself is looked at in the ring."""
    for n, piece in enumerate(push_pieces(position, head, element[:76] + bytes(100))):
        await p.raw(64 * n, piece[:8] + b"\xff" * 56)


WAYS = {
    "reversed": (_pieces_reversed, "taken"),
    "torn": (_torn, "torn"),
    "stops": (_stops, "incomplete"),
    "late": (_late, None),
    "garbage": (_garbage, "torn"),
    "no head": (_no_head, "unfit"),
    "no WQE": (_no_wqe, "taken"),
}


@cocotb.test()
async def odd_pushes(dut):
    """Pieces in another order, torn, too few, of another position, garbage: the request that is in
    the ring arrives each time, and the next one too."""
    p = await Pushing.up(dut)
    for name, (way, count) in WAYS.items():
        before = await p.pushes()
        await way(p, *await p.published(p.wr(48)))
        await p.good()
        await p.same()
        after = await p.pushes()
        if count is not None:
            assert after[count] > before[count], (name, before, after)
        await p.write(40)
        await p.same()


@cocotb.test()
async def differs_from_the_ring(dut):
    """What is pushed and what is in the ring differ: one of them arrives, whole, and a completion
    comes; when the packet is lost, that of the ring does. The QP goes on."""
    p = await Pushing.up(dut)
    wires = p.nodes[0].testbench.wires
    for lost in (False, True):
        at = 512
        ours = p.qps[0]._send_element(p.wr(48, at))
        pushed = p.held.copy()
        position, head, _ = await p.published(p.wr(48, at))
        if lost:
            wires[0].impair(Impairments(loss=1))
        for n, piece in enumerate(push_pieces(position, head, ours)):
            await p.raw(64 * n, piece)
        if lost:
            await Timer(5, "us")
            wires[0].impair()
        else:
            p.held = pushed
        await p.good()
        await p.same()
        await p.write(30)
    await p.same()


@cocotb.test()
async def two_functions(dut):
    """Both functions push to QPs of the same number, one of them garbage as well: each has its own
    data, and the other one does not notice."""
    system = await System.start(dut, PUSH)
    second = [Node(system.testbench, node.index, beside=node) for node in system.nodes]
    await together(*(node.start() for node in second))
    pairs = [await Pushing.on(nodes, n) for n, nodes in enumerate((system.nodes, second))]
    assert pairs[0].numbers() == pairs[1].numbers() and pairs[0].slot == pairs[1].slot
    over = False

    async def enemy() -> None:
        rng = random.Random(SEED)
        p = pairs[1]
        while not over:
            pair = rng.randrange(1, p.device.config.max_qp)
            octets = rng.randbytes(rng.choice((4, 64, 256)))
            if rng.random() < 0.5:
                element = p.qps[0]._send_element(p.wr(48, 0))
                octets = b"".join(push_pieces(rng.randrange(4), rng.randrange(4), element))
            at = p.device.push_window.offset + PUSH_SLOT_BYTES * pair
            mmio, device = p.device.platform.mmio, p.device
            await mmio.write_combined(device.function, device.push_window.bar, at, octets)
            await Timer(rng.choice((40, 400, 1000)), "ns")

    for _ in range(3):
        await together(*(p.write(p.random.randrange(MOST)) for p in pairs))
    task = cocotb.start_soon(enemy())
    for _ in range(12):
        await pairs[0].write(pairs[0].random.randrange(MOST))
    over = True
    await task
    await pairs[0].same()
    assert not system.nodes[0].host.faults


@cocotb.test()
async def queue_starts_anew(dut):
    """The QP goes to RESET in the middle of a push, and what was pushed is gone; it is connected
    once more, and the places of the ring that come again are not taken for those of before."""
    p = await Pushing.up(dut)
    await p.write(48)
    position, head, element = await p.published(p.wr(48))
    pieces = push_pieces(position, head, element)
    await p.raw(0, pieces[0])
    await p.qps[0].modify(QPAttr(qp_state=QpState.RESET), QpAttrMask.STATE)
    await Timer(5, "us")
    p.held = p.mrs[1].read(LENGTH)  # as a doorbell it may have come in time
    for n, piece in enumerate(pieces[1:], 1):
        await p.raw(64 * n, piece)
    await p.same()
    await p.cqs[0].poll(64)
    p.qps = await connect(p.nodes, p.pds, p.cqs, QpOptions(access=RIGHTS))
    for _ in range(3):
        await p.write(50)
    await p.same()


@cocotb.test()
async def packed_rings(dut):
    """A driver with packed rings has no pushes; one that takes both is refused."""
    options = DriverOptions(features=ALL_FEATURES | Feature.RING_PACKED.mask)
    p = await Pushing.up(dut, options=options)
    assert p.device.has(Feature.RING_PACKED) and p.device.push_window is None
    await p.write(48)
    await p.same()
    await p.device.reset()
    for bit in (Status.ACKNOWLEDGE, Status.DRIVER):
        await p.device._set_status(bit)
    both = Feature.RING_PACKED.mask | RdmaFeature.PUSH.mask | Feature.VERSION_1.mask
    for half in (0, 1):
        await p.device.common_write("driver_feature_select", half)
        await p.device.common_write("driver_feature", both >> 32 * half & 0xFFFF_FFFF)
    await p.device._set_status(Status.FEATURES_OK)
    assert not await p.device.status() & Status.FEATURES_OK


@cocotb.test()
async def without_the_feature(dut):
    """What a driver writes to the window without having negotiated it has no effect at all."""
    features = ALL_FEATURES & ~RdmaFeature.PUSH.mask
    p = await Pushing.up(dut, options=DriverOptions(features=features))
    assert p.device.push_window is None
    before = p.held.copy()
    await Timer(5, "us")  # the card has looked at the ring when its QP could send
    position, head, element = await p.published(p.wr(48))
    pair = qp_index(p.qps[0].qp_num, p.device.config.max_qp)
    for n, piece in enumerate(push_pieces(position, head, element)):
        await p.device.platform.mmio.write_combined(
            p.device.function, 4, PUSH_SLOT_BYTES * pair + 64 * n, piece
        )
    wanted, p.held = p.held, before
    await p.same()
    assert (await p.pushes())["refused"] == 3
    await p.device.notify(p.qps[0].sq.ring)
    await p.good()
    p.held = wanted
    await p.same()
