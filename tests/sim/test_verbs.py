"""The verbs objects on the driver, against a device in Python: traffic of every kind."""

import asyncio

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdl.abi.enums import Access, Mtu, NotifyFlags, QpState, QpType, SendFlags, WcFlags, WcOpcode
from hdl.abi.enums import WcStatus as Status
from hdl.abi.enums import WrOpcode as Op
from hdl.abi.virtio_pci import Feature
from sim.guest.driver.device import ALL_FEATURES, DriverOptions
from sim.guest.driver.virtqueue import RingPolicy
from sim.guest.verbs import (
    AH,
    CQ,
    MR,
    PD,
    QP,
    AHAttr,
    Context,
    DmaMR,
    GlobalRoute,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
)
from tests.sim.fake_device import FakeRdma
from tests.sim.fake_pci import FakePlatform

ANY = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
CAP = QPCap(16, 16, 8, 8, 64)


class Pair:
    """Two connected queue pairs on one device, each with its own CQ and region."""

    @classmethod
    async def create(
        cls, *, options=None, length=20000, cap=CAP, cqe=64, wqe_align=64, ring=256, **init
    ):
        self = cls()
        self.device = FakeRdma(FakePlatform(size=32 << 20), queue_size=ring)
        options = options or DriverOptions(timeout_ns=50_000)
        self.ctx = await Context.open(self.device.platform, 1, options, wqe_align=wqe_align)
        self.pd = await self.ctx.alloc_pd()
        self.cqs = [await CQ.create(self.ctx, cqe, comp_vector=i) for i in range(2)]
        self.mrs = [await MR.create(self.pd, length, ANY, offset=77 * i + 3) for i in range(2)]
        self.qps = [
            await QP.create(self.pd, QPInitAttr(scq=cq, rcq=cq, cap=cap, **init)) for cq in self.cqs
        ]
        for qp, peer in zip(self.qps, reversed(self.qps), strict=True):
            await qp.to_rts(QPAttr(dest_qp_num=peer.qp_num))
        return self


def payload(size, seed=0):
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def run(coroutine):
    return asyncio.run(coroutine)


