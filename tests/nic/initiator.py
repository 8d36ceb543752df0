"""What tests of XRC and of DC have in common: one who sends to several, and those who receive."""

import numpy as np

from hdl.abi.enums import Access, RdmaFeature, WcStatus, WrOpcode
from sim.guest.driver.device import ALL_FEATURES, DriverOptions
from sim.guest.verbs import CQ, MR, QPCap, RecvWR, SendWR
from sim.wire import packets as pk

RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
CAP = QPCap(max_send_wr=64, max_send_sge=2, max_inline_data=64)
LENGTH, DEPTH, WAIT_NS = 1 << 16, 64, 4_000_000
_EVENTS = RdmaFeature.EVENTS.mask | RdmaFeature.QUEUE_ERROR.mask
WITH_EVENTS = DriverOptions(features=ALL_FEATURES | _EVENTS)


def frame_to(nodes, side, opcode, payload=b"", **fields):
    """A packet to the card of ``side``, as the other card would have sent it."""
    here, there = nodes[side], nodes[1 - side]
    return pk.build(
        opcode,
        payload=payload,
        dst_mac=here.mac,
        src_mac=there.mac,
        dst_gid=here.context.query_gid(1, 0),
        src_gid=there.context.query_gid(1, 0),
        pkey=0xFFFF,
        **fields,
    )


class Receiver:
    """One with a region ``mr``, a receive queue ``srq`` and its completions, ``cq``."""

    async def allocate(self, context, access=RIGHTS):
        """A PD, the completion queue and the region."""
        self.pd = await context.alloc_pd()
        self.cq = await CQ.create(context, 256)
        self.mr = await MR.create(self.pd, LENGTH, access, offset=8)

    async def post(self, *numbers, size=1024):
        """A receive of ``size`` bytes for each number, at that place of the region."""
        requests = [RecvWR(n, [self.mr.sge(n * size % LENGTH, size)]) for n in numbers]
        await self.srq.post_recv(requests)

    async def done(self, count=1):
        return await self.cq.wait(count, timeout_ns=WAIT_NS)


class Sender:
    """One with a region ``mr``, which is full of ``data``, and completions, ``cq``. ``receivers``
    and ``nodes``: those there are."""

    async def allocate(self, context):
        """A PD, the completion queue and the region."""
        self.pd = await context.alloc_pd()
        self.cq = await CQ.create(context, 256)
        self.mr = await MR.create(self.pd, LENGTH, RIGHTS, offset=8)
        self.data = np.random.default_rng(3).integers(0, 256, LENGTH, np.uint8)
        self.mr.write(self.data)

    def plain(self, opcode, at, length, number, theirs, **more):
        """A request to the region ``theirs``, if it has to; who sends it says to whom it goes."""
        remote = {name: more.pop(name) for name in ("compare_add", "swap") if name in more}
        place = more.pop("place", at)
        wr = SendWR(number, opcode, [self.mr.sge(at, length)], **more)
        wr.set_remote(theirs.rkey, theirs.iova + place, **remote)
        return wr

    def send(self, at, length, number=0, *, opcode=WrOpcode.SEND, **more):
        return self.request(opcode, at, length, number, **more)

    async def done(self, count=1):
        return await self.cq.wait(count, timeout_ns=WAIT_NS)

    async def good(self, count=1):
        found = await self.done(count)
        assert all(wc.status == WcStatus.SUCCESS for wc in found), found
        return found

    async def well(self):
        """Nothing is left over, and the hosts have seen nothing that they should not."""
        for cq in (self.cq, *(one.cq for one in self.receivers)):
            assert await cq.poll(1) == []
        for node in self.nodes:
            assert not node.host.faults, node.host.faults
