"""MEMCPY on an initiator of DC: in the order of its stream, and without a connection."""

import cocotb
import numpy as np

from hdl.abi.enums import QpAttrMask, QpState, SendFlags, WcOpcode, WcStatus, WrOpcode
from sim.guest.verbs import MR, DcStreams, QPAttr, SendWR, query_dct, reset_stream
from tests.nic.dc import Dc
from tests.nic.initiator import LENGTH, RIGHTS

GOOD, FLUSHED, PROTECTION = WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR, WcStatus.LOC_PROT_ERR
SIGNALED = SendFlags.SIGNALED
#: Of a request that sends what copies before it bring.
FENCED = SIGNALED | SendFlags.FENCE


class Copier(Dc):
    """An initiator that copies from its region ``mr`` to another one, ``copied``."""

    @classmethod
    async def up(cls, dut, *, targets=1, streams=None, **bench):
        self = await super().up(dut, targets=targets, **bench)
        self.copied = await MR.create(self.pd, LENGTH, RIGHTS, offset=3)
        self.copied.write(bytes(LENGTH))
        if streams is not None:
            self.qp = await self.initiator(streams=streams)
        return self

    def copy(self, source, to, length, number, *, stream=0, flags=SIGNALED, lkey=None):
        wr = SendWR(number, WrOpcode.MEMCPY, send_flags=flags)
        wr.set_wr_memcpy(self.copied.sge(to, length), self.mr.sge(source, length))
        if lkey is not None:
            wr.sg[1].lkey = lkey
        wr.set_wr_dc(0, stream)
        return wr

    def of_copy(self, length, number, at, **more):
        """A SEND of what has been copied."""
        wr = self.send(0, length, number, **more)
        wr.sg = [self.copied.sge(at, length)]
        return wr

    def same(self, to, source, length):
        return np.array_equal(self.copied.read(length, to), self.data[source : source + length])


async def statuses(p, count):
    return [(wc.wr_id, wc.status) for wc in await p.done(count)]


@cocotb.test()
async def t_c7_needs_no_connection(dut):
    """T-C7: copies of an initiator that has never been connected, and is not then; and copies
    between messages to two targets in turn: all in the order of the queue, each byte right."""
    p = await Copier.up(dut, targets=2)
    await p.qp.post_send([p.copy(5, 9, 1000, 0), p.copy(70, 2000, 40000, 1)])
    found = await p.good(2)
    assert [(wc.wr_id, wc.opcode, wc.byte_len) for wc in found] == [
        (0, WcOpcode.MEMCPY, 1000),
        (1, WcOpcode.MEMCPY, 40000),
    ]
    assert p.same(9, 5, 1000) and p.same(2000, 70, 40000)
    for target in p.targets:
        assert (await query_dct(target.qp)).connects == 0
        await target.post(*range(8))
    requests = []
    for n in range(8):
        requests.append(p.copy(100 * n, 4000 * n + 1, 1500, 2 * n))
        requests.append(p.of_copy(900, 2 * n + 1, 4000 * n + 1, to=n % 2, send_flags=FENCED))
    await p.qp.post_send(requests)
    assert [wc.wr_id for wc in await p.good(16)] == [*range(16)]
    for place, target in enumerate(p.targets):
        await target.done(4)
        for turn in range(4):
            start = 100 * (2 * turn + place)
            assert np.array_equal(target.mr.read(900, 1024 * turn), p.data[start : start + 900])
    await p.well()


@cocotb.test()
async def t_c7_in_its_stream(dut):
    """T-C7: copies and WRITEs of nine streams in turn. A copy of one, with a wrong key, ends that
    stream: its later copy and WRITE are flushed and do nothing. All others are done, in order, and
    the stream goes on when it has been reset."""
    p = await Copier.up(dut, streams=DcStreams(2, 4))
    (target,) = p.targets
    target.mr.write(bytes(LENGTH))
    requests, expected = [], []
    for turn in range(3):
        for stream in range(9):
            number = 18 * turn + 2 * stream
            bad = (turn, stream) == (1, 5)
            lkey = p.mr.lkey ^ 0x40 if bad else None
            place = 1000 * (number // 2)
            requests.append(p.copy(place, place + 1, 900, number, stream=stream, lkey=lkey))
            requests.append(p.request(WrOpcode.RDMA_WRITE, place, 900, number + 1, stream=stream))
            status = FLUSHED if (turn, stream) == (2, 5) else PROTECTION if bad else GOOD
            expected.append((number, status))
            later = stream == 5 and turn
            expected.append((number + 1, FLUSHED if later else GOOD))
    await p.qp.post_send(requests)
    assert await statuses(p, len(requests)) == expected
    for number, status in expected:
        place = 1000 * (number // 2)
        if number % 2:
            done = np.array_equal(target.mr.read(900, place), p.data[place : place + 900])
        else:
            done = p.same(place + 1, place, 900)
        assert done == (status == GOOD), number
    assert (await p.qp.query()).qp_state == QpState.RTS
    await reset_stream(p.qp, 5)
    await p.qp.post_send([p.copy(7, 60000, 3000, 1, stream=5)])
    assert await statuses(p, 1) == [(1, GOOD)]
    assert p.same(60000, 7, 3000)
    await p.well()


@cocotb.test()
async def without_streams_an_error_ends_all(dut):
    """A copy from or to a wrong key takes the initiator to ERR; it copies again when it has been
    brought up anew."""
    p = await Copier.up(dut)
    (target,) = p.targets
    for sge in range(2):
        bad = p.copy(0, 0, 64, 1)
        bad.sg[sge].lkey ^= 0x40
        await p.qp.post_send([p.copy(50, 100, 64, 0), bad, p.copy(50, 5000, 64, 2)])
        assert await statuses(p, 3) == [(0, GOOD), (1, PROTECTION), (2, FLUSHED)]
        assert p.same(100, 50, 64)  # the last one may have begun beside the bad one
        assert (await p.qp.query()).qp_state == QpState.ERR
        await p.qp.modify(QPAttr(qp_state=QpState.RESET), QpAttrMask.STATE)
        await p.qp.to_rts(p.attr)
    await target.post(0)
    await p.qp.post_send([p.copy(50, 5000, 64, 3), p.of_copy(64, 4, 5000, send_flags=FENCED)])
    await p.good(2)
    await target.done()
    await p.well()