OPTIONS = {
    "plain": DriverOptions(timeout_ns=50_000, features=0, vectors=0),
    "all": DriverOptions(timeout_ns=50_000),
    "split": DriverOptions(timeout_ns=50_000, policy=RingPolicy(split=(1, 11, 64))),
    "indirect": DriverOptions(
        timeout_ns=50_000,
        features=ALL_FEATURES & ~Feature.IN_ORDER.mask,
        policy=RingPolicy(split=(5, 13), indirect=True, shuffle=3),
    ),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_operation(name):
    async def main():
        p = await Pair.create(options=OPTIONS[name], wqe_align=1)
        (a, b), (cq_a, cq_b), (mr_a, mr_b) = p.qps, p.cqs, p.mrs
        for turn in range(40):
            size = (turn * 997) % 9000 + 1
            data = payload(size, turn)
            mr_a.write(data, 5)
            mr_b.fill(0)
            # SEND_WITH_IMM from two pieces into two
            half = size // 2
            sg = [mr_a.sge(5, half), mr_a.sge(5 + half, size - half)]
            rsg = [mr_b.sge(11, size // 3), mr_b.sge(11 + size // 3, size)]
            await b.post_recv(RecvWR(turn, rsg))
            await a.post_send(SendWR(turn + 100, Op.SEND_WITH_IMM, sg, imm_data=0x01020304))
            (sent,) = await cq_a.wait()
            (received,) = await cq_b.wait()
            assert (sent.wr_id, sent.status, sent.opcode) == (turn + 100, 0, WcOpcode.SEND)
            assert received.wr_id == turn and received.byte_len == size
            assert received.opcode == WcOpcode.RECV and received.wc_flags == WcFlags.WITH_IMM
            assert received.imm_data == 0x01020304
            assert (received.qp_num, received.src_qp) == (b.qp_num, a.qp_num)
            assert np.array_equal(mr_b.read(size, 11), data)
            # WRITE and READ back
            write = SendWR(1, Op.RDMA_WRITE, [mr_a.sge(5, size)], SendFlags(0))
            write.set_wr_rdma(mr_b.rkey, mr_b.iova + 3000)
            read = SendWR(2, Op.RDMA_READ, [mr_a.sge(9500, size)])
            read.set_wr_rdma(mr_b.rkey, mr_b.iova + 3000)
            await a.post_send([write, read])
            found = await cq_a.wait(2)
            assert [wc.opcode for wc in found] == [WcOpcode.RDMA_WRITE, WcOpcode.RDMA_READ]
            assert np.array_equal(mr_a.read(size, 9500), data)
            # fetch and add
            mr_b.write((turn + 7).to_bytes(8, "little"), 8)
            atomic = SendWR(3, Op.ATOMIC_FETCH_AND_ADD, [mr_a.sge(0, 8)])
            atomic.set_wr_atomic(mr_b.rkey, mr_b.iova + 8, 5)
            await a.post_send(atomic)
            assert (await cq_a.wait())[0].opcode == WcOpcode.FETCH_ADD
            assert mr_a.read(8).view("<u8")[0] == turn + 7
            assert mr_b.read(8, 8).view("<u8")[0] == turn + 12
        assert not await cq_a.poll(10) and not await cq_b.poll(10)
        seen = p.device.chains_seen
        assert (seen["longest"] > 4) == (name in ("split", "indirect"))
        assert bool(seen["indirect"]) == (name == "indirect")
        for item in (*p.qps, *p.cqs, *p.mrs, p.pd):
            await item.close()
        await p.ctx.close()
        assert not p.device.memory._sizes

    run(main())


def test_inline():
    async def main():
        p = await Pair.create()
        p.mrs[0].write(b"from the region")
        sends = [
            SendWR(1, send_flags=SendFlags.INLINE, inline_data=b"given"),
            SendWR(2, sg=[p.mrs[0].sge(5, 10)], send_flags=SendFlags.INLINE),
            SendWR(3, send_flags=SendFlags.INLINE, inline_data=b""),
        ]
        await p.qps[1].post_recv([RecvWR(i, [p.mrs[1].sge(100 * i, 64)]) for i in range(3)])
        await p.qps[0].post_send(sends)
        found = await p.cqs[1].wait(3)
        assert [wc.byte_len for wc in found] == [5, 10, 0]
        assert p.mrs[1].read(5).tobytes() == b"given"
        assert p.mrs[1].read(10, 100).tobytes() == b"the region"

    run(main())


def test_signalling():
    async def main():
        p = await Pair.create(sq_sig_all=0)
        await p.qps[1].post_recv([RecvWR(i, []) for i in range(4)])
        flags = [0, SendFlags.SIGNALED, 0, SendFlags.SIGNALED]
        await p.qps[0].post_send([SendWR(i, send_flags=f) for i, f in enumerate(flags)])
        assert [wc.wr_id for wc in await p.cqs[0].wait(2)] == [1, 3]
        assert [wc.wr_id for wc in await p.cqs[1].wait(4)] == [0, 1, 2, 3]
        assert not await p.cqs[0].poll(5)

    run(main())


def test_one_doorbell_for_a_list():
    async def main():
        options = DriverOptions(timeout_ns=50_000, features=0)
        p = await Pair.create(options=options)
        queue = p.device.queues[p.qps[0].sq.ring.index]
        await p.qps[1].post_recv([RecvWR(i, []) for i in range(16)])
        await p.qps[0].post_send([SendWR(i) for i in range(10)])
        assert len(queue.doorbells) == 1
        for i in range(6):
            await p.qps[0].post_send(SendWR(i))
        assert len(queue.doorbells) == 7

    run(main())


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 3, 16, 256])
def test_depth_and_wrap(depth, late):
    """Every slot is used, again and again; a slot is free once its completion was seen."""

    async def main():
        cap = QPCap(depth, depth, 1, 1, 0)
        p = await Pair.create(cap=cap, cqe=2 * depth, ring=512)
        p.device.late_used = late
        total = 0
        for _ in range(600 // depth + 2):
            await p.qps[1].post_recv([RecvWR(total + i, []) for i in range(depth)])
            await p.qps[0].post_send([SendWR(total + i) for i in range(depth)])
            for cq in p.cqs:
                found = await cq.wait(depth)
                assert [wc.wr_id for wc in found] == list(range(total, total + depth))
            total += depth

    run(main())


@pytest.mark.parametrize("vectors", [1, 2, 3, 4])
def test_events(vectors):
    """One event for each arming, whether vectors are shared or not."""

    async def main():
        options = DriverOptions(timeout_ns=50_000, vectors=vectors)
        p = await Pair.create(options=options)
        (a, b), (cq_a, cq_b) = p.qps, p.cqs
        await b.post_recv([RecvWR(i, []) for i in range(8)])
        await a.post_send(SendWR(0))
        await cq_a.wait()
        assert cq_a.events == cq_b.events == 0
        # A completion that is there when the queue is armed makes no event (VR-3.35).
        await cq_b.req_notify()
        if vectors == 4:
            assert cq_b.events == 0
        assert len(await cq_b.poll(8)) == 1
        cq_b.events = 0
        await cq_b.req_notify()
        await a.post_send([SendWR(1), SendWR(2)])
        await cq_b.get_event()
        assert cq_b.events == 0 and len(await cq_b.poll(8)) == 2
        # Only a solicited one counts.
        await cq_b.req_notify(solicited_only=True)
        armed = p.device.cqs[cq_b.cqn]
        assert armed["armed"] == NotifyFlags.SOLICITED
        await a.post_send(SendWR(3))
        assert armed["armed"] == NotifyFlags.SOLICITED
        await a.post_send(SendWR(4, send_flags=SendFlags.SOLICITED | SendFlags.SIGNALED))
        assert armed["armed"] == 0
        await cq_b.get_event()

    run(main())


def test_waits_for_receives():
    async def main():
        p = await Pair.create()
        await p.qps[0].post_send([SendWR(1), SendWR(2)])
        await p.device.platform.wait_event(5000)
        assert not await p.cqs[0].poll(4)
        await p.qps[1].post_recv([RecvWR(7, []), RecvWR(8, [])])
        assert [wc.wr_id for wc in await p.cqs[0].wait(2)] == [1, 2]

    run(main())


@settings(max_examples=30, deadline=None)
@given(
    size=st.integers(1, 30000),
    offsets=st.tuples(st.integers(0, 4095), st.integers(0, 4095)),
    virt_addr=st.none() | st.integers(0, (1 << 63)),
)
def test_regions(size, offsets, virt_addr):
    """Data goes from any offset of one page list to any offset of another."""

    async def main():
        p = await Pair.create()
        source = await MR.create(p.pd, size, offset=offsets[0], virt_addr=virt_addr)
        target = await MR.create(p.pd, size, ANY | Access.ZERO_BASED, offset=offsets[1])
        assert target.iova == 0 and source.iova == (source.buf if virt_addr is None else virt_addr)
        data = payload(size, size)
        source.write(data)
        write = SendWR(1, Op.RDMA_WRITE, [source.sge()])
        write.set_wr_rdma(target.rkey, target.iova)
        await p.qps[0].post_send(write)
        assert (await p.cqs[0].wait())[0].status == Status.SUCCESS
        assert np.array_equal(target.read(size), data)
        pages = source.buffer.pages
        assert len(pages) == -(-(offsets[0] + size) // 4096)
        await source.close()
        await target.close()

    run(main())


def test_dma_region():
    async def main():
        p = await Pair.create()
        dma = await DmaMR.create(p.pd, Access.LOCAL_WRITE)
        assert dma.rkey == 0
        addr = p.ctx.memory.alloc(64)
        start = addr - p.ctx.memory.base
        p.ctx.memory.bytes[start : start + 64] = 0x42
        sge = p.mrs[0].sge(0, 64)
        sge.addr, sge.lkey = addr, dma.lkey
        await p.qps[1].post_recv(RecvWR(1, [p.mrs[1].sge()]))
        await p.qps[0].post_send(SendWR(1, sg=[sge]))
        await p.cqs[1].wait()
        assert (p.mrs[1].read(64) == 0x42).all()
        await dma.close()

    run(main())


def test_states_and_attributes():
    async def main():
        p = await Pair.create()
        qp = p.qps[0]
        attr = await qp.query()
        assert (attr.qp_state, attr.dest_qp_num) == (QpState.RTS, p.qps[1].qp_num)
        route = GlobalRoute("10.1.2.3", flow_label=5, sgid_index=2, hop_limit=9, traffic_class=7)
        sent = QPAttr(
            qp_state=QpState.RTR,
            path_mtu=Mtu.MTU_4096,
            rq_psn=1,
            ah_attr=AHAttr(gr=route, sl=3, roce_dmac=b"\2\0\0\0\0\7"),
            cap=QPCap(1, 2, 3, 4, 5),
        )
        p.device.qps[qp.qp_num].attr = sent.to_abi()
        back = await qp.query()
        expected = bytes(10) + b"\xff\xff\x0a\x01\x02\x03"
        assert back.ah_attr.gr.dgid == expected
        back.ah_attr.gr.dgid = route.dgid
        assert back == sent
        assert qp.state == QpState.RTR

    run(main())


def test_reset_and_again():
    """RESET drops what is queued; the queues then start anew."""

    async def main(features):
        options = DriverOptions(timeout_ns=50_000, features=features)
        p = await Pair.create(options=options)
        await p.qps[0].post_send([SendWR(1), SendWR(2)])
        for qp, peer in zip(p.qps, reversed(p.qps), strict=True):
            await qp.modify(QPAttr(), 1)
            assert qp.state == QpState.RESET and qp.sq.outstanding == 0
            await qp.to_rts(QPAttr(dest_qp_num=peer.qp_num))
        await p.qps[1].post_recv(RecvWR(5, []))
        await p.qps[0].post_send(SendWR(3))
        assert [wc.wr_id for wc in await p.cqs[0].wait()] == [3]
        assert [wc.wr_id for wc in await p.cqs[1].wait()] == [5]

    run(main(ALL_FEATURES))
    run(main(ALL_FEATURES & ~Feature.RING_RESET.mask))


@pytest.mark.parametrize("features", [ALL_FEATURES, ALL_FEATURES & ~Feature.RING_RESET.mask])
def test_create_and_destroy(features):
    """Objects come and go more often than there are queues, with work outstanding."""

    async def main():
        options = DriverOptions(timeout_ns=50_000, features=features)
        p = await Pair.create(options=options)
        kept = len(p.device.memory._sizes)
        for turn in range(10):
            cq = await CQ.create(p.ctx, 32)
            qp = await QP.create(
                p.pd,
                QPInitAttr(scq=cq, rcq=cq, cap=CAP),
                QPAttr(dest_qp_num=p.qps[0].qp_num),
            )
            await qp.post_recv([RecvWR(i, []) for i in range(turn)])
            await p.qps[0].post_recv(RecvWR(turn, []))
            await qp.post_send([SendWR(50), SendWR(51)])
            assert (await cq.wait())[0].wr_id == 50
            await qp.close()
            await cq.close()
        if features & Feature.RING_RESET.mask:
            assert len(p.device.memory._sizes) == kept

    run(main())


@pytest.mark.parametrize(
    ("group", "mac"),
    [
        ("239.129.2.3", "01005e010203"),
        ("224.0.0.1", "01005e000001"),
        ("ff02::1:ff00:17", "3333ff000017"),
        ("ff15:1:2:3:4:5:6789:abcd", "33336789abcd"),
    ],
)
def test_address_of_a_group(group, mac):
    """The MAC address follows from the group's (RFC 1112, 6.4; RFC 2464, 7)."""
    attr = AHAttr.to_group(group, sgid_index=2)
    assert attr.roce_dmac.hex() == mac and (attr.gr.sgid_index, attr.gr.hop_limit) == (2, 1)


@pytest.mark.parametrize("address", ["10.0.0.1", "fe80::1"])
def test_address_of_no_group(address):
    with pytest.raises(ValueError, match="is not the address of a group"):
        AHAttr.to_group(address)


def test_datagram_address():
    """The packed address vector (VR-4.7); the device in Python does not use it."""

    async def main():
        p = await Pair.create(qp_type=QpType.UD)
        route = GlobalRoute("fe80::1", flow_label=0xABCDE, traffic_class=0x5A, sgid_index=3)
        ah = AH(PD(p.ctx, 9), AHAttr(gr=route, sl=6, port_num=1, roce_dmac=b"123456"))
        av = ah.to_av()
        assert av["sl_tclass_flowlabel"] == 0x6_5A_ABCDE and av["pdn"] == 9
        wr = SendWR()
        wr.set_wr_ud(ah, 0x123456, 0x11111111)
        assert len(wr.wr) == 51 and wr.wr[:8].hex() == "5634120011111111"

    run(main())
