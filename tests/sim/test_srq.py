"""Shared receive queues as the driver and the verbs see them, against a device in Python."""

import errno

import numpy as np
import pytest

from hdl.abi.enums import SrqAttrMask, WcStatus
from hdl.abi.enums import WrOpcode as Op
from sim.guest.driver.device import ALL_FEATURES, DriverOptions
from sim.guest.verbs import (
    CQ,
    MR,
    PD,
    QP,
    SRQ,
    CommandError,
    Context,
    QPAttr,
    QPCap,
    QPInitAttr,
    RdmaError,
    RecvWR,
    SendWR,
    SrqAttr,
)
from tests.sim.fake_device import FakeRdma
from tests.sim.fake_pci import FakePlatform
from tests.sim.test_verbs import ANY, payload, run

OPTIONS = DriverOptions(timeout_ns=50_000)


class Shared:
    """Senders on one device, each with a peer that takes from one shared queue."""

    @classmethod
    async def create(cls, senders=2, options=OPTIONS):
        self = cls()
        self.device = FakeRdma(FakePlatform())
        self.ctx = await Context.open(self.device.platform, 1, options)
        self.pd = await PD.create(self.ctx)
        self.cqs = [await CQ.create(self.ctx, 64) for _ in range(2)]
        self.mrs = [await MR.create(self.pd, 8192, ANY) for _ in range(2)]
        self.srq = await SRQ.create(self.pd, SrqAttr(max_wr=8, max_sge=2))
        self.pairs = []
        for _ in range(senders):
            inits = [QPInitAttr(scq=cq, rcq=cq, cap=QPCap(8, 8, 4, 4)) for cq in self.cqs]
            inits[1].srq = self.srq
            pair = [await QP.create(self.pd, init) for init in inits]
            for qp, peer in zip(pair, reversed(pair), strict=True):
                await qp.to_rts(QPAttr(dest_qp_num=peer.qp_num))
            self.pairs.append(pair)
        return self

    def receive(self, number):
        return RecvWR(
            number, [self.mrs[1].sge(64 * number, 40), self.mrs[1].sge(64 * number + 40, 24)]
        )


def test_two_queue_pairs():
    async def work():
        s = await Shared.create()
        data = payload(64)
        s.mrs[0].write(data)
        await s.srq.post_recv([s.receive(n) for n in range(8)])
        with pytest.raises(RdmaError) as full:
            await s.srq.post_recv(s.receive(8))
        assert full.value.errno == errno.ENOMEM
        for number in range(6):
            sender, receiver = s.pairs[number % 2]
            await sender.post_send(SendWR(number, Op.SEND, [s.mrs[0].sge(0, 64)]))
            (sent,) = await s.cqs[0].wait()
            (got,) = await s.cqs[1].wait()
            assert sent.status == got.status == WcStatus.SUCCESS
            assert (got.wr_id, got.qp_num) == (number, receiver.qp_num)
            assert np.array_equal(s.mrs[1].read(64, 64 * number), data)
        await s.srq.post_recv([s.receive(n) for n in range(2)])
        # Used elements of this queue come in any order, of the others in theirs.
        rings = [s.srq.queue.ring, s.pairs[0][1].sq.ring]
        assert [ring.policy.in_order for ring in rings] == [False, True]

    run(work())


def test_refusals():
    async def work():
        s = await Shared.create(1)
        ours = s.pairs[0][1]
        for post in (
            ours.post_recv(s.receive(0)),
            s.srq.post_recv(RecvWR(0, [s.mrs[1].sge()] * 3)),
        ):
            with pytest.raises(RdmaError) as bad:
                await post
            assert bad.value.errno == errno.EINVAL
        for attr, mask in (
            (SrqAttr(16), SrqAttrMask.MAX_WR),
            (SrqAttr(8, 2, 1), SrqAttrMask.LIMIT),
        ):
            with pytest.raises(RdmaError):
                await s.srq.modify(attr, mask)
        await s.srq.modify(SrqAttr(), SrqAttrMask.LIMIT)
        assert await s.srq.query() == SrqAttr(8, 2, 0)
        with pytest.raises(CommandError):
            await s.srq.close()
        await ours.close()
        await s.srq.close()
        with pytest.raises(CommandError):
            await SRQ.create(s.pd, SrqAttr(max_wr=0))

    run(work())


def test_without_the_feature():
    async def work():
        options = DriverOptions(timeout_ns=50_000, features=ALL_FEATURES & ~1)
        with pytest.raises(RdmaError) as none:
            await Shared.create(options=options)
        assert none.value.errno == errno.EOPNOTSUPP

    run(work())
